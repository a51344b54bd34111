"""Groups of samples, how each fares against the rest, and which are worse beyond chance. Numpy only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.distributions.multiplicity import holm
from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.metrics import Estimate, Floats, Ints, effective, quantile, tail, wilson
from torchdoctor.instruments.evaluating.ranking import Bools, midranks
from torchdoctor.rules.curves import figure

MANY = 12
"""Numbers with more different values are cut into groups of equal size; fewer are a group each."""
MOST = 64
"""Groups of one attribute that are looked at, the largest of them."""
LEAST = 8
"""Samples below which a group, or its rest, is shown but not judged: it could not be told from chance."""


@dataclass(frozen=True)
class SliceScore:
    """One group against all other samples."""

    by: str
    name: str
    samples: int
    score: Estimate
    """share right, or mean absolute error of numbers"""
    rest: float
    chance: float
    """how likely a group that is no worse would fare so badly, all groups that were looked at taken into account"""
    worse: bool


def cut(by: str, values_N: NDArray[Any], parts: int) -> Iterator[tuple[str, Bools]]:
    """The groups of an attribute: of equal values, or of numbers that lie together."""
    if values_N.dtype.kind == "f":
        missing = np.isnan(values_N)
        if missing.any():
            yield f"{by} missing", missing
    else:
        missing = np.zeros(len(values_N), bool)
    known = values_N[~missing]
    distinct, counts = np.unique(known, return_counts=True)
    if values_N.dtype.kind in "iuf" and len(distinct) > MANY:
        edges = np.unique(np.quantile(known, np.arange(1, parts) / parts))
        at = np.searchsorted(edges, values_N, side="right")
        for part in range(len(edges) + 1):
            inside = (at == part) & ~missing
            if inside.any():
                held = values_N[inside]
                yield f"{by} {_span(float(held.min()), float(held.max()))}", inside
        return
    for value in distinct[np.sort(np.argsort(-counts, kind="stable")[:MOST])]:
        yield f"{by} = {_said(value)}", values_N == value


def _span(low: float, high: float) -> str:
    return figure(low) if low == high else f"{figure(low)} to {figure(high)}"


def _said(value: Any) -> str:
    return figure(float(value)) if isinstance(value, np.floating) else str(value)


def as_values(values: Any, name: str) -> NDArray[Any]:
    """One value a sample, whatever holds them."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise UsageError(f"slices by {name} have shape {array.shape}; they need one value a sample")
    if array.dtype.kind in "iufb":
        return array
    return array.astype(str)


def judge_slices(
    attributes: dict[str, NDArray[Any]],
    right_N: Floats,
    count_N: Floats,
    error_N: Floats | None,
    parts: int,
    level: float,
) -> list[SliceScore]:
    """Of each attribute's groups, the worst first. `error_N`: absolute errors, where numbers are predicted."""
    scored = []
    for by, values in attributes.items():
        for name, inside in cut(by, values, parts):
            judge = _judge_shares(right_N, count_N, inside, level) if error_N is None else None
            score, rest, chance = judge or _judge_errors(error_N, inside, level)  # type: ignore[arg-type]
            scored.append(SliceScore(by, name, int(inside.sum()), score, rest, chance, False))
    tested = [i for i, s in enumerate(scored) if math.isfinite(s.chance)]
    for i, chance in zip(tested, holm([scored[i].chance for i in tested]), strict=True):
        scored[i] = replace(scored[i], chance=chance, worse=chance < 1 - level)
    sign = 1 if error_N is None else -1
    return sorted(scored, key=lambda s: (not s.worse, sign * s.score.value))


def _judge_shares(right_N: Floats, count_N: Floats, inside: Bools, level: float) -> tuple[Estimate, float, float]:
    (right, count), (other, others) = (
        (float(right_N[part].sum()), float(count_N[part].sum())) for part in (inside, ~inside)
    )
    size = effective(right_N[inside], count_N[inside])
    score = wilson(right * size / count, size, level) if count else Estimate.bare(math.nan)
    rest = other / others if others else math.nan
    if min(inside.sum(), (~inside).sum()) < LEAST or not count or not others:
        return score, rest, math.nan
    if count_N.max() <= 1:
        wrong = round(count - right), round(count), round(count + others - right - other), round(count + others)
        return score, rest, fisher(*wrong)
    variance = sum(
        p * (1 - p) / effective(right_N[part], count_N[part])
        for part, p in ((inside, _kept_off(right / count, count)), (~inside, _kept_off(rest, others)))
    )
    return score, rest, tail((rest - right / count) / math.sqrt(variance))


def _kept_off(share: float, count: float) -> float:
    """Away from 0 and 1, where a normal distribution says nothing."""
    return min(max(share, 1 / (count + 2)), 1 - 1 / (count + 2))


def _judge_errors(error_N: Floats, inside: Bools, level: float) -> tuple[Estimate, float, float]:
    held, others = error_N[inside], error_N[~inside]
    mean = float(held.mean())
    half = quantile(level) * float(held.std(ddof=1)) / math.sqrt(len(held)) if len(held) > 1 else math.nan
    score = Estimate(mean, max(0.0, mean - half), mean + half, "normal")
    rest = float(others.mean()) if len(others) else math.nan
    if min(len(held), len(others)) < LEAST:
        return score, rest, math.nan
    return score, rest, rank_sum(held, others)


def fisher(wrong: int, size: int, all_wrong: int, total: int) -> float:
    """How likely a group of this size, drawn without regard to right or wrong, holds so many wrong ones or more."""
    logs = _log_factorials(total)
    hit = np.arange(wrong, min(size, all_wrong) + 1)
    hit = hit[(size - hit) <= total - all_wrong]

    def choose(n: int, k: Ints) -> Floats:
        return logs[n] - logs[k] - logs[n - k]

    whole = logs[total] - logs[size] - logs[total - size]
    return float(min(1.0, np.exp(choose(all_wrong, hit) + choose(total - all_wrong, size - hit) - whole).sum()))


@lru_cache(maxsize=2)
def _log_factorials(count: int) -> Floats:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])


def rank_sum(held: Floats, others: Floats) -> float:
    """How likely values that are no greater than the others would rank so high (Mann and Whitney 1947)."""
    both = np.concatenate([held, others])
    ranks, n, m = midranks(both), len(held), len(others)
    _, ties = np.unique(both, return_counts=True)
    above = float(ranks[:n].sum()) - n * (n + 1) / 2 - n * m / 2
    spread = n * m / 12 * (n + m + 1 - float((ties**3.0 - ties).sum()) / ((n + m) * (n + m - 1)))
    return tail((above - 0.5) / math.sqrt(spread)) if spread > 0 else 1.0
