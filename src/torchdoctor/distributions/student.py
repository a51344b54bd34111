"""Student's t, central and not: what tests and sample sizes are read off. Numpy and the standard library only."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

TINY, FRACTIONS, EXACT = 1e-300, 500, 1e-15
"""Of the continued fraction: what stands for zero, how many terms there are at most, and when it has settled."""
HALVINGS, SETTLED = 200, 1e-12
PANELS, NODES = 40, 20
REACH = 14.0
"""Standard deviations of the spread on either side that are integrated over; beyond them lies less than a double
can hold."""

Floats = NDArray[np.float64]


def t_cdf(t: float, df: float) -> float:
    """How likely Student's t with so many degrees of freedom is at most `t`."""
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    tail = 0.5 * incomplete_beta(df / 2, 0.5, df / (df + t * t))
    return 1.0 - tail if t > 0 else tail


def t_quantile(share: float, df: float) -> float:
    """The t that this share lies below."""
    if not 0.0 < share < 1.0:
        raise ValueError(f"a share lies between 0 and 1, not at {share}")
    if share < 0.5:
        return -t_quantile(1.0 - share, df)
    high = 1.0
    while t_cdf(high, df) < share:
        high *= 2.0
    return solve(lambda t: t_cdf(t, df) - share, 0.0, high)


def noncentral_t_cdf(t: float, df: float, shift: float) -> float:
    """The same for t about a true mean of `shift` standard errors: (Z + shift) / sqrt(chi2 / df)."""
    if math.isinf(t):
        return 1.0 if t > 0 else 0.0
    spread, weight = _spreads(df)
    return float(min(1.0, max(0.0, (weight * _normal_cdf(t * spread - shift)).sum())))


def solve(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that rises from `low` to `high` is zero, by halving."""
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if high - low <= SETTLED * max(1.0, abs(middle)):
            break
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return 0.5 * (low + high)


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised one, I_x(a, b), by Lentz's continued fraction."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )  # fmt: skip
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - front * _fraction(b, a, 1.0 - x) / b
    return front * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 / _off_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, FRACTIONS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        change = 1.0
        for term in (even, odd):
            d = 1.0 / _off_zero(1.0 + term * d)
            c = _off_zero(1.0 + term / c)
            change *= d * c
        value *= change
        if abs(change - 1.0) < EXACT:
            break
    return value


def _off_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY


@lru_cache(maxsize=64)
def _spreads(df: float) -> tuple[Floats, Floats]:
    """Values of sqrt(chi2 / df) and their weights, so that a sum over them is the integral."""
    width = REACH / math.sqrt(2.0 * df)
    edges = np.linspace(max(0.0, 1.0 - width), 1.0 + width, PANELS + 1)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = np.diff(edges) / 2
    at = (half[:, None] * nodes + (edges[:-1] + half)[:, None]).ravel()
    log_density = (
        math.log(2.0) + df / 2 * math.log(df / 2) - math.lgamma(df / 2) + (df - 1) * np.log(at) - df * at * at / 2
    )
    return at, (half[:, None] * weights).ravel() * np.exp(log_density)


def _normal_cdf(x: Floats) -> Floats:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2.0)) for v in x.tolist()])
