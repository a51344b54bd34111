"""What is said of a network by the signal on its way forward and the gradient on its way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from torchdoctor.lab.station import Choices, Verdict
from torchdoctor.plots.activations import FLAT_ENDS
from torchdoctor.plots.layers import EVEN
from torchdoctor.rules.architecture.dead_relu import LEAST
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats

ALIKE = 1e-3
"""Share by which the units' gradients differ, below which all units of a layer learn the same."""

Look = Mapping[str, Any]
"""As computing.gradient_health.look gives it."""


REMEDIES: Mapping[str, tuple[str, Callable[[Choices], bool]]] = {
    "relu": ("ReLU or one of its relatives", lambda c: c["activation"] in ("sigmoid", "tanh", "none")),
    "leaky": ("leaky ReLU, GELU or SiLU", lambda c: c["activation"] == "relu"),
    "he": ("He's initialisation", lambda c: c["init"] != "he"),
    "random": ("random weights of the right scale, as He's", lambda c: c["init"] in ("constant", "zeros")),
    "smaller": ("smaller initial weights", lambda c: c["init"] not in ("small", "zeros")),
    "larger": ("larger initial weights", lambda c: c["init"] not in ("large", "he")),
    "norm": ("normalisation", lambda c: c["norm"] == "none"),
    "residual": ("residual connections", lambda c: not c["residual"]),
    "fewer": ("fewer layers", lambda c: float(c["depth"]) > 1),
}
"""What helps, and whether it is still to be chosen."""


def judge(start: Look, seen: Look, choices: Choices, has_learned: bool) -> Verdict:
    """By a look before the training and one after it; the nearest cause first."""
    gradient = np.array(seen["gradient"], float)
    verdict = (
        _judge_overflow(gradient, choices)
        or _judge_equality(start, seen, choices)
        or _judge_head(seen, choices)
        or _judge_outputs(seen, choices)
        or _judge_loss_on_the_way(start, seen, choices)
        or _judge_evenness(gradient, choices, has_learned)
        or _judge_units(seen, choices)
    )
    if verdict is not None:
        return verdict
    spread = float(gradient.max() / gradient.min())
    title = f"Gradients reach all {len(gradient)} layers, within a factor of {figure(spread)}"
    return Verdict("healthy" if spread <= EVEN else "info", title)


def _judge_overflow(gradient: Floats, choices: Choices) -> Verdict | None:
    if np.isfinite(gradient).all():
        return None
    return Verdict(
        "error",
        "Values overflow: the gradients are not finite",
        _advise(choices, "smaller", "norm", "fewer"),
        "exploding-gradients",
    )


def _judge_equality(start: Look, seen: Look, choices: Choices) -> Verdict | None:
    """Units that were all set to zero, or all to the same."""
    hidden = np.array(seen["gradient"][:-1], float)
    without = int((hidden == 0).sum())
    if without == len(hidden) and not start["size"][0]:
        return Verdict(
            "error",
            f"No gradient reaches {_of(without, len(hidden))}",
            _advise(choices, "random", "he"),
            "symmetric-initialization",
        )
    alike = int(((np.array(seen["between_units"]) < ALIKE) & (hidden > 0)).sum())
    if 2 * alike > len(hidden) - without:
        return Verdict(
            "error",
            f"All units get the same gradient in {_of(alike, len(hidden))}",
            _advise(choices, "random", "fewer"),
            "symmetric-initialization",
        )
    return None


def _judge_head(seen: Look, choices: Choices) -> Verdict | None:
    """The last layer is without a gradient where there is nothing left to learn, or where nothing comes in."""
    *hidden, last = seen["gradient"]
    if last == 0 and seen["loss"] == 0:
        return Verdict("info", "Every sample is fitted exactly: no gradient is left")
    if last != 0 or not any(hidden):  # without any, the hidden layers are where it is lost
        return None
    return Verdict(
        "error",
        "No gradient reaches the last layer: nothing but zeros comes in",
        _advise(choices, "random", "he"),
        "symmetric-initialization",
    )


def _judge_outputs(seen: Look, choices: Choices) -> Verdict | None:
    if max(seen["saturated"]) > FLAT_ENDS:
        return Verdict(
            "warning",
            f"{max(seen['saturated']):.0%} of a layer's outputs are saturated",
            _advise(choices, "smaller", "norm", "relu"),
            "saturated-activations",
        )
    if max(seen["size"]) > EVEN * max(seen["size"][0], 1.0):
        return Verdict(
            "warning",
            f"Outputs grow to {figure(max(seen['size']))} on the way through the layers",
            _advise(choices, "smaller", "norm", "fewer"),
            "exploding-gradients",
        )
    return None


def _judge_loss_on_the_way(start: Look, seen: Look, choices: Choices) -> Verdict | None:
    """Layers that get no gradient at all."""
    hidden = np.array(seen["gradient"][:-1], float)
    without = int((hidden == 0).sum())
    if not without:
        return None
    return Verdict(
        "error" if without == len(hidden) else "warning",
        f"No gradient reaches {_of(without, len(hidden))}",
        _advise(choices, "relu", "leaky", "he", "norm", "residual", "fewer"),
        "dead-relu" if all(start["gradient"]) else "vanishing-gradients",
    )


def _judge_evenness(gradient: Floats, choices: Choices, has_learned: bool) -> Verdict | None:
    """How much of the last layer's gradient the first ones get; no fault in a network that has learned with it."""
    ratio = float(gradient[-1] / gradient[0])
    if 1 / EVEN <= ratio <= EVEN:
        return None
    verb = f"shrink {figure(ratio)}-fold" if ratio > 1 else f"grow {figure(1 / ratio)}-fold"
    title = f"radients {verb} on the way from the last layer to the first"
    if has_learned:
        return Verdict("info", f"It learns, though g{title}")
    if ratio > 1:
        advice = _advise(choices, "relu", "he", "residual", "norm", "fewer")
        return Verdict("warning", f"G{title}", advice, "vanishing-gradients")
    return Verdict("warning", f"G{title}", _advise(choices, "smaller", "norm", "fewer"), "exploding-gradients")


def _judge_units(seen: Look, choices: Choices) -> Verdict | None:
    if max(seen["dead"]) > LEAST:  # fewer are usual behind many shortcuts, and no run is reported for them
        return Verdict(
            "warning",
            f"{max(seen['dead']):.0%} of the units of a layer are dead",
            _advise(choices, "leaky", "norm", "fewer"),
            "dead-relu",
        )
    if not seen["spread"][-1] * EVEN >= seen["spread"][0]:
        return Verdict(
            "warning",
            "Gradients reach all layers, but the outputs hardly depend on the input any more",
            _advise(choices, "larger", "norm", "residual", "fewer"),
        )
    return None


def _advise(choices: Choices, *names: str) -> str:
    """What of these is not chosen yet; fewer layers only where nothing else is left."""
    left = [text for name in names for text, is_open in [REMEDIES[name]] if is_open(choices)]
    if REMEDIES["random"][0] in left:  # which He's are
        left = [text for text in left if text != REMEDIES["he"][0]]
    if len(left) > 1 and "fewer" in names:
        left = [text for text in left if text != REMEDIES["fewer"][0]]
    return f"Try {', '.join(left[:-1])}{' or ' * (len(left) > 1)}{left[-1]}." if left else ""


def _of(some: int, layers: int) -> str:
    return "the hidden layer" if layers == 1 else f"{some} of {layers} hidden layers"
