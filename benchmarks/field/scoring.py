"""Rates over outcomes, each with its interval: projects are drawn anew, since programs of one project are alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from field.outcomes import Outcome

DRAWS = 2000
LEVEL = 0.90
SEED = 20261119


class OfProject(Protocol):
    """A measurement on a program of a project."""

    @property
    def project(self) -> str: ...


M = TypeVar("M", bound=OfProject)


@dataclass(frozen=True)
class Estimate:
    """A figure with its 90% interval."""

    value: float
    low: float
    high: float
    count: int
    """outcomes that it rests on"""

    def percent(self) -> str:
        if not self.count:
            return "-"
        return f"{self.value:.0%} ({self.low:.0%} to {self.high:.0%}) of {self.count}"

    def ratio(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})" if self.count else "-"


def estimate(outcomes: Sequence[M], measure: Callable[[M], float], center: Callable[..., float] = np.mean) -> Estimate:
    """Return the mean (or another centre) of a measure, with a bootstrap over projects."""
    groups: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.project].append(float(measure(outcome)))
    if not groups:
        return Estimate(float("nan"), float("nan"), float("nan"), 0)
    values = [np.asarray(group) for group in groups.values()]
    random = np.random.default_rng(SEED)
    draws = random.integers(len(values), size=(DRAWS, len(values)))
    if center is np.mean:  # the same without a list of values for every draw
        sums, counts = np.array([[v.sum(), len(v)] for v in values]).T
        drawn = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
    else:
        drawn = np.array([center(np.concatenate([values[i] for i in row])) for row in draws])
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    everything = np.concatenate(values)
    return Estimate(float(center(everything)), float(low), float(high), len(everything))


@dataclass(frozen=True)
class Score:
    """How a tool did on a set of outcomes."""

    right_first: Estimate
    found: Estimate
    alarmed: Estimate
    time: Estimate
    """recorded by bare, median"""
    memory: Estimate
    """recorded less bare, median, in MB"""
    equal: Estimate
    """of those that repeat themselves bare"""
    failed: int
    """cases without a verdict"""
    attached: int
    """cases in which the tool found a training to watch"""


def score(outcomes: Iterable[Outcome]) -> Score:
    everything = list(outcomes)
    faults = [o for o in everything if not o.is_healthy]
    healthy = [o for o in everything if o.is_healthy]
    return Score(
        right_first=estimate(faults, lambda o: o.is_right_first),
        found=estimate(faults, lambda o: o.is_found),
        alarmed=estimate(healthy, lambda o: o.is_alarmed),
        time=estimate(everything, lambda o: o.recorded.seconds / o.bare.seconds, np.median),
        memory=estimate(everything, lambda o: o.recorded.megabytes - o.bare.megabytes, np.median),
        equal=estimate([o for o in everything if o.is_repeatable], lambda o: o.is_equal),
        failed=sum(o.verdict.error is not None for o in everything),
        attached=sum(o.verdict.is_attached for o in everything),
    )


def chance(outcomes: Sequence[Outcome]) -> Estimate:
    """Return the share right first where the labels of the faults are dealt out anew: what guessing would score."""
    faults = [o for o in outcomes if not o.is_healthy]
    random = np.random.default_rng(SEED)
    shares = []
    for _ in range(200):
        order = random.permutation(len(faults))
        dealt = [replace(o, accepted=faults[i].accepted) for o, i in zip(faults, order, strict=True)]
        shares.append(np.mean([o.is_right_first for o in dealt]) if dealt else float("nan"))
    low, high = np.quantile(shares, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if faults else (float("nan"),) * 2
    return Estimate(float(np.mean(shares)), float(low), float(high), len(faults))


def grouped(outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[key(outcome)].append(outcome)
    return dict(sorted(groups.items()))
