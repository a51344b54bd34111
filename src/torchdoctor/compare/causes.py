"""Which differences are one change: what somebody set, and what the recorded values show to follow from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torchdoctor.compare.records import FIRST_BATCH, SCRIPT_FILE, Difference

ONE_THING = frozenset({"code", "data", "hardware", "environment", "seeds"})
"""Parts in which many differing entries are one change: a commit and its diff, a machine, a set of seeds."""
OUTCOMES = ("parameters", "trainable", "batches")
"""Counts that nobody sets: something else makes them what they are."""
SMALL_TALK = ("true", "false", "0.0", "1.0")
"""Values that many entries have: alone they do not show that two entries are one."""
LENGTHS = frozenset(
    {"seed", "epochs", "epoch", "steps", "iterations", "iters", "lr", "rate", "batch", "workers", "decay"}
)
"""In names of arguments that leave the model's size alone."""
STEM = 4
"""Letters at which two names begin alike if they speak of one thing: --compile and compiled."""


@dataclass
class Change:
    """One thing that somebody changed, under the name by which it was set, and all that differs with it."""

    name: str
    differences: list[Difference] = field(default_factory=list)
    guessed: list[str] = field(default_factory=list)
    """entries that follow from it by all that is known, though their values do not prove it"""

    @property
    def words(self) -> str:
        first = self.differences[0]
        if first.name != self.name:
            said = self.name
        elif first.part == "arguments" and None in (first.good, first.bad):
            said = self._tell_default(first)
        else:
            said = f"{first.name} from {first.good} to {first.bad}"
        return f"{said} (and {', '.join(self.guessed)} with it)" if self.guessed else said

    def _tell_default(self, argument: Difference) -> str:
        """What an argument that was not given stood for, where another entry tells it."""
        given = f"{argument.name} {argument.good or argument.bad}".removesuffix(" True")
        known = next((d for d in self.differences[1:] if None not in (d.good, d.bad) and _agrees(argument, d)), None)
        if known is None:
            return f"{given} ({'not given before' if argument.good is None else 'no longer given'})"
        if argument.good is None:
            return f"{argument.name} from {known.good} (its default) to {argument.bad}"
        return f"{argument.name} from {argument.good} to {known.bad} (its default)"


def find_changes(differences: Sequence[Difference]) -> list[Change]:
    """Each thing once, arguments first; what nobody sets is looked at last, when all its possible causes are known."""
    outcomes = [d for d in differences if _is_outcome(d)]
    changes = [Change(d.name, [d]) for d in differences if d.part == "arguments"]
    for each in differences:
        if each.part != "arguments" and each not in outcomes:
            cause = _setter(each, changes)
            if cause is None and (cause := _rate_of_default(each, changes)) is not None:
                cause.guessed.append(each.name)
            _put(each, cause, changes)
    shaping = [c for c in changes if c.name == "code" or (len(c.differences) == 1 and _may_shape(c.differences[0]))]
    for each in outcomes:
        cause = _setter(each, changes) or _origin(each, changes)
        if cause is None and shaping and not each.name.endswith(" batches"):
            cause = shaping[0]
            cause.guessed.append(each.name)
        _put(each, cause, changes)
    return changes


def _put(each: Difference, cause: Change | None, changes: list[Change]) -> None:
    if cause is not None:
        cause.differences.append(each)
        return
    changes.append(Change(each.part if each.part in ONE_THING and each.name != FIRST_BATCH else each.name, [each]))


def _is_outcome(each: Difference) -> bool:
    return each.name == FIRST_BATCH or (each.part == "configuration" and each.name.endswith(OUTCOMES))


def _setter(each: Difference, changes: Sequence[Change]) -> Change | None:
    """The change that an entry belongs to by its value, or by standing in a part that is one thing."""
    arguments = [c for c in changes if c.differences[0].part == "arguments"]
    for fits in (_is_same, _agrees, _sets_rate, _speaks_of):
        for change in arguments:
            if fits(change.differences[0], each):
                return change
    if each.part in ONE_THING and each.name != FIRST_BATCH:
        return next((c for c in changes if any(d.part == each.part for d in c.differences)), None)
    for change in changes:
        own = [d for d in change.differences if d.part == each.part]
        if any(_is_same(d, each) or _scales(d, each) or _comes_with(d, each) for d in own):
            return change
    return None


def _origin(each: Difference, changes: Sequence[Change]) -> Change | None:
    """What makes an outcome what it is: another seed the first batch, a batch size the number of batches."""
    if each.name == FIRST_BATCH:
        return next((c for c in changes if any(d.part in ("seeds", "data") for d in c.differences)), None)
    own = [(c, d) for c in changes for d in c.differences if _owner(d) == _owner(each)]
    if each.name.endswith(" batches"):
        sizes = [(c, d) for c, d in own if d.name.endswith(("batch size", "samples"))]
        return sizes[0][0] if len(sizes) == 2 or (sizes and _counts(sizes[0][1], each)) else None
    return next((c for c, d in own if d.name.endswith((" type", *OUTCOMES))), None)


