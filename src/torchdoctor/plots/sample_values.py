"""What is to be said of samples as a model gets them: their range, what is odd in it, and how two splits differ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from torchdoctor.plots.sample_kinds import IMAGE, SERIES, TABLE, TOKENS, Array, channels_axis, curves_of, kind_of
from torchdoctor.rules.curves import figure

APART = 0.5
"""Difference of two means, in spreads, that a picture shows at a glance."""
BEYOND_CHANCE = 5.0
"""The same in standard errors: a few samples differ, and many channels or columns are compared."""
WIDER = 2.0
"""Ratio of two spreads; ToTensor left out is 255, a normalisation left out 2 to 5."""
CERTAIN = 3
"""Samples of a split from which on two are compared."""
UNEVEN = 1000.0
"""Ratio of the spreads of two columns of a table from which on the smaller hardly counts without scaling."""
TELLING = 8
"""Numbers of a sample from which on two are not alike by chance."""
PADDED = 0.2
"""Difference of the shares of padding of two splits."""


@dataclass(frozen=True)
class Values:
    """Of the samples of one split."""

    samples: int
    low: float
    high: float
    mean: float
    spread: float
    not_finite: int
    holding: int
    """samples with a value that is not finite"""
    means: Array
    """by channel or column, over samples and places"""
    spreads: Array
    errors: Array
    """standard error of the mean, from that of each sample"""
    padding: float | None = None
    """share of the positions of token ids after a sample's end"""

    @property
    def span(self) -> str:
        return f"{_number(self.low)} to {_number(self.high)}"


class Measure:
    """Takes samples one after the other, and holds none of them."""

    def __init__(self, kind: str | None = None) -> None:
        self.kind = kind or TABLE
        self._is_told = kind is not None
        self.samples = self._bad = self._holding = 0
        self.shapes: dict[tuple[int, ...], None] = {}
        self.prints: list[bytes] = []
        """of the samples: alike ones have the same"""
        self.telling: set[bytes] = set()
        """those of samples that are not alike by chance: neither short nor of one value throughout"""
        self._low, self._high = np.inf, -np.inf
        self._whole = _Moments(1)
        self._by_feature: _Moments | None = None
        self._is_ragged = False
        """samples have different numbers of channels or columns"""
        self._ends: list[tuple[int, int, int]] = []
        """of token ids: the last, how often it stands at the end, and how many there are"""

    def add(self, sample: Array) -> None:
        if not self.samples and not self._is_told:
            self.kind = kind_of(sample)
        self.samples += 1
        self.shapes[sample.shape] = None
        values = np.asarray(sample, np.float64)
        known = values[np.isfinite(values)]
        self._bad += values.size - known.size
        self._holding += known.size < values.size
        low, high = float(known.min(initial=np.inf)), float(known.max(initial=-np.inf))
        self._low, self._high = min(self._low, low), max(self._high, high)
        self._whole.add(known.reshape(1, -1), by_value=True)
        self._note_print(sample, low < high)
        if self.kind == TOKENS and sample.size:
            last = int(sample.reshape(-1)[-1])
            self._ends.append((last, _run_at_end(sample.reshape(-1), last), sample.size))
        parts = _by_feature(values, self.kind)
        self._by_feature = self._by_feature or _Moments(len(parts))
        self._is_ragged |= len(parts) != self._by_feature.size
        if not self._is_ragged:
            self._by_feature.add(parts)

    def _note_print(self, sample: Array, varies: bool) -> None:
        whole = np.ascontiguousarray(sample)
        mark = hashlib.blake2b(whole.view(np.uint8) if whole.ndim else whole.tobytes(), digest_size=16)
        mark.update(f"{sample.shape} {sample.dtype}".encode())
        self.prints.append(mark.digest())
        if sample.size >= TELLING and varies:
            self.telling.add(self.prints[-1])

    @property
    def values(self) -> Values:
        none = np.zeros(0)
        parts = self._by_feature if not self._is_ragged else None
        profile = (parts.mean, parts.spread, parts.error) if parts is not None else (none, none, none)
        low, high = (self._low, self._high) if self._low <= self._high else (np.nan, np.nan)
        whole = float(self._whole.mean[0]), float(self._whole.spread[0])
        padding = _padding_share(self._ends) if self.kind == TOKENS else None
        return Values(self.samples, low, high, *whole, self._bad, self._holding, *profile, padding)


