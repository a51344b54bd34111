"""The gradient-health monitor: what activation, initialisation, depth and shortcuts do to signal and gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torchdoctor.lab.figures import draw_losses
from torchdoctor.lab.station import Choices, Pick, Preset, Scale, Shown, Station, Switch
from torchdoctor.plots.activations import FLAT_ENDS, MANY_DEAD
from torchdoctor.plots.chart import Chart, axes, band, line
from torchdoctor.plots.layers import EVEN, positive
from torchdoctor.plots.palette import BLUE, GREEN, ORANGE, PURPLE, RED
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats

ALIKE = 1e-3
"""Share by which the units' gradients differ, below which all units of a layer learn the same."""
GUESS = math.log(8)
"""Loss of a constant guess among the classes."""

ACTIVATIONS = {
    "relu": "ReLU",
    "leaky-relu": "leaky ReLU",
    "gelu": "GELU",
    "silu": "SiLU (swish)",
    "elu": "ELU",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "none": "none: linear",
}
INITIALISATIONS = {
    "default": "PyTorch's default",
    "he": "He (Kaiming) normal",
    "xavier": "Xavier (Glorot) uniform",
    "lecun": "LeCun normal",
    "orthogonal": "orthogonal",
    "large": "normal, deviation 1",
    "small": "normal, deviation 0.01",
    "constant": "one constant",
    "zeros": "zeros",
}
NORMS = {"none": "none", "batch": "batch norm", "layer": "layer norm", "rms": "RMS norm"}
CONTROLS = (
    Pick("activation", "Activation", ACTIVATIONS, "relu"),
    Pick("init", "Initialisation", INITIALISATIONS, "he"),
    Scale("depth", "Hidden layers", 1, 50, 10),
    Scale("width", "Units in a layer", 8, 128, 64, step=8),
    Pick("norm", "Normalisation", NORMS, "none"),
    Switch("residual", "Residual connections", help="each layer's input is added to its output"),
    Scale("steps", "Train for so many steps", 0, 100, 0, step=10, help="plain descent with momentum at a rate of 0.05"),
    Scale("seed", "Seed", 0, 99, 0, help="another draw of weights and data"),
)
PRESETS = (
    Preset("ReLU, He", {}, "Gradients of about the same size in every layer: how it should look."),
    Preset(
        "ReLU, all zero",
        {"init": "zeros", "steps": 50},
        "Nothing gets through: every unit puts out zero, and no weight before the head gets a gradient.",
    ),
    Preset(
        "Sigmoid, ten layers",
        {"activation": "sigmoid", "init": "default", "steps": 50},
        "Each sigmoid passes on at most a quarter of the gradient: after ten layers nothing is left.",
    ),
    Preset(
        "Tanh, weights too large",
        {"activation": "tanh", "init": "large", "steps": 50},
        "Outputs sit at -1 and 1, where tanh is flat.",
    ),
    Preset(
        "ReLU, weights too small",
        {"init": "small", "steps": 50},
        "The signal shrinks from layer to layer, and the gradient with it.",
    ),
    Preset(
        "One constant",
        {"init": "constant", "activation": "tanh", "steps": 50},
        "All units of a layer get the same gradient and stay equal: a layer of 64 learns as much as one unit.",
    ),
    Preset(
        "Thirty layers, plain",
        {"init": "default", "depth": 30, "steps": 100},
        "PyTorch's default is meant for a few layers.",
    ),
    Preset(
        "The same, with residual connections and layer norm",
        {"init": "default", "depth": 30, "norm": "layer", "residual": True, "steps": 100},
        "The shortcut lets the gradient past every layer: this trains.",
    ),
)


def draw(choices: Choices, found: Mapping[str, Any]) -> Shown:
    start, end = found["start"], found["end"]
    losses = np.array(found["loss"], float)
    severity, title, advice, diagnosis = judge(start, end)
    charts = [
        draw_gradients(start, end, bool(len(losses))),
        draw_signal(end),
        draw_units(end, str(choices["activation"])),
    ]
    if len(losses):
        charts.append(draw_losses(losses, GUESS))
    figures = [
        ("gradient, first layer", figure(end["gradient"][0])),
        ("gradient, last layer", figure(end["gradient"][-1])),
        ("output, first layer", figure(end["size"][0])),
        ("output, last layer", figure(end["size"][-1])),
        ("loss", figure(float(losses[-1]) if len(losses) else end["loss"])),
    ]
    return Shown(severity, title, explain(choices), advice, diagnosis, figures, charts)


