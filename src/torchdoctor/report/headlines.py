"""What stands on top of a page and in a line of the list: the gravest cause, or what a clean bill is worth."""

from __future__ import annotations

from dataclasses import dataclass

from torchdoctor.findings import Finding, Severity, Verdict
from torchdoctor.report.endings import rank_headline
from torchdoctor.report.text import clean, count

HEALTHY, NONE = "healthy", "waiting"
FEW_STEPS = 20
"""Under this many updates most statistics have nothing to stand on."""
STUCK = "stuck-at-chance"
"""The symptom of a run that learns nothing; without a cause beside it there is nothing to call clean."""
BROKEN = "not finite"
"""The trend, in summary's words, of a loss that is NaN or infinite."""
UNEXPLAINED = "The loss is NaN or infinite, and nothing that was examined says why: this is no clean bill"
RUNNING = "running"
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


def headline_of(verdict: Verdict, steps: int | None = None, trend: str | None = None) -> Headline:
    """`steps` where the verdict does not know them; `trend` of the loss, as summary has it."""
    worst = next((f for f in causes_of(verdict) if f.severity is not Severity.INFO), None)
    if worst is not None:
        name, severity = clean(worst.name), worst.severity.value
        return Headline(severity, f"{severity}: {name}", heading(worst.title), clean(worst.summary), name)
    lost = rank_headline(verdict.run)
    if lost is not None:
        return Headline(Severity.ERROR.value, "a rank was lost", lost, " ".join(_caveats(verdict, FEW_STEPS)))
    steps = int(verdict.run.get("steps") or 0) if steps is None else steps
    if not steps:
        return Headline(NONE, "nothing to examine", "No step of it can be read, so this is no clean bill")
    if trend == BROKEN:
        return Headline(
            NONE, "no cause found", UNEXPLAINED, "torchdoctor explain nan-at-first-step and nan-later walk the causes."
        )
    if any(STUCK in finding.symptoms for finding in verdict.findings):
        title = f"The loss never left a constant guess, and nothing in {count(steps, 'step')} says why"
        return Headline(NONE, "no cause found", title, f"torchdoctor explain {STUCK} walks the causes.")
    badge = "no fault so far" if verdict.run.get("status") == RUNNING else "no fault found"
    examined = count(len(verdict.examined), "diagnosis", "diagnoses")
    was = "was" if len(verdict.examined) == 1 else "were"
    title = f"No fault found in {count(steps, 'step')}; {examined} {was} examined"
    return Headline(HEALTHY, badge, title, " ".join(_caveats(verdict, steps)))


def causes_of(verdict: Verdict) -> list[Finding]:
    """The findings without those that follow from another."""
    names = {finding.name for finding in verdict.findings}
    return [f for f in verdict.findings if f.consequence_of not in names]


def heading(title: str) -> str:
    """As a heading begins: a word with a capital letter, a layer's name as it is."""
    said = clean(title)
    return said[:1].upper() + said[1:] if said.partition(" ")[0].isalpha() else said


def _caveats(verdict: Verdict, steps: int) -> list[str]:
    found = []
    if steps < FEW_STEPS:
        found.append("So few steps say little about rates, trends and dead units.")
    unknown = {missing.name for missing in verdict.not_examined}
    if any(name in unknown for name in GENERALISATION):
        found.append("No validation loss was seen, so nothing is said about how well it generalises.")
    return found
