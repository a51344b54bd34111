"""What a handful of seeds can tell: mean and interval, a paired test, the size of an effect, seeds that it would take.

Pure functions of numbers. Pairs are runs of two variants with the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from torchdoctor.distributions.student import noncentral_t_cdf, solve, t_cdf, t_quantile
from torchdoctor.errors import UsageError

LEVEL = 0.95
POWER = 0.8
"""How often a difference that is there is to be found: Cohen's convention, used by Colas et al. for seeds, too."""
EXACT_PAIRS = 16
"""Up to so many pairs every way of flipping signs is tried: 65,536; beyond that as many are drawn."""
DRAWS = 1 << EXACT_PAIRS
MOST_SEEDS = 10_000
FAR = 60.0
"""Standard errors beyond the observed t within which the ends of an effect's interval are looked for."""


@dataclass(frozen=True)
class Spread:
    """Values of one metric over seeds."""

    n: int
    mean: float
    sd: float | None
    """with n - 1; None for a single value"""
    low: float | None
    high: float | None
    """Student's interval of the mean"""
    least: float
    most: float


@dataclass(frozen=True)
class Paired:
    """A second variant against a first, pair by pair; differences are second minus first."""

    n: int
    difference: float
    sd: float
    low: float
    high: float
    """Student's interval of the difference"""
    t: float
    p: float
    """two-sided, of the paired t test"""
    p_flips: float
    """two-sided, of the sign-flip permutation test: no normal distribution is taken for granted"""
    least_p_flips: float
    """the least that this test can give for so many pairs"""
    effect: float
    """Cohen's d of the differences, with Hedges' correction for few of them"""
    effect_low: float
    effect_high: float
    share_better: float
    """of the pairs in which the second is the larger; a tie is half of one"""
    seeds_needed: int | None
    """for this difference to be found in 80 of 100 attempts; None if more than MOST_SEEDS"""

    @property
    def told_apart(self) -> bool:
        """The interval leaves out zero."""
        return not self.low <= 0.0 <= self.high


def summarise(values: Sequence[float], level: float = LEVEL) -> Spread:
    """Of finite numbers, at least one."""
    x = _finite(values)
    mean, n = float(x.mean()), len(x)
    if n < 2:
        return Spread(n, mean, None, None, None, mean, mean)
    sd = float(x.std(ddof=1))
    half = t_quantile(0.5 + level / 2, n - 1) * sd / math.sqrt(n)
    return Spread(n, mean, sd, mean - half, mean + half, float(x.min()), float(x.max()))


def compare_pairs(first: Sequence[float], second: Sequence[float], level: float = LEVEL) -> Paired:
    """Of at least two pairs."""
    if len(first) != len(second):
        raise UsageError(f"pairs are needed, and there are {len(first)} values and {len(second)}")
    d = _finite(second) - _finite(first)
    n = len(d)
    if n < 2:
        raise UsageError("a paired test needs at least two seeds that both variants finished with")
    mean, sd = float(d.mean()), float(d.std(ddof=1))
    if sd <= np.finfo(float).eps * float(np.abs(d).max(initial=0.0)) * n:
        sd = 0.0  # equal differences, up to rounding
    error = sd / math.sqrt(n)
    t = mean / error if error else math.copysign(math.inf, mean) if mean else 0.0
    half = t_quantile(0.5 + level / 2, n - 1) * error
    effect, effect_low, effect_high = effect_size(t, n, level)
    return Paired(
        n=n,
        difference=mean,
        sd=sd,
        low=mean - half,
        high=mean + half,
        t=t,
        p=2.0 * t_cdf(-abs(t), n - 1),
        p_flips=flip_signs(d),
        least_p_flips=2.0 / 2 ** min(n, EXACT_PAIRS),
        effect=effect,
        effect_low=effect_low,
        effect_high=effect_high,
        share_better=float(((d > 0) + 0.5 * (d == 0)).mean()),
        seeds_needed=seeds_needed(effect, alpha=1.0 - level),
    )


def flip_signs(differences: Sequence[float] | np.ndarray) -> float:
    """The share of all ways to flip the pairs' signs that give a mean as far from zero as the one at hand, or farther.
    The signs of one half of them mirror the other's, so the first stays as it is."""
    d = np.asarray(differences, np.float64)
    n = len(d)
    if n <= EXACT_PAIRS:
        codes = np.arange(1 << (n - 1))
        signs = 1.0 - 2.0 * ((codes[:, None] >> np.arange(n)) & 1)
        added = 0
    else:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(DRAWS, n))
        added = 1
    sums = np.abs(signs @ d)
    observed = abs(float(d.sum()))
    reached = int((sums >= observed - 1e-12 * float(np.abs(d).sum())).sum())
    return (reached + added) / (len(signs) + added)


def effect_size(t: float, n: int, level: float = LEVEL) -> tuple[float, float, float]:
    """d of n differences from their t: the estimate, corrected for few of them, and the ends of its interval, which are
    the d for which t lies at the edge of what is expected."""
    if math.isinf(t):
        return t, t, t
    df, root = n - 1, math.sqrt(n)
    correction = math.exp(math.lgamma(df / 2) - math.lgamma((df - 1) / 2)) / math.sqrt(df / 2) if df > 1 else 1.0
    tail = (1.0 - level) / 2
    reach = FAR + abs(t)
    low = solve(lambda shift: 1.0 - noncentral_t_cdf(t, df, shift) - tail, t - reach, t + reach)
    high = solve(lambda shift: tail - noncentral_t_cdf(t, df, shift), t - reach, t + reach)
    return correction * t / root, low / root, high / root


@lru_cache(maxsize=4096)
def power(effect: float, n: int, alpha: float = 1.0 - LEVEL) -> float:
    """How often a two-sided paired t test of n pairs finds an effect of that size."""
    if n < 2:
        return 0.0
    edge, shift = t_quantile(1.0 - alpha / 2, n - 1), abs(effect) * math.sqrt(n)
    return 1.0 - noncentral_t_cdf(edge, n - 1, shift) + noncentral_t_cdf(-edge, n - 1, shift)


def seeds_needed(effect: float, wanted: float = POWER, alpha: float = 1.0 - LEVEL) -> int | None:
    """The fewest pairs with which an effect of that size is found so often; None if more than MOST_SEEDS."""
    if effect == 0.0 or math.isnan(effect):
        return None
    if math.isinf(effect):
        return 2
    high = 2
    while power(effect, high, alpha) < wanted:
        if high > MOST_SEEDS:
            return None
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(effect, middle, alpha) >= wanted else (middle, high)
    return max(high, 2) if high <= MOST_SEEDS else None


def detectable(n: int, wanted: float = POWER, alpha: float = 1.0 - LEVEL) -> float:
    """The least effect, in standard deviations of the differences, that n pairs find so often."""
    if n < 2:
        return math.inf
    high = 1.0
    while power(high, n, alpha) < wanted:
        high *= 2.0
    return solve(lambda effect: power(effect, n, alpha) - wanted, 0.0, high)


def noise_of_one(sd: float, n: int, level: float = LEVEL) -> float:
    """How far two single runs of the same program may lie apart for no other reason than their seeds, where the
    standard deviation was estimated from n of them."""
    return t_quantile(0.5 + level / 2, n - 1) * sd * math.sqrt(2.0)


def _finite(values: Sequence[float]) -> np.ndarray:
    x = np.asarray(values, np.float64)
    if not len(x) or not np.isfinite(x).all():
        raise UsageError("statistics need at least one value, and finite ones; leave out runs that failed")
    return x
