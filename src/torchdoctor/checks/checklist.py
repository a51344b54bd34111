"""What a pre-flight check found, as a list to read, a figure and a dictionary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from torchdoctor.checks.check import PARTS, Check, Outcome
from torchdoctor.findings import Finding, Place, Proof, Severity
from torchdoctor.fixes import fit_fix
from torchdoctor.instruments.result import Result, plain
from torchdoctor.plots.figure import new_figure
from torchdoctor.rules import catalogue

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from torchdoctor.run import Run

MARKS = {True: "ok", False: "FAIL", None: "-"}
COLOURS = {"passed": "#009E73", "failed": "#D55E00", "of note": "#56B4E9", "not examined": "#999999"}
CONFIDENCE = {Severity.ERROR: 0.95, Severity.WARNING: 0.8, Severity.INFO: 0.6}
"""As the rules give it to what they prove by structure; a warning is a bet, and a note may be meant so."""
LIKELY = 0.6
"""Of a reason that is the likeliest and no more."""


@dataclass(frozen=True)
class Checked:
    """A check that was made."""

    check: Check
    outcome: Outcome
    seconds: float

    @property
    def mark(self) -> str:
        if self.outcome.passed is False and self.outcome.severity is not Severity.ERROR:
            return "warn" if self.outcome.severity is Severity.WARNING else "note"
        return MARKS[self.outcome.passed]

    @property
    def counts_as(self) -> str:
        """A note is neither passed nor failed."""
        outcome = self.outcome
        if outcome.passed is None:
            return "not examined"
        return "passed" if outcome.passed else "of note" if outcome.severity is Severity.INFO else "failed"

    def fitted(self, places: Sequence[Place], run: Run | None, folders: Sequence[str]) -> Checked:
        """Return the check with a fix that runs in the script, or with an example; `places` lie in the script."""
        outcome = self.outcome
        if outcome.fix is None:
            return self
        fix = fit_fix(outcome.fix, (*outcome.where, *places), run, folders)
        return replace(self, outcome=replace(outcome, fix=fix))

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.check.name,
            "passed": self.outcome.passed,
            "text": self.outcome.text,
            "seconds": round(self.seconds, 3),
            "asks": self.check.asks,
            "part": self.check.part,
            "severity": self.outcome.severity.value if self.outcome.passed is False else None,
            "diagnosis": self.outcome.diagnosis,
            "consequence_of": self.outcome.consequence_of,
            "figures": plain(self.outcome.figures),
            "evidence": [{"text": e.text} for e in self.outcome.evidence],
            "where": [asdict(place) for place in self.outcome.where],
            "fix": asdict(self.outcome.fix) if self.outcome.fix is not None else None,
            "finding": finding.to_dict() if (finding := self.finding) is not None else None,
        }

    @property
    def finding(self) -> Finding | None:
        """For a failure that the catalogue has a name for."""
        outcome = self.outcome
        rule = next((r.rule for r in catalogue() if r.rule.name == outcome.diagnosis), None)
        if outcome.passed is not False or rule is None or outcome.fix is None:
            return None
        return Finding(
            name=rule.name,
            code=rule.code,
            family=rule.family,
            severity=outcome.severity,
            confidence=CONFIDENCE[outcome.severity] if outcome.proven else LIKELY,
            title=outcome.text,
            summary=f"Found before training. What was asked: {self.check.asks}.",
            fix=outcome.fix,
            proof=Proof.STRUCTURE if outcome.proven else Proof.STATISTICS,
            consequence_of=outcome.consequence_of if outcome.consequence_of != rule.name else None,
            where=outcome.where,
            evidence=outcome.evidence,
        )


def read_outcome(told: dict[str, Any]) -> Outcome:
    """What other checks ask of one that was made in another process."""
    severity = Severity(told["severity"]) if told["severity"] else Severity.ERROR
    said = (told["passed"], told["text"], severity, told["diagnosis"])
    return Outcome(*said, figures=told["figures"], consequence_of=told["consequence_of"])


@dataclass
class Checklist(Result):
    """Of one training, in the order of the list."""

    checked: list[Checked]
    bottleneck: str | None = None
    """where the effort is to go: the model, the data or the throughput"""

    @property
    def failures(self) -> list[Checked]:
        found = [c for c in self.checked if c.outcome.passed is False]
        return sorted(found, key=lambda c: c.outcome.severity.rank)

    @property
    def passed(self) -> bool:
        """No error and no warning, and something was examined."""
        return bool(self._counted("passed")) and not self._counted("failed")

    def _counted(self, kind: str) -> list[Checked]:
        return [c for c in self.checked if c.counts_as == kind]

    def findings(self) -> list[Finding]:
        """The failures that the catalogue has a name for, worst first; what several checks see is told once."""
        found: dict[str, Finding] = {}
        for made in self.failures:
            if (finding := made.finding) is not None:
                found.setdefault(finding.name, finding)
        return list(found.values())

    def to_dict(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "checks": [c.to_dict() for c in self.checked],
            "findings": [f.to_dict() for f in self.findings()],
            "bottleneck": self.bottleneck,
        }

    def __str__(self) -> str:
        lines = []
        for part in PARTS:
            here = [c for c in self.checked if c.check.part == part]
            lines += [f"{part}", *(f"  {c.mark:4} {c.check.asks}: {c.outcome.text}" for c in here)] if here else []
        for made in self.failures:
            lines += ["", f"{made.mark}: {made.outcome.text}", *(f"  - {e.text}" for e in made.outcome.evidence)]
            if made.outcome.fix is not None:
                lines += [f"  fix: {made.outcome.fix.text}"]
                lines += [f"  {made.outcome.fix.lead}"] if made.outcome.fix.lead else []
                lines += [f"      {line}" for line in (made.outcome.fix.listing or "").splitlines()]
        passed, failed, notes, unknown = (len(self._counted(kind)) for kind in COLOURS)
        lines += ["", f"{passed} of {len(self.checked)} passed, {failed} failed"]
        lines[-1] += f", {notes} of note" if notes else ""
        lines[-1] += f", {unknown} not examined" if unknown else ""
        return "\n".join([*lines, *([self.bottleneck] if self.bottleneck else [])])

    def plot(self) -> Figure:
        figure = new_figure(self._title(), "seconds", "", height=120 + 22 * len(self.checked))
        for name, colour in COLOURS.items():
            here = self._counted(name)
            figure.add_bar(
                x=[c.seconds for c in here],
                y=[c.check.name for c in here],
                orientation="h",
                name=name,
                marker_color=colour,
                text=[c.outcome.text for c in here],
                textposition="none",
                hovertemplate="%{y}: %{text}<extra></extra>",
            )
        figure.update_yaxes(categoryorder="array", categoryarray=[c.check.name for c in reversed(self.checked)])
        return figure

    def _title(self) -> str:
        good, bad = len(self._counted("passed")), len(self._counted("failed"))
        if not good + bad:
            return f"None of {len(self.checked)} checks could tell"
        return f"{bad} of {good + bad} checks failed" if bad else f"All that was checked is well ({good})"
