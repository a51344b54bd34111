"""What came of a replay, in the same words for the terminal, the report and the page."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from torchdoctor.facts import BirthFact
from torchdoctor.report.text import clean, count
from torchdoctor.rules import births

if TYPE_CHECKING:
    from torchdoctor.store.replays import Replayed

CHAIN_BEGINNING, CHAIN_END = 8, 3
"""Links of the way from the birth to the loss that are shown; the JSON has them all."""
SAMPLES_SHOWN = 16
GONE, BROKE, OPEN = "healthy", "error", "info"
"""How it is marked: the failure went away, it came again, or neither can be said."""


def conclude(replayed: Replayed) -> str:
    """One sentence."""
    if replayed.gone:
        past = f": no NaN or Inf in {count(replayed.passed, 'update')}" if replayed.passed else ""
        return f"The failure is gone{past}."
    if replayed.failed_at is not None:
        return f"It fails all the same, at step {replayed.failed_at}."
    if replayed.birth is None and replayed.raised is not None:
        return f"It fails again as it did: {clean(replayed.raised)}."
    if replayed.birth is None:
        return f"It did not fail again: {clean(replayed.reason or 'nothing was reported')}."
    if replayed.failed_step not in (None, replayed.step):
        return f"It was step {replayed.failed_step} that broke; it showed at step {replayed.step}."
    return "It fails again."


def birth_rows(birth: BirthFact) -> list[tuple[str, list[str]]]:
    """What is known of the first NaN or Inf: a label, and a line or several."""
    rows = [("born", [clean(births.words(birth)), *([clean(birth.code)] if birth.code else [])])]
    shapes = [*birth.shapes, *([[]] * len(birth.inputs))]
    for pair, shape in zip(birth.inputs, shapes, strict=False):
        low, high = (*pair, None, None)[:2]
        size = "x".join(map(str, shape)) or "a number"
        rows.append(("went in", [f"{size}, from {_figure(low)} to {_figure(high)}"]))
    dtype = f" ({clean(birth.dtype)})" if birth.dtype else ""
    rows.append(("came out", [f"{birth.count:,} of {birth.total:,} values are not finite{dtype}"]))
    if birth.samples:
        rows.append(("samples", [f"{', '.join(map(str, birth.samples[:SAMPLES_SHOWN]))} of the batch"]))
    if birth.chain:
        rows.append(("the way", [clean(link) for link in _shortened(birth.chain)]))
    noticed = "the loss" if birth.noticed == "loss" else f"the gradient of {clean(birth.noticed)}"
    return [*rows, ("noticed in", [noticed])]


def compare_words(replayed: Replayed) -> str:
    """Whether it was the same to the bit as in the run."""
    if replayed.losses and not replayed.compared:
        one = replayed.losses == 1
        steps = "The loss of the step before it" if one else f"The losses of the {replayed.losses} steps before it"
        if not replayed.apart:
            return f"{steps} {'is' if one else 'are'} the same to the bit as in the run."
        return f"{steps} agree{'s' if one else ''} with the run's to {replayed.apart:.1g} of the size, not to the bit."
    if not replayed.compared:
        return "The run itself did not find the birth, so there is nothing to compare with."
    if not replayed.differs:
        return "The same to the bit as in the run: operation, values, samples and counts."
    return f"Not the same to the bit as in the run: {clean(', '.join(replayed.differs))} differ."


def describe_replay(replayed: Replayed) -> dict[str, Any]:
    """For the templates."""
    birth = replayed.birth
    rows = [] if birth is None else birth_rows(birth)
    notes = [f"{clean(name)} had changed since the capture" for name in replayed.changed_sources]
    if replayed.from_start:
        notes.append("the script ran up to the step by itself")
    elif replayed.from_step is not None:
        notes.append(f"from the captured state before step {replayed.from_step} on")
    if birth is not None and not replayed.change:
        notes.append(compare_words(replayed))
    broke = birth is not None or replayed.raised is not None or replayed.failed_at is not None
    return {
        "when": moment(replayed.when),
        "step": f"{replayed.step:,}",
        "change": clean(replayed.change),
        "command": clean(" ".join(replayed.command)),
        "mark": GONE if replayed.gone else BROKE if broke else OPEN,
        "conclusion": conclude(replayed),
        "rows": rows,
        "notes": notes,
        "diagnosis": clean(replayed.diagnosis),
        "diagnosis_title": clean(replayed.diagnosis_title),
    }


def moment(seconds: float) -> str:
    """A time for people; nothing where it is none."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return ""


def _shortened(chain: list[str]) -> list[str]:
    """A recurrence goes the same way many times over."""
    if len(chain) <= CHAIN_BEGINNING + CHAIN_END + 1:
        return chain
    left_out = len(chain) - CHAIN_BEGINNING - CHAIN_END
    return [*chain[:CHAIN_BEGINNING], f"... {left_out} more operations ...", *chain[-CHAIN_END:]]


def _figure(value: float | None) -> str:
    return "NaN or Inf" if value is None else f"{value:.6g}"
