"""What the spread of a tensor's values is called, by the limits of the rule abnormal-distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.rules.architecture.depth import EMBEDDINGS
from torchdoctor.rules.architecture.symmetric_initialization import EQUAL
from torchdoctor.rules.hyperparameters.abnormal_distribution import (
    CENTRED,
    GIANT,
    HEAVY,
    LEAST_ELEMENTS,
    NO_TAIL,
    TWO_VALUED,
)
from torchdoctor.rules.hyperparameters.abnormal_distribution import (
    SPARSE as SPARSE_SHARE,
)
from torchdoctor.signals import STATISTICS

ORDINARY, COLLAPSED, SPARSE = "ordinary", "collapsed", "sparse"


@dataclass(frozen=True)
class Kind:
    abnormal: bool
    text: str


KINDS = {
    "non-finite": Kind(True, "torchdoctor.find_nonfinite says where."),
    COLLAPSED: Kind(
        True, "Their units all do the same, or nothing. Start them at random, unless a start at zero is meant (LoRA)."
    ),
    "heavy-tailed": Kind(
        True, "A few giants make up most of the norm; initialise with a bounded spread, clip gradients."
    ),
    "two-valued": Kind(True, "All magnitudes are equal, as if pressed against a limit; drop or widen the clamp."),
    "bimodal": Kind(False, "Their values lie in two heaps; usual for gates and binary weights, else worth a look."),
    SPARSE: Kind(False, "Many are exactly zero; fine if they were pruned on purpose."),
    "small": Kind(False, f"Fewer than {LEAST_ELEMENTS} elements are too few to judge a shape by."),
    ORDINARY: Kind(False, ""),
}

NEARLY_ZERO = 1e-3
"""Gain (root mean square times sqrt(fan in)) that lets a thousandth of the signal through; usual starts have 0.1 up."""
ONE_DIRECTION = 0.95
"""Share of the squared norm in one direction; random matrices of 16 rows have a third, trained ones at most a half."""
LEAST_SIDE = 8
"""Rows and columns below which one direction makes up much of any matrix."""
PRUNED = 0.1
"""Share of exact zeros that no usual start or training leaves."""
VALLEY, SECOND, HEAP, SURE = 0.5, 0.25, 0.1, 5.0
"""Of two heaps: the valley between them over the lower one, the lower over the higher one, the share of elements in
each, and by how many of its own standard deviations the lower one stands above the valley."""
ROUNDS = 12


@dataclass(frozen=True)
class Spread:
    """Figures as in the rule: exact zeros left out where a size is meant."""

    kind: str
    size: float
    """root mean square"""
    gain: float
    """root mean square of all elements times sqrt(fan in); NaN for embeddings"""
    peaked: float
    """mean magnitude over root mean square"""
    giant: float
    """largest magnitude over root mean square"""
    centre: float
    """mean over root mean square"""
    zeros: float
    nonfinite: int
    why: str = ""


def read_spread(
    row: NDArray[Any], shape: tuple[int, ...], module_type: str, counts: NDArray[np.int64], units: float, tensor: Tensor
) -> Spread:
    """`row` holds the statistics of signals.STATISTICS, `units` the largest difference between two rows."""
    found = dict(zip(STATISTICS, map(float, row), strict=True))
    number, share = math.prod(shape), 1 - found["zeros"]
    size = found["l2"] / math.sqrt(number * share) if share > 0 else 0.0
    peaked, giant, centre = (
        (found["absmean"] / share / size, found["absmax"] / size, found["mean"] / size) if size > 0 else (math.nan,) * 3
    )
    gain = size * math.sqrt(share * math.prod(shape[1:])) if module_type not in EMBEDDINGS else math.nan
    spread = Spread(ORDINARY, size, gain, peaked, giant, centre, found["zeros"], int(found["nonfinite"]))
    kind, why = _name(spread, number, module_type, counts, units, tensor)
    return Spread(kind, *(getattr(spread, f) for f in FIGURES), why)


FIGURES = ("size", "gain", "peaked", "giant", "centre", "zeros", "nonfinite")


def _name(
    spread: Spread, number: int, module_type: str, counts: NDArray[np.int64], units: float, tensor: Tensor
) -> tuple[str, str]:
    if spread.nonfinite:
        return "non-finite", ""
    if why := _collapse(spread, units, module_type, tensor):
        return COLLAPSED, why
    if number < LEAST_ELEMENTS:
        return "small", ""
    if spread.zeros >= PRUNED:
        return SPARSE, "" if spread.zeros >= SPARSE_SHARE else "pruned in part"
    if spread.peaked < HEAVY and spread.giant > GIANT and module_type not in EMBEDDINGS:
        return "heavy-tailed", ""
    if spread.peaked > TWO_VALUED and spread.giant < NO_TAIL and abs(spread.centre) < CENTRED:
        return "two-valued", ""
    return ("bimodal" if has_two_heaps(counts) else ORDINARY), ""


def _collapse(spread: Spread, units: float, module_type: str, tensor: Tensor) -> str:
    if spread.size == 0:
        return "all zero"
    if abs(abs(spread.centre) - 1) < EQUAL and spread.zeros == 0:
        return "all equal"
    if units <= EQUAL:
        return "all rows equal"
    if module_type in EMBEDDINGS:
        return ""
    if spread.gain < NEARLY_ZERO:
        return "nearly zero"
    share = leading_share(tensor)
    return f"{share:.0%} in one direction" if share > ONE_DIRECTION else ""


@torch.no_grad()
def leading_share(tensor: Tensor) -> float:
    """The largest singular value squared over the sum of all squares, by power iteration; 0 for narrow matrices."""
    matrix = tensor.detach().float().flatten(1)
    if min(matrix.shape) < LEAST_SIDE:
        return 0.0
    scale = matrix.abs().max()
    if not scale > 0:
        return 0.0
    matrix = matrix / scale
    vector = matrix[matrix.square().sum(1).argmax()]
    for _ in range(ROUNDS):
        vector = matrix.T @ (matrix @ (vector / vector.norm()))
    return float(vector.norm() / matrix.square().sum())


def has_two_heaps(counts: NDArray[np.int64]) -> bool:
    weights = np.array([1, 2, 3, 2, 1]) / 9
    heights, total = np.convolve(counts, weights, mode="same"), counts.sum()
    top = int(heights.argmax())
    for other in np.flatnonzero(heights >= SECOND * heights[top]):
        left, right = sorted((top, int(other)))
        if right - left < 3:
            continue
        bottom = left + int(heights[left : right + 1].argmin())
        lower = min(heights[left], heights[right])
        deep = heights[bottom] <= VALLEY * lower and lower - heights[bottom] > SURE * math.sqrt(lower)
        below = counts[: bottom + 1].sum() / total
        if deep and HEAP <= below <= 1 - HEAP:
            return True
    return False
