"""Tails of the binomial distribution, for rules that ask whether so many hits among so many draws are chance."""

from __future__ import annotations

import numpy as np


def at_least(hits: float, draws: float, chance: float) -> float:
    """How likely so many hits or more are."""
    return _mass(draws, chance, round(hits), round(draws))


def at_most(hits: float, draws: float, chance: float) -> float:
    """How likely so many hits or fewer are."""
    return _mass(draws, chance, 0, round(hits))


def _mass(draws: float, chance: float, first: int, last: int) -> float:
    count = round(draws)
    if not 0.0 < chance < 1.0:
        raise ValueError(f"a chance lies between 0 and 1, not at {chance}")
    first, last = max(first, 0), min(last, count)
    if first > last:
        return 0.0
    hits = np.arange(count)
    odds = np.log((count - hits) / (hits + 1)) + np.log(chance / (1 - chance))
    logs = count * np.log1p(-chance) + np.concatenate([[0.0], np.cumsum(odds)])
    return min(1.0, float(np.exp(logs[first : last + 1]).sum()))
