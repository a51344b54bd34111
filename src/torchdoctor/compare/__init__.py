"""Two runs beside each other: what differs in what was asked for, in where it ran, and in what it did.

Pure functions over Runs, no files and no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torchdoctor.compare.causes import find_changes
from torchdoctor.compare.records import FIRST_BATCH, Difference, compare_records
from torchdoctor.compare.traces import Deviation, compare_traces
from torchdoctor.facts import ComparisonFact
from torchdoctor.findings import SCHEMA, Finding
from torchdoctor.run import Run, Seen

__all__ = ["Comparison", "Deviation", "Difference", "compare", "with_baseline"]


@dataclass(frozen=True)
class Comparison:
    """How the second run differs from the first."""

    good: str
    bad: str
    differences: tuple[Difference, ...]
    deviations: tuple[Deviation, ...]
    """of the signals that differ at all, the earliest first"""
    same: tuple[str, ...]
    """signals that are equal bit for bit at every step both have"""

    @property
    def changes(self) -> list[str]:
        """What was changed, each thing once: an argument and what it sets are one change, whether or not it was given
        in both runs, and another seed brings another first batch."""
        return [change.name for change in find_changes(self.differences)]

    @property
    def first(self) -> Deviation | None:
        """The measured signal that differs earliest."""
        return next((d for d in self.deviations if d.is_result), None)

    @property
    def apart(self) -> Deviation | None:
        """The measured signal that leaves the other run's noise earliest; the loss where it is among several."""
        found = [d for d in self.deviations if d.apart_step is not None and d.is_result]
        return min(found, key=lambda d: (d.apart_step, not d.signal.startswith("loss")), default=None)

    @property
    def conclusion(self) -> str:
        return _conclude(self)

    def to_dict(self, findings: Sequence[Finding] = (), only_bad: Sequence[Finding] = ()) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "good": self.good,
            "bad": self.bad,
            "conclusion": self.conclusion,
            "changes": self.changes,
            "differences": [asdict(d) for d in self.differences],
            "signals": [asdict(d) for d in self.deviations],
            "same": list(self.same),
            "findings": [f.to_dict() for f in findings],
            "only_bad": [{"name": f.name, "severity": f.severity.value, "title": f.title} for f in only_bad],
        }


def compare(good: Run, bad: Run, names: tuple[str, str] = ("good", "bad")) -> Comparison:
    deviations, same = compare_traces(good, bad)
    return Comparison(*names, tuple(compare_records(good, bad)), tuple(deviations), tuple(same))


def with_baseline(run: Run, comparison: Comparison) -> Run:
    """The same run, together with how it differs from another, for rules that need two."""
    apart = comparison.apart
    fact = ComparisonFact(
        baseline=comparison.good,
        differences=[asdict(d) | {"set_by": setter} for d, setter in _with_setters(comparison.differences)],
        first_step=comparison.first.first_step if comparison.first else None,
        apart_step=apart.apart_step if apart else None,
        apart_signal=apart.signal if apart else None,
    )
    return replace(run, seen=(*run.seen, Seen(run.steps, fact)), _cache={})


def _with_setters(differences: Sequence[Difference]) -> list[tuple[Difference, str | None]]:
    """Pair each difference with the argument that somebody changed and that it follows from, if there is one."""
    set_by = {
        id(d): change.name
        for change in find_changes(differences)
        for d in change.differences
        if change.differences[0].part == "arguments"
    }
    return [(d, set_by.get(id(d))) for d in differences]


def _conclude(comparison: Comparison) -> str:
    changes, first, apart = comparison.changes, comparison.first, comparison.apart
    if first is None:
        effect = (
            f"the {len(comparison.same)} signals both have are equal bit for bit"
            if comparison.same
            else ("the runs have no signal in common, so what they did cannot be compared")
        )
    elif apart is None:
        effect = f"the runs differ from step {first.first_step} on ({first.label}), but stay within each other's noise"
    else:
        earlier = f"differ from step {first.first_step} on ({first.label}) and "
        is_later = first.first_step is not None and first.first_step < (apart.apart_step or 0)
        effect = (
            f"the runs {earlier if is_later else ''}part{' beyond their noise' if is_later else ''} "
            f"at step {apart.apart_step} ({apart.label})"
        )
    if not changes:
        unexplained = (
            ": something that is not recorded differs, such as unseeded randomness or the data" if first else ""
        )
        return f"Nothing recorded about configuration or environment differs, and {effect}{unexplained}."
    if changes == [FIRST_BATCH]:
        return f"The first batch differs (the random state was used differently, or the data), and {effect}."
    if len(changes) == 1:
        words = find_changes(comparison.differences)[0].words
        return f"One thing changed, {words}, and {effect}{': look there first' if apart else ''}."
    advice = "so it cannot be put down to one of them: change one thing at a time" if first else "without effect"
    return f"{len(changes)} things changed ({_few(changes)}), and {effect}, {advice}."


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 5 else f"{', '.join(names[:4])} and {len(names) - 4} others"
