"""Flat, saddle, minimum or slope: what the gradient and the ends of the Hessian's spectrum say about a place."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchdoctor.instruments.weight_space.hessian import Curvature
from torchdoctor.rules.curves import figure

REACH = 0.1
"""How far one looks, as a share of the weights' norm: about what the noise does that flat minima bear."""
SMALL_WEIGHT = 0.01
"""Weights that are smaller than this on average are taken as this large, so that zeros have a surrounding, too."""
FLAT = 0.01
"""Change of the loss within that reach, as a share of the loss, below which a place is flat."""
NOISE, JITTER = 0.2, 0.03
"""Or: noise of this size changes it by no more than that, and the gradient promises no more than this. On every plateau
a few directions curve, the output's bias first, and mini-batches keep the weights jittering along them."""
DESCENT = 0.1
"""Gain of the best single step along the gradient, as a share of the loss, from which on it is a slope."""
NEGATIVE = 0.05
"""Negative curvature over the largest: trained networks keep up to some hundredths of it at their minima (Sagun et al.
2017; Ghorbani et al. 2019), starts and saddles have tenths."""


@dataclass(frozen=True)
class CriticalPoint:
    kind: str
    """flat, saddle, minimum, maximum or slope"""
    text: str
    gain: float
    """by which the best single step along the gradient within reach lowers the loss"""
    negative: float
    """most negative curvature over the largest in size; 0 where there is none"""


def judge(
    loss: float, slope: float, weights: float, size: int, curvature: Curvature, noise: tuple[float, float]
) -> CriticalPoint:
    """`slope` and `weights` are the norms of the gradient and of the weights, `size` their number, and `noise` is a
    radius with the rise of the loss there."""
    reach = REACH * max(weights, SMALL_WEIGHT * math.sqrt(size))
    gain = _gain(slope, curvature.along_gradient, reach)
    steepest = max(abs(curvature.largest), abs(curvature.smallest))
    negative = -curvature.smallest / steepest if curvature.smallest + curvature.smallest_error < 0 else 0.0
    falls, level = negative * steepest * reach**2 / 2, abs(loss)
    change = max(steepest * reach**2 / 2, gain)
    shaken = abs(noise[1]) * (NOISE / noise[0]) ** 2
    if change <= FLAT * level:
        kind, text = "flat", _flat_words(change / level if level else 0.0)
    elif max(gain / JITTER, shaken / FLAT) <= level and negative <= NEGATIVE and weights > 0:
        kind, text = "flat", _nearly_flat_words(shaken / level, curvature)
    elif gain > DESCENT * level or gain > max(falls, JITTER * level):
        kind, text = "slope", _slope_words(gain / level if level else math.inf, negative, curvature)
    elif curvature.largest < -NEGATIVE * steepest:
        kind, text = "maximum", "Maximum: the loss curves down in every direction; any small push leads away."
    elif negative > NEGATIVE:
        kind, text = "saddle", _saddle_words(curvature, negative)
    else:
        kind, text = "minimum", _minimum_words(curvature, negative)
    return CriticalPoint(kind, text, gain, negative)


def _gain(slope: float, curvature: float, reach: float) -> float:
    """Of a parabola along the gradient, at its bottom or at the end of the reach."""
    step = min(reach, slope / curvature) if curvature > 0 else reach
    return slope * step - curvature * step**2 / 2


PLATEAU = (
    "A plateau looks like this (dead or saturated units, gradients that vanish on their way), and so does a model "
    "whose weights hardly matter."
)


def _flat_words(change: float) -> str:
    return (
        f"Flat: neither slope nor curvature changes the loss by more than {max(change, 0.001):.1%} within {REACH:.0%} "
        f"of the weights' norm. {PLATEAU}"
    )


def _nearly_flat_words(shaken: float, curvature: Curvature) -> str:
    return (
        f"Flat in nearly all directions: noise of {NOISE:.0%} in the weights changes the loss by no more than "
        f"{max(shaken, 0.001):.1%}, and there is hardly any slope; few directions curve (up to "
        f"{figure(curvature.largest)}). {PLATEAU}"
    )


def _slope_words(gain: float, negative: float, curvature: Curvature) -> str:
    how = f"{gain:.0%}" if gain < 1 else "more than there is of it, if it went on as it begins"
    also = f" It also curves down somewhere, {_relation(curvature, negative)}." if negative > NEGATIVE else ""
    return (
        "Slope: neither a minimum nor a saddle yet; the best single step along the gradient would lower the loss by "
        f"{how}.{also}"
    )


def _saddle_words(curvature: Curvature, negative: float) -> str:
    return (
        "Saddle: there is hardly any slope, but in one direction the loss curves down, "
        f"{_relation(curvature, negative)}. Noise, momentum or a larger rate leads away from it; waiting does not."
    )


def _relation(curvature: Curvature, negative: float) -> str:
    both = f"({figure(curvature.smallest)} and {figure(curvature.largest)})"
    if -curvature.smallest > curvature.largest:
        return f"more strongly than it curves up anywhere {both}"
    return f"with {negative:.0%} of the largest curvature {both}"


def _minimum_words(curvature: Curvature, negative: float) -> str:
    if negative == 0:
        return "Minimum: the loss curves down in no direction."
    return (
        f"Minimum, for all purposes: the most negative curvature ({figure(curvature.smallest)}) is {negative:.1%} of "
        "the largest, as trained networks have it."
    )