def _is_same(one: Difference, other: Difference) -> bool:
    """From the same value to the same; of yes and no, and of what is there or not, only under a like name."""
    if (plain(one.good), plain(one.bad)) != (plain(other.good), plain(other.bad)):
        return False
    return not _says_little(one) or _is_like(one.name, other.name)


def _agrees(argument: Difference, entry: Difference) -> bool:
    """An argument that was left out on one side has its default there, which the entry tells; the other side agrees."""
    sides = [(argument.good, entry.good), (argument.bad, entry.bad)]
    given = [(a, e) for a, e in sides if a is not None]
    if len(given) != 1 or given[0][1] is None or plain(given[0][0]) != plain(given[0][1]):
        return False
    return plain(given[0][0]) not in SMALL_TALK or _is_like(argument.name, entry.name)


def _sets_rate(argument: Difference, entry: Difference) -> bool:
    """--lr and a rate that a schedule begins with: both change by one factor."""
    return _is_rate(argument) and entry.name.endswith("lr") and _is_close(_ratio(argument), _ratio(entry))


def _rate_of_default(entry: Difference, changes: Sequence[Change]) -> Change | None:
    """Return the change of a learning rate that was given in one run only, for a rate that depends on it."""
    if not entry.name.endswith("lr") or None in (entry.good, entry.bad):
        return None
    arguments = (c for c in changes if c.differences[0].part == "arguments")
    return next((c for c in arguments if _is_rate(d := c.differences[0]) and None in (d.good, d.bad)), None)


def _is_rate(argument: Difference) -> bool:
    words = re.split(r"[^a-z]+", argument.name.lower())
    return "lr" in words or {"learning", "rate"} <= set(words)


def _speaks_of(argument: Difference, entry: Difference) -> bool:
    """--scheduler cosine and a CosineAnnealingLR; another script and its text."""
    if argument.name == "script":
        return entry.name == SCRIPT_FILE
    chosen = [v for v in (entry.good, entry.bad) if v is not None]
    is_name = all(isinstance(v, str) for v in chosen) and entry.part in ("configuration", "data")
    return is_name and not _is_number(argument) and _is_like(argument.name, entry.name)


def _comes_with(one: Difference, other: Difference) -> bool:
    """A hyperparameter that only one of two optimizers has, or that a scheduler adds."""
    if None not in (other.good, other.bad):
        return False
    is_optimizer = re.fullmatch(r"optimizer( \S+)?", one.name) is not None
    if is_optimizer and isinstance(one.good, str) and isinstance(one.bad, str):
        return other.name.startswith(f"{one.name} ")
    return one.name.startswith("scheduler") and other.name.startswith("optimizer") and other.name.endswith("_lr")


def _scales(one: Difference, other: Difference) -> bool:
    """Rates that a schedule derives from each other: all by the same factor."""
    return one.name.endswith("lr") and other.name.endswith("lr") and _is_close(_ratio(one), _ratio(other))


def _ratio(each: Difference) -> float | None:
    try:
        return float(each.bad) / float(each.good)
    except (TypeError, ValueError, ZeroDivisionError):
        return None


def _is_close(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one - other) <= 1e-6 * abs(one)


def _counts(sizes: Difference, batches: Difference) -> bool:
    """Whether batches of this size, or of so many samples, make these numbers of batches: both sides then speak of the
    same samples or of the same size, up to a last batch that is not full."""
    try:
        (b, d), (v, w) = ((int(x.good), int(x.bad)) for x in (batches, sizes))
    except (TypeError, ValueError):
        return False
    if sizes.name.endswith("batch size"):
        return (b - 1) * v < (d + 1) * w and (d - 1) * w < (b + 1) * v
    return v * (d - 1) < w * (b + 1) and w * (b - 1) < v * (d + 1)


def _may_shape(argument: Difference) -> bool:
    """A number or a flag may change the model's size or the use of random numbers; a path does not, nor what says how
    long, how fast or from which seed it trains."""
    if argument.part != "arguments" or LENGTHS.intersection(re.split(r"[^a-z]+", argument.name.lower())):
        return False
    return _is_number(argument) or True in (argument.good, argument.bad)


def _owner(each: Difference) -> str:
    """model, train loader: whose entry it is."""
    return re.sub(r" (batch size|\S+)$", "", each.name)


def _says_little(each: Difference) -> bool:
    return all(value is None or isinstance(value, bool) for value in (each.good, each.bad))


def _is_number(each: Difference) -> bool:
    return all(value is None or _number(value) is not None for value in (each.good, each.bad))


def _is_like(one: str, other: str) -> bool:
    words = [[w.casefold() for w in re.findall(r"[A-Za-z]+", name) if len(w) >= STEM] for name in (one, other)]
    return any(a[:STEM] == b[:STEM] for a in words[0] for b in words[1])


def plain(value: Any) -> str:
    """So that the argument "0.10" and the rate 0.1 are one value, and "adam" and Adam."""
    number = _number(value)
    return repr(number) if number is not None else str(value).casefold()


def _number(value: Any) -> float | None:
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