def judge(start: Mapping[str, Any], seen: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Severity, sentence, advice and the diagnosis it amounts to; the nearest cause first."""
    gradient, first = np.array(seen["gradient"], float), np.array(start["gradient"], float)
    hidden = gradient[:-1]
    if not np.isfinite(gradient).all():
        return (
            "error",
            "Values overflow: the gradients are not finite",
            "Use an initialisation that keeps the scale (He for ReLU), or normalise each layer.",
            "exploding-gradients",
        )
    without = int((hidden == 0).sum())
    if without == len(hidden) and not start["size"][0]:
        return (
            "error",
            f"No gradient reaches {_of(without, len(hidden))}",
            "Start from random weights of the right scale; leave zero to biases.",
            "symmetric-initialization",
        )
    alike = int(((np.array(seen["between_units"]) < ALIKE) & (hidden > 0)).sum())
    if 2 * alike > len(hidden) - without:
        return (
            "error",
            f"All units get the same gradient in {_of(alike, len(hidden))}",
            "Start from random weights: equal units stay equal.",
            "symmetric-initialization",
        )
    if max(seen["saturated"]) > FLAT_ENDS:
        return (
            "warning",
            f"{max(seen['saturated']):.0%} of a layer's outputs are saturated",
            "Smaller initial weights, or normalisation before the activation.",
            "saturated-activations",
        )
    if max(seen["size"]) > EVEN * max(seen["size"][0], 1.0):
        return (
            "warning",
            f"Outputs grow to {figure(max(seen['size']))} on the way through the layers",
            "Smaller initial weights, or normalisation.",
            "exploding-gradients",
        )
    if without:
        return (
            "error" if without == len(hidden) else "warning",
            f"No gradient reaches {_of(without, len(hidden))}",
            "Take ReLU or one of its relatives with He's initialisation, and normalise; lower the rate if they died in "
            "training.",
            "dead-relu" if first.all() else "vanishing-gradients",
        )
    ratio = float(gradient[-1] / hidden[0])
    if ratio > EVEN:
        return (
            "warning",
            f"Gradients shrink {figure(ratio)}-fold on the way from the last layer to the first",
            "Take ReLU or one of its relatives with He's initialisation; for many layers add residual connections or "
            "normalisation.",
            "vanishing-gradients",
        )
    if ratio < 1 / EVEN:
        return (
            "warning",
            f"Gradients grow {figure(1 / ratio)}-fold on the way from the last layer to the first",
            "Smaller initial weights, normalisation, or clipping by norm.",
            "exploding-gradients",
        )
    if max(seen["dead"]) > MANY_DEAD:
        return (
            "warning",
            f"{max(seen['dead']):.0%} of the units of a layer are dead",
            "Lower the rate, or take leaky ReLU, GELU or SiLU.",
            "dead-relu",
        )
    if _fades(seen):
        return (
            "warning",
            "Gradients reach all layers, but the outputs hardly depend on the input any more",
            "Larger initial weights (He for ReLU), normalisation, or residual connections.",
            "",
        )
    spread = float(gradient.max() / gradient.min())
    title = f"Gradients reach all {len(gradient)} layers, within a factor of {figure(spread)}"
    return "healthy" if spread <= EVEN else "info", title, "", ""


def _fades(seen: Mapping[str, Any]) -> bool:
    """How much outputs change from sample to sample falls far on the way through the layers."""
    first, last = seen["spread"][0], seen["spread"][-1]
    return not last * EVEN >= first


def explain(choices: Choices) -> str:
    parts = [
        f"{choices['depth']} layers of {choices['width']} units",
        ACTIVATIONS[str(choices["activation"])],
        INITIALISATIONS[str(choices["init"])],
    ]
    if choices["norm"] != "none":
        parts.append(NORMS[str(choices["norm"])])
    if choices["residual"]:
        parts.append("residual connections")
    when = f"after {choices['steps']} steps" if choices["steps"] else "before the first step"
    return f"{', '.join(parts)}; {when}."


def draw_gradients(start: Mapping[str, Any], end: Mapping[str, Any], trained: bool) -> Chart:
    values = positive(np.array(end["gradient"], float))
    names = _names(len(values))
    chart = Chart(
        "lab-gradients", _gradient_title(end), layout=axes("layer", "norm of the weight's gradient", log=True)
    )
    last = values[-1]
    if np.isfinite(last):
        shape, note = band(last / EVEN, last * EVEN, f"within {EVEN:g} times the last layer's")
        chart.layout |= {"shapes": [shape], "annotations": [note]}
    if trained:
        before = positive(np.array(start["gradient"], float))
        chart.data.append(line("before training", names, before, BLUE, dash="dot", width=1.5, mode="lines+markers"))
    chart.data.append(line("after training" if trained else "gradient", names, values, BLUE, mode="lines+markers"))
    chart.layout["xaxis"] |= {"type": "category"}
    return chart


def draw_signal(seen: Mapping[str, Any]) -> Chart:
    size, spread = (positive(np.array(seen[key], float)) for key in ("size", "spread"))
    names = _names(len(size) + 1)[:-1]
    chart = Chart("lab-signal", _signal_title(size, spread), layout=axes("layer", "size of the outputs", log=True))
    shape, note = band(0.1, 10.0, "usual: 0.1 to 10")
    chart.layout |= {"shapes": [shape], "annotations": [note]}
    chart.data.append(line("size (root mean square)", names, size, ORANGE, mode="lines+markers"))
    chart.data.append(line("change from sample to sample", names, spread, GREEN, mode="lines+markers"))
    chart.layout["xaxis"] |= {"type": "category"}
    return chart


def draw_units(seen: Mapping[str, Any], activation: str) -> Chart:
    dead, flat = np.array(seen["dead"], float), np.array(seen["saturated"], float)
    names = _names(len(dead) + 1)[:-1]
    worst = int(np.argmax(np.maximum(dead, flat)))
    if max(dead.max(), flat.max()) < 0.01:
        title = f"No unit is dead and no output saturated ({ACTIVATIONS[activation]})"
    elif dead.max() >= flat.max():
        title = f"{dead.max():.0%} of the units of layer {names[worst]} are zero for every sample"
    else:
        title = f"{flat.max():.0%} of the outputs of layer {names[worst]} lie where {activation} is flat"
    chart = Chart("lab-units", title, layout=axes("layer", "share", barmode="group"))
    for name, values, colour in (("dead units", dead, RED), ("saturated outputs", flat, PURPLE)):
        chart.data.append({"type": "bar", "name": name, "x": names, "y": values, "marker": {"color": colour}})
    chart.layout["yaxis"] |= {"range": [0, 1.02], "tickformat": ".0%"}
    chart.layout["xaxis"] |= {"type": "category"}
    return chart


def _gradient_title(seen: Mapping[str, Any]) -> str:
    first, last = seen["gradient"][0], seen["gradient"][-1]
    return f"Gradient of the first layer {figure(first)}, of the last {figure(last)}"


def _signal_title(size: Floats, spread: Floats) -> str:
    if not np.isfinite(size).all():
        return "The signal dies or overflows on its way"
    if not spread[-1] * EVEN >= spread[0]:
        return "What the network puts out hardly depends on its input any more"
    return f"Outputs: {figure(float(size[0]))} in the first layer, {figure(float(size[-1]))} in the last"


def _of(some: int, layers: int) -> str:
    return "the hidden layer" if layers == 1 else f"{some} of {layers} hidden layers"


def _names(layers: int) -> Sequence[str]:
    return [*(str(i + 1) for i in range(layers - 1)), "head"]


STATION = Station(
    "gradient-health",
    "Gradient-health monitor",
    "Choose a network and see what reaches its layers: the signal on the way forward, the gradient on the way back. "
    "Every change builds that network, runs it and measures it.",
    CONTROLS,
    PRESETS,
    draw,
)
