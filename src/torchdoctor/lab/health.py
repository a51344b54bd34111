"""What is said of a network by the signal on its way forward and the gradient on its way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from torchdoctor.lab.station import Verdict
from torchdoctor.plots.activations import FLAT_ENDS
from torchdoctor.plots.layers import EVEN
from torchdoctor.rules.architecture.dead_relu import LEAST
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats

ALIKE = 1e-3
"""Share by which the units' gradients differ, below which all units of a layer learn the same."""

Look = Mapping[str, Any]
"""As computing.gradient_health.look gives it."""


def judge(start: Look, seen: Look) -> Verdict:
    """By a look before the training and one after it; the nearest cause first."""
    gradient = np.array(seen["gradient"], float)
    verdict = (
        _judge_overflow(gradient)
        or _judge_equality(start, seen)
        or _judge_head(seen)
        or _judge_outputs(seen)
        or _judge_reach(start, seen)
        or _judge_units(seen)
    )
    if verdict is not None:
        return verdict
    spread = float(gradient.max() / gradient.min())
    title = f"Gradients reach all {len(gradient)} layers, within a factor of {figure(spread)}"
    return Verdict("healthy" if spread <= EVEN else "info", title)


def _judge_overflow(gradient: Floats) -> Verdict | None:
    if np.isfinite(gradient).all():
        return None
    return Verdict(
        "error",
        "Values overflow: the gradients are not finite",
        "Use an initialisation that keeps the scale (He for ReLU), or normalise each layer.",
        "exploding-gradients",
    )


def _judge_equality(start: Look, seen: Look) -> Verdict | None:
    """Units that were all set to zero, or all to the same."""
    hidden = np.array(seen["gradient"][:-1], float)
    without = int((hidden == 0).sum())
    if without == len(hidden) and not start["size"][0]:
        return Verdict(
            "error",
            f"No gradient reaches {_of(without, len(hidden))}",
            "Start from random weights of the right scale; leave zero to biases.",
            "symmetric-initialization",
        )
    alike = int(((np.array(seen["between_units"]) < ALIKE) & (hidden > 0)).sum())
    if 2 * alike > len(hidden) - without:
        return Verdict(
            "error",
            f"All units get the same gradient in {_of(alike, len(hidden))}",
            "Start from random weights: equal units stay equal.",
            "symmetric-initialization",
        )
    return None


def _judge_head(seen: Look) -> Verdict | None:
    """The last layer is without a gradient where there is nothing left to learn, or where nothing comes in."""
    *hidden, last = seen["gradient"]
    if last == 0 and seen["loss"] == 0:
        return Verdict("info", "Every sample is fitted exactly: no gradient is left")
    if last != 0 or not any(hidden):  # without any, the hidden layers are where it is lost
        return None
    return Verdict(
        "error",
        "No gradient reaches the last layer: nothing but zeros comes in",
        "Start from random weights: what equal units put out, a normalisation takes away.",
        "symmetric-initialization",
    )


def _judge_outputs(seen: Look) -> Verdict | None:
    if max(seen["saturated"]) > FLAT_ENDS:
        return Verdict(
            "warning",
            f"{max(seen['saturated']):.0%} of a layer's outputs are saturated",
            "Smaller initial weights, or normalisation before the activation.",
            "saturated-activations",
        )
    if max(seen["size"]) > EVEN * max(seen["size"][0], 1.0):
        return Verdict(
            "warning",
            f"Outputs grow to {figure(max(seen['size']))} on the way through the layers",
            "Smaller initial weights, or normalisation.",
            "exploding-gradients",
        )
    return None


def _judge_reach(start: Look, seen: Look) -> Verdict | None:
    """How much of the last layer's gradient the first ones get."""
    gradient = np.array(seen["gradient"], float)
    hidden = gradient[:-1]
    without = int((hidden == 0).sum())
    if without:
        return Verdict(
            "error" if without == len(hidden) else "warning",
            f"No gradient reaches {_of(without, len(hidden))}",
            "Take ReLU or one of its relatives with He's initialisation, and normalise; lower the rate if they died in "
            "training.",
            "dead-relu" if all(start["gradient"]) else "vanishing-gradients",
        )
    ratio = float(gradient[-1] / hidden[0])
    if ratio > EVEN:
        return Verdict(
            "warning",
            f"Gradients shrink {figure(ratio)}-fold on the way from the last layer to the first",
            "Take ReLU or one of its relatives with He's initialisation; for many layers add residual connections or "
            "normalisation.",
            "vanishing-gradients",
        )
    if ratio < 1 / EVEN:
        return Verdict(
            "warning",
            f"Gradients grow {figure(1 / ratio)}-fold on the way from the last layer to the first",
            "Smaller initial weights, normalisation, or clipping by norm.",
            "exploding-gradients",
        )
    return None


def _judge_units(seen: Look) -> Verdict | None:
    if max(seen["dead"]) > LEAST:  # fewer are usual behind many shortcuts, and no run is reported for them
        return Verdict(
            "warning",
            f"{max(seen['dead']):.0%} of the units of a layer are dead",
            "Lower the rate, or take leaky ReLU, GELU or SiLU.",
            "dead-relu",
        )
    if not seen["spread"][-1] * EVEN >= seen["spread"][0]:
        return Verdict(
            "warning",
            "Gradients reach all layers, but the outputs hardly depend on the input any more",
            "Larger initial weights (He for ReLU), normalisation, or residual connections.",
        )
    return None


def _of(some: int, layers: int) -> str:
    return "the hidden layer" if layers == 1 else f"{some} of {layers} hidden layers"
