"""The gradient-health monitor: what activation, initialisation, depth and shortcuts do to signal and gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torchdoctor.lab.figures import draw_losses, learned, mark_zeros, tell_stuck
from torchdoctor.lab.health import judge
from torchdoctor.lab.station import Choices, Pick, Preset, Scale, Shown, Station, Switch
from torchdoctor.plots.chart import Chart, axes, band, line
from torchdoctor.plots.layers import EVEN, positive
from torchdoctor.plots.palette import BLUE, GREEN, ORANGE, PURPLE, RED
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats

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
    has_learned = bool(len(losses)) and learned(losses, GUESS)
    verdict, text = judge(start, end, choices, has_learned), explain(choices)
    severity = verdict.severity
    if severity == "healthy" and len(losses) and not has_learned:
        severity = "info"
        text += f" The gradients are well, the loss is not: {tell_stuck(losses, GUESS)}."
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
    return Shown(severity, verdict.title, text, verdict.advice, verdict.diagnosis, figures, charts)


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
        shape, note = band(last / EVEN, last * EVEN, f"within {EVEN:g} times the last layer's", "left")
        chart.layout |= {"shapes": [shape], "annotations": [note]}
    if trained:
        before = positive(np.array(start["gradient"], float))
        chart.data.append(line("before training", names, before, BLUE, dash="dot", width=1.5, mode="lines+markers"))
    chart.data.append(line("after training" if trained else "gradient", names, values, BLUE, mode="lines+markers"))
    mark_zeros(chart, names, np.array(end["gradient"], float))
    chart.layout["xaxis"] |= {"type": "category"}
    return chart


def draw_signal(seen: Mapping[str, Any]) -> Chart:
    size, spread = (np.array(seen[key], float) for key in ("size", "spread"))
    names = _names(len(size) + 1)[:-1]
    chart = Chart("lab-signal", _signal_title(size, spread), layout=axes("layer", "size of the outputs", log=True))
    shape, note = band(0.1, 10.0, "usual: 0.1 to 10")
    chart.layout |= {"shapes": [shape], "annotations": [note]}
    chart.data.append(line("size (root mean square)", names, positive(size), ORANGE, mode="lines+markers"))
    chart.data.append(line("change from sample to sample", names, positive(spread), GREEN, mode="lines+markers"))
    mark_zeros(chart, names, size, spread)
    chart.layout["xaxis"] |= {"type": "category"}
    return chart


def draw_units(seen: Mapping[str, Any], activation: str) -> Chart:
    dead, flat = np.array(seen["dead"], float), np.array(seen["saturated"], float)
    names = _names(len(dead) + 1)[:-1]
    worst = int(np.argmax(np.maximum(dead, flat)))
    if max(dead.max(), flat.max()) < 0.01:
        title = f"No unit is dead and no output saturated ({ACTIVATIONS[activation]})"
    elif (dead == 1).all():
        title = "Every unit of every layer is zero for every sample"
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
    if not any(seen["gradient"]):
        return "The gradient is zero in every layer"
    return f"Gradient of the first layer {figure(first)}, of the last {figure(last)}"


def _signal_title(size: Floats, spread: Floats) -> str:
    for fault, is_so in (("overflows", ~np.isfinite(size)), ("is zero", size == 0)):
        if is_so.all():
            return f"The signal {fault} in every layer"
        if is_so.any():
            return f"The signal {fault} from layer {int(np.argmax(is_so)) + 1} on"
    if not spread[-1] * EVEN >= spread[0]:
        return "What the network puts out hardly depends on its input any more"
    return f"Outputs: {figure(float(size[0]))} in the first layer, {figure(float(size[-1]))} in the last"


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