class _Moments:
    """Mean and spread of each of some features, sample by sample, without the squares of large numbers."""

    def __init__(self, size: int) -> None:
        self.size, self._samples = size, 0
        self._weight, self._mean, self._between, self._within = (np.zeros(size) for _ in range(4))

    def add(self, rows_FP: Array, by_value: bool = False) -> None:
        """What is finite in each row; samples count alike, or by how many values they have."""
        known = np.isfinite(rows_FP)
        count = known.sum(axis=1)
        here = count > 0
        if not here.any():
            return
        self._samples += 1
        first = rows_FP[np.arange(len(rows_FP)), known.argmax(axis=1)]  # of a constant nothing but 0 is left
        with np.errstate(all="ignore"):
            apart = np.where(known, rows_FP - first[:, None], 0.0)
            middle = apart.sum(axis=1) / np.maximum(count, 1)
            inside = np.where(known, (apart - middle[:, None]) ** 2, 0.0).sum(axis=1) / np.maximum(count, 1)
            weight = np.where(here, count if by_value else 1, 0)
            total = self._weight + weight
            step = np.where(here, first + middle - self._mean, 0.0)
            share = weight / np.maximum(total, 1)
            self._between += step**2 * self._weight * share
            self._within += np.where(here, inside, 0.0) * weight
            self._mean += step * share
        self._weight = total

    @property
    def mean(self) -> Array:
        return np.where(self._weight > 0, self._mean, np.nan)

    @property
    def spread(self) -> Array:
        return np.sqrt(self._over(self._between + self._within))

    @property
    def error(self) -> Array:
        """Standard error of the mean, from the means of the samples."""
        return np.sqrt(self._over(self._between) / max(1, self._samples - 1))

    def _over(self, total: Array) -> Array:
        return np.where(self._weight > 0, total / np.maximum(self._weight, 1), np.nan)


def measure_samples(samples: Iterable[Array], kind: str | None = None) -> Measure:
    measured = Measure(kind)
    for sample in samples:
        measured.add(np.asarray(sample))
    return measured


def describe_splits(headings: Sequence[str], splits: Sequence[Measure]) -> str:
    """The most telling thing about them, in a sentence; the first split is what others are held against."""
    values, kind = [split.values for split in splits], splits[0].kind
    for heading, seen in zip(headings, values, strict=True):
        if seen.not_finite:
            named = f"{seen.holding} of {seen.samples} {heading} samples {'holds' if seen.holding == 1 else 'hold'}"
            return f"{named} NaN or infinity ({seen.not_finite:,} values)"
    for at in range(1, len(values)):
        told = _difference(headings[0], headings[at], splits[0], splits[at], values[0], values[at])
        if told:
            return told
    return _oddity(headings, splits, values, kind) or _range(headings, values, kind)


def describe_difference(first: Values, other: Values, kind: str) -> int | None:
    """The channel or column in which two splits differ most, beyond chance; None where they are alike."""
    if min(first.samples, other.samples) < CERTAIN or first.means.shape != other.means.shape or kind == TOKENS:
        return None
    spread = np.sqrt((first.spreads**2 + other.spreads**2) / 2)
    with np.errstate(all="ignore"):
        shift = np.abs(first.means - other.means)
        far = np.where(shift > 0, shift / spread, 0.0)
        sure = np.where(shift > 0, shift / np.hypot(first.errors, other.errors), 0.0)
        ratio = np.maximum(first.spreads, other.spreads) / np.minimum(first.spreads, other.spreads)
    wider = np.where(np.isfinite(ratio) & (kind != TABLE), ratio, 1.0)
    found = ((far > APART) & (sure > BEYOND_CHANCE)) | (wider > WIDER)
    return int(np.argmax(np.where(found, np.maximum(far, wider), -1.0))) if found.any() else None


def _padding_share(ends: Sequence[tuple[int, int, int]]) -> float | None:
    """Of token ids: the run at the end of each that the longest such runs agree on; None where there is none."""
    ids, counts = np.unique([last for last, _, _ in ends], return_counts=True)
    runs = {int(i): [run for last, run, _ in ends if last == i] for i in ids[counts > 1]}
    pad = max(runs, key=lambda i: sum(runs[i]), default=None)
    if pad is None or max(runs[pad]) < 2:
        return None
    return sum(runs[pad]) / max(1, sum(size for _, _, size in ends))


