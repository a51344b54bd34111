"""What a pre-flight check found, as a list to read, a figure and a dictionary."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torchdoctor.checks.check import PARTS, Check, Outcome
from torchdoctor.findings import Finding, Proof, Severity
from torchdoctor.instruments.result import Result, new_figure, plain
from torchdoctor.rules import catalogue

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MARKS = {True: "ok", False: "FAIL", None: "-"}
COLOURS = {True: "#009E73", False: "#D55E00", None: "#999999"}


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
            confidence=0.95,
            title=outcome.text,
            summary=f"Found before training. What was asked: {self.check.asks}.",
            fix=outcome.fix,
            proof=Proof.STRUCTURE,
            where=outcome.where,
            evidence=outcome.evidence,
        )


def read_outcome(told: dict[str, Any]) -> Outcome:
    """What other checks ask of one that was made in another process."""
    severity = Severity(told["severity"]) if told["severity"] else Severity.ERROR
    return Outcome(told["passed"], told["text"], severity, told["diagnosis"], figures=told["figures"])


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
        """No error and no warning."""
        return not any(c.outcome.severity.at_least(Severity.WARNING) for c in self.failures)

    def findings(self) -> list[Finding]:
        """The failures that the catalogue has a name for, worst first."""
        return [finding for made in self.failures if (finding := made.finding) is not None]

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
                lines += [f"      {line}" for line in (made.outcome.fix.code or "").splitlines()]
        count = sum(c.outcome.passed is True for c in self.checked)
        notes = sum(c.outcome.severity is Severity.INFO for c in self.failures)
        lines += ["", f"{count} of {len(self.checked)} passed, {len(self.failures) - notes} failed"]
        lines[-1] += f", {notes} of note" if notes else ""
        return "\n".join([*lines, *([self.bottleneck] if self.bottleneck else [])])

    def plot(self) -> Figure:
        bad = len(self.failures)
        title = (
            f"{bad} of {len(self.checked)} checks failed"
            if bad
            else f"All that was checked is well ({len(self.checked)})"
        )
        figure = new_figure(title, "seconds", "", height=120 + 22 * len(self.checked))
        for passed, name in ((True, "passed"), (False, "failed"), (None, "not examined")):
            here = [c for c in self.checked if c.outcome.passed is passed]
            figure.add_bar(
                x=[c.seconds for c in here],
                y=[c.check.name for c in here],
                orientation="h",
                name=name,
                marker_color=COLOURS[passed],
                text=[c.outcome.text for c in here],
                textposition="none",
                hovertemplate="%{y}: %{text}<extra></extra>",
            )
        figure.update_yaxes(categoryorder="array", categoryarray=[c.check.name for c in reversed(self.checked)])
        return figure
