"""What stands on top of a page and in a line of the list: the gravest cause, or what a clean bill is worth."""

from __future__ import annotations

from dataclasses import dataclass

from torchdoctor.findings import Finding, Severity, Verdict
from torchdoctor.last_seen import RUNNING
from torchdoctor.report.endings import rank_headline
from torchdoctor.report.text import clean, count

HEALTHY, NONE = "healthy", "waiting"
FEW_STEPS = 20
"""Under this many updates most statistics have nothing to stand on."""
STUCK = "stuck-at-chance"
"""The symptom of a run that learns nothing; without a cause beside it there is nothing to call clean."""
GENERALISATION = ("overfitting", "inputs-and-labels-unrelated")
"""What cannot be judged without a validation loss, and users take a clean bill for."""


@dataclass(frozen=True)
class Headline:
    severity: str
    badge: str
    title: str
    summary: str = ""
    name: str = ""
    """of the diagnosis, where there is one"""


def headline_of(verdict: Verdict, steps: int | None = None) -> Headline:
    """Return what a verdict comes to; `steps` where the verdict does not know them."""
    worst = next((f for f in causes_of(verdict) if f.severity is not Severity.INFO), None)
    if worst is not None:
        name, severity = clean(worst.name), worst.severity.value
        return Headline(severity, f"{severity}: {name}", heading(worst.title), clean(worst.summary), name)
    lost = rank_headline(verdict.run)
    if lost is not None:
        return Headline(Severity.ERROR.value, "a rank was lost", lost, " ".join(_caveats(verdict, FEW_STEPS)))
    steps = int(verdict.run.get("steps") or 0) if steps is None else steps
    if not steps:
        return Headline(NONE, "nothing to examine", "No step can be read, so this is no clean bill")
    if not verdict.ending.is_sound or any(STUCK in finding.symptoms for finding in verdict.findings):
        return _without_cause(verdict, steps)
    badge = "no fault so far" if verdict.run.get("status") == RUNNING else "no fault found"
    title = f"No fault found in {count(steps, 'step')}; {_examined(verdict)}"
    return Headline(HEALTHY, badge, title, " ".join(_caveats(verdict, steps)))


def _without_cause(verdict: Verdict, steps: int) -> Headline:
    """Nothing was proved, and the end is bad or the loss was not understood: no clean bill."""
    ending = verdict.ending
    fault = ending.fault or ("" if ending.unseen else "the training loss is not clearly below that of a constant guess")
    unseen = f"The loss was not understood: {' and '.join(map(clean, ending.unseen))}." if ending.unseen else ""
    help_text = f"`torchdoctor explain {clean(ending.symptom or STUCK)}` lists possible causes." if fault else ""
    words = [unseen if fault else "", help_text, f"{_examined(verdict).capitalize()}.", *_caveats(verdict, steps)]
    badge = "no cause found" if fault else "no fault proved"
    title = f"No cause found, but {clean(fault)}" if fault else f"No fault was proved. {unseen.rstrip('.')}"
    return Headline(NONE, badge, f"{title} (after {count(steps, 'step')})", " ".join(w for w in words if w))


def _examined(verdict: Verdict) -> str:
    was = "was" if len(verdict.examined) == 1 else "were"
    return f"{count(len(verdict.examined), 'diagnosis', 'diagnoses')} {was} examined"


def causes_of(verdict: Verdict) -> list[Finding]:
    """The findings without those that follow from another."""
    names = {finding.name for finding in verdict.findings}
    return [f for f in verdict.findings if f.consequence_of not in names]


def heading(title: str) -> str:
    """As a heading begins: a word with a capital letter, a layer's name as it is."""
    said = clean(title)
    return said[:1].upper() + said[1:] if said.partition(" ")[0].isalpha() else said


def _caveats(verdict: Verdict, steps: int) -> list[str]:
    found = [f"Validation {verdict.ending.validation}."] if verdict.ending.validation else []
    if steps < FEW_STEPS:
        found.append("So few steps say little about rates, trends and dead units.")
    unknown = {missing.name for missing in verdict.not_examined}
    if any(name in unknown for name in GENERALISATION):
        found.append("No validation loss was seen, so nothing is said about how well it generalises.")
    return found