def _run_at_end(sample: Array, pad: int) -> int:
    others = np.flatnonzero(sample != pad)
    return int(sample.size - 1 - others[-1]) if len(others) else int(sample.size)


def _by_feature(sample: Array, kind: str) -> Array:
    """Features x values of it: channels of pictures and curves, columns of a table."""
    sample = np.asarray(sample, np.float64)
    if kind == TABLE:
        return sample.reshape(-1, 1)
    if kind == SERIES and sample.ndim <= 2:
        return curves_of(sample)
    axis = channels_axis(sample) if kind == IMAGE else None
    return sample.reshape(1, -1) if axis is None else np.moveaxis(sample, axis, 0).reshape(sample.shape[axis], -1)


def _difference(one: str, other: str, first: Measure, second: Measure, a: Values, b: Values) -> str | None:
    kind, shapes = first.kind, (first.shapes, second.shapes)
    if kind != TOKENS and all(len(s) == 1 for s in shapes) and shapes[0] != shapes[1]:
        sizes = [" x ".join(map(str, next(iter(s)))) for s in shapes]
        return f"{_first(other)} samples are {sizes[1]}, {one} samples {sizes[0]}"
    if a.padding is not None and b.padding is not None and abs(a.padding - b.padding) > PADDED:
        return f"{b.padding:.0%} of the {other} positions are padding, {a.padding:.0%} of the {one} ones"
    at = describe_difference(a, b, kind)
    if at is not None:
        return _name_difference(one, other, a, b, kind, at)
    same = sum(mark in first.telling for mark in second.prints)
    if same:
        return f"{same} of {second.samples} {other} samples looked at are also among the {one} samples"
    return None


def _name_difference(one: str, other: str, a: Values, b: Values, kind: str, at: int) -> str:
    ranges = f"{_first(other)} inputs lie in {b.span}, {one} inputs in {a.span}"
    low, high = sorted((a.high - a.low, b.high - b.low))
    if kind != TABLE and high > WIDER * low:
        return ranges
    means = [f"{_number(v.means[at])} (spread {_number(v.spreads[at])})" for v in (b, a)]
    if len(a.means) == 1:
        return f"{_first(other)} inputs are {means[0]} on average, {one} inputs {means[1]}"
    where = f"{'column' if kind == TABLE else 'channel'} {at}"
    return f"{_first(where)} is {means[0]} on average in {other}, {means[1]} in {one}"


def _oddity(headings: Sequence[str], splits: Sequence[Measure], values: Sequence[Values], kind: str) -> str:
    for heading, split in zip(headings, splits, strict=True):
        if split.samples >= CERTAIN and len(set(split.prints)) == 1:
            return f"All {split.samples} {heading} samples looked at are the same"
    first, heading = values[0], headings[0]
    still = np.flatnonzero(first.spreads == 0) if first.samples >= CERTAIN else np.zeros(0, int)
    if kind != TOKENS and len(still) and len(first.spreads) > 1:
        named = "column" if kind == TABLE else "channel"
        which = ", ".join(map(str, still[:5])) + (" ..." if len(still) > 5 else "")
        are = f"{_first(named)} {which} is" if len(still) == 1 else f"{len(still)} {named}s ({which}) are each"
        return f"{are} one constant in all {first.samples} {heading} samples looked at"
    moving = first.spreads[first.spreads > 0]
    if kind == TABLE and len(moving) > 1 and moving.max() > UNEVEN * moving.min():
        large, small = int(first.spreads.argmax()), int(np.where(first.spreads > 0, first.spreads, np.inf).argmin())
        ratio = figure(moving.max() / moving.min())
        return f"Column {large} is spread {ratio} times as far as column {small}: they are not scaled alike"
    return ""


def _range(headings: Sequence[str], values: Sequence[Values], kind: str) -> str:
    first = values[0]
    alike = f", alike in {' and '.join(headings)}" if len(values) > 1 else ""
    if kind == TOKENS:
        padded = f"; {first.padding:.0%} of the positions are padding" if first.padding else ""
        return f"Token ids lie in {_union(values)}{padded}{alike}"
    mean = f"mean {_number(first.mean)}, spread {_number(first.spread)}"
    return f"Inputs lie in {_union(values)} as the model gets them ({mean}){alike}"


def _union(values: Sequence[Values]) -> str:
    return f"{_number(min(v.low for v in values))} to {_number(max(v.high for v in values))}"


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1e5 else f"{value:.2e}"


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]
