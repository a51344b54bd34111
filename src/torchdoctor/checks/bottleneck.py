"""One line at the end of the list: is it the model, the data, or the throughput that holds the training back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import DATA, MODEL, PROCEDURE, Outcome
from torchdoctor.checks.performing import all_checks
from torchdoctor.findings import Finding, Severity
from torchdoctor.rules.throughput.input_bound import TELL_SECONDS, TELL_SHARE

MEMORISE, COST = "memorise", "run-cost"
HARMLESS = ("repeated-start", "two-starts", "checkpoint-round-trip")
"""Of repetition and of resuming: what fails here holds no training back."""
WORDS = 140
"""Of the text of an outcome that the line takes over."""
HOLDERS = {DATA: "the data", MODEL: "the model", PROCEDURE: "the model's training"}
"""In the order of search: what is wrong with the data looks like a fault of everything after it."""


@dataclass(frozen=True)
class Suspect:
    holder: str
    severity: Severity
    outcome: Outcome
    others: int

    def __str__(self) -> str:
        count = "1 other check" if self.others == 1 else f"{self.others} other checks"
        more = f" ({count} of this part failed, too)" if self.others else ""
        return f"The bottleneck is {self.holder}: {_ended(f'{_shortened(self.outcome.text)}{more}')}"


def name_bottleneck(bench: Bench, proved: Sequence[Finding] = ()) -> str | None:
    """From what the checks found, and before it what the rules proved of the rehearsal; None where they say too
    little."""
    suspects = [s for part in HOLDERS if (s := _suspect(bench, part)) is not None]
    worst = min(suspects, key=lambda s: s.severity.rank, default=None)
    fault = _proved(bench, proved)
    if fault is None:
        return str(worst) if worst else _throughput(bench) or _standing(bench, proved) or _nothing(bench)
    if worst is None:
        return f"First mend {fault}"
    spoilt = worst.holder == HOLDERS[DATA] and worst.severity is Severity.ERROR
    return f"{worst} After that mend {fault}" if spoilt else f"First mend {fault} {worst}"


def _proved(bench: Bench, findings: Sequence[Finding]) -> str | None:
    """An error of the script's own steps that no check tells of as such."""
    grave = [o for o in bench.outcomes.values() if o.passed is False and o.severity is Severity.ERROR]
    told = {outcome.diagnosis for outcome in grave}
    found = next((f for f in findings if f.severity is Severity.ERROR and f.name not in told), None)
    if found is None:
        return None
    return f"{found.name}, seen in the script's own steps: {_ended(_shortened(found.title))}"


def _standing(bench: Bench, findings: Sequence[Finding]) -> str | None:
    """What else failed, or was seen in the script's own steps: nobody is told that nothing stands out beside it."""
    failed = [o for o in bench.outcomes.values() if o.passed is False and o.severity.at_least(Severity.WARNING)]
    told = [(f.severity, f.title) for f in findings if f.severity.at_least(Severity.WARNING)]
    told += [(outcome.severity, outcome.text) for outcome in failed]
    if not told:
        return None
    text = min(told, key=lambda pair: pair[0].rank)[1]
    return f"Neither model, data nor throughput stands out, but mend this: {_ended(_shortened(text))}"


def _suspect(bench: Bench, part: str) -> Suspect | None:
    """The worst of what failed in that part, with an error or a warning; a consequence is told with its cause."""
    names = [c.check.name for c in all_checks() if c.check.part == part and c.check.name not in HARMLESS]
    failed = [
        outcome
        for name in names
        if (outcome := bench.outcomes.get(name)) is not None
        and outcome.passed is False
        and outcome.severity.at_least(Severity.WARNING)
        and outcome.consequence_of is None
    ]
    if not failed:
        return None
    worst = min(failed, key=lambda outcome: outcome.severity.rank)
    return Suspect(HOLDERS[part], worst.severity, worst, len(failed) - 1)


def _throughput(bench: Bench) -> str | None:
    cost = bench.outcomes.get(COST)
    if cost is None:
        return None
    share, wait, step = (cost.figures.get(name) for name in ("data_share", "seconds_wait", "seconds_step"))
    if share is not None and wait is not None and step and share >= TELL_SHARE and wait >= TELL_SECONDS:
        return (
            f"The bottleneck is the throughput: {share:.0%} of a step waits for data ({1e3 * wait:.3g} of "
            f"{1e3 * step:.3g} ms), and nothing is wrong with data and model."
        )
    if cost.passed is False and cost.severity.at_least(Severity.WARNING):
        return f"The bottleneck is the throughput: {_ended(_shortened(cost.text))}"
    return None


def _nothing(bench: Bench) -> str | None:
    """Said only where the three were looked at, or two of them."""
    said = []
    names = [c.check.name for c in all_checks() if c.check.part == DATA]
    data = [bench.outcomes[name].passed for name in names if name in bench.outcomes]
    if data and all(data):
        said.append("the data checks pass")
    elif any(data) and False not in data:
        said.append(f"{sum(map(bool, data))} of {len(data)} data checks pass, the others could not be made")
    learned, cost = bench.outcomes.get(MEMORISE), bench.outcomes.get(COST)
    if learned is not None and learned.passed is False and learned.diagnosis is None:
        return f"No cause is proved, but mend this: {_ended(_shortened(learned.text))}"
    if learned is not None and learned.passed:
        steps = learned.figures.get("steps")
        said.append(f"one batch is learned by heart{f' in {steps} updates' if steps else ''}")
    share = cost.figures.get("data_share") if cost is not None else None
    if share is not None:
        said.append(f"{share:.0%} of a step waits for data")
    return f"No bottleneck stands out: {', '.join(said)}." if len(said) >= 2 else None


def _shortened(text: str) -> str:
    text = text.rstrip(".")
    return text if len(text) <= WORDS else f"{text[:WORDS].rsplit(' ', 1)[0]} ..."


def _ended(text: str) -> str:
    return text if text.endswith("...") else f"{text}."
