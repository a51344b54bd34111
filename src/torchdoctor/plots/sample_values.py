"""What is to be said of samples as a model gets them: their range, what is odd in it, and how two splits differ."""

from __future__ import annotations

from collections.abc import Sequence
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


def measure_values(samples: Sequence[Array], kind: str | None = None) -> Values:
    kind = kind or kind_of(samples[0])
    flat = [np.asarray(s, np.float64).ravel() for s in samples]
    whole = np.concatenate(flat) if flat else np.zeros(0)
    finite = whole[np.isfinite(whole)]
    bad = [int((~np.isfinite(values)).sum()) for values in flat]
    parts = [_by_feature(s, kind) for s in samples]
    low, high, mean, spread = (
        (float(finite.min()), float(finite.max()), float(finite.mean()), float(finite.std()))
        if len(finite)
        else (np.nan,) * 4
    )
    padding = padding_share(samples) if kind == TOKENS else None
    return Values(len(samples), low, high, mean, spread, sum(bad), sum(map(bool, bad)), *_profile(parts), padding)


def describe_splits(headings: Sequence[str], samples: Sequence[Sequence[Array]], kind: str) -> str:
    """The most telling thing about them, in a sentence; the first split is what others are held against."""
    values = [measure_values(split, kind) for split in samples]
    for heading, seen in zip(headings, values, strict=True):
        if seen.not_finite:
            named = f"{seen.holding} of {seen.samples} {heading} samples {'holds' if seen.holding == 1 else 'hold'}"
            return f"{named} NaN or infinity ({seen.not_finite:,} values)"
    for at in range(1, len(values)):
        told = _difference(headings[0], headings[at], samples[0], samples[at], values[0], values[at], kind)
        if told:
            return told
    return _oddity(headings, samples, values, kind) or _range(headings, values, kind)


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


def padding_share(samples: Sequence[Array]) -> float | None:
    """Of token ids: the run at the end of each that the longest such runs agree on; None where there is none."""
    ends = [int(s[-1]) for s in samples if s.size]
    ids, counts = np.unique(ends, return_counts=True)
    runs = {int(i): [_run_at_end(s, int(i)) for s in samples] for i in ids[counts > 1]}
    pad = max(runs, key=lambda i: sum(runs[i]), default=None)
    if pad is None or max(runs[pad]) < 2:
        return None
    return sum(runs[pad]) / max(1, sum(s.size for s in samples))


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


def _profile(parts: Sequence[Array]) -> tuple[Array, Array, Array]:
    if not parts or any(len(p) != len(parts[0]) for p in parts):
        return np.zeros(0), np.zeros(0), np.zeros(0)
    mean_SF, square_SF = (np.array([_nan_mean(p**power) for p in parts]) for power in (1, 2))
    mean_F = _nan_mean(mean_SF.T)
    spread_F = np.sqrt(np.maximum(_nan_mean(square_SF.T) - mean_F**2, 0.0))
    noise_F = np.sqrt(_nan_mean(((mean_SF - mean_F) ** 2).T) / max(1, len(parts) - 1))
    return mean_F, spread_F, noise_F


def _nan_mean(rows: Array) -> Array:
    """Of what is finite in each row; of a row without NaN."""
    known = np.isfinite(rows)
    total = np.where(known, rows, 0.0).sum(axis=-1)
    return np.divide(total, known.sum(axis=-1), out=np.full(len(rows), np.nan), where=known.any(axis=-1))


def _difference(
    one: str, other: str, first: Sequence[Array], second: Sequence[Array], a: Values, b: Values, kind: str
) -> str | None:
    shapes = {s.shape for s in first}, {s.shape for s in second}
    if kind != TOKENS and all(len(s) == 1 for s in shapes) and shapes[0] != shapes[1]:
        sizes = [" x ".join(map(str, next(iter(s)))) for s in shapes]
        return f"{_first(other)} samples are {sizes[1]}, {one} samples {sizes[0]}"
    if a.padding is not None and b.padding is not None and abs(a.padding - b.padding) > PADDED:
        return f"{b.padding:.0%} of the {other} positions are padding, {a.padding:.0%} of the {one} ones"
    at = describe_difference(a, b, kind)
    if at is not None:
        return _name_difference(one, other, a, b, kind, at)
    same = _shared(first, second)
    if same:
        return f"{same} of {len(second)} {other} samples looked at are also among the {one} samples"
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


def _oddity(headings: Sequence[str], samples: Sequence[Sequence[Array]], values: Sequence[Values], kind: str) -> str:
    for heading, split in zip(headings, samples, strict=True):
        if len(split) >= CERTAIN and all(np.array_equal(s, split[0]) for s in split[1:]):
            return f"All {len(split)} {heading} samples looked at are the same"
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


def _shared(first: Sequence[Array], second: Sequence[Array]) -> int:
    """Samples of both; short ones, and those of one value throughout, may be alike by chance."""
    seen = {(s.shape, s.tobytes()) for s in first if s.size >= TELLING and s.min() < s.max()}
    return sum((s.shape, s.tobytes()) in seen for s in second)


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1e5 else f"{value:.2e}"


def _first(text: str) -> str:
    return text[:1].upper() + text[1:]
