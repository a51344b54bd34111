"""One layer by itself over the steps: its gradients, how far updates move it, and what it puts out."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from torchdoctor.plots.chart import Chart, axes, band, between, line, percent
from torchdoctor.plots.labels import label
from torchdoctor.plots.layers import HEALTHY_UPDATES, late_level, positive
from torchdoctor.plots.palette import BLUE, CYCLE, ORANGE, RED
from torchdoctor.rules.curves import figure
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ACTIVATION, GRADIENT_L2, UPDATE_RATIO, Signal


def draw_layer_gradient(run: Run, layer: str) -> Chart | None:
    """Norms of its own parameters' gradients."""
    trace = own_columns(run, GRADIENT_L2, layer)
    if not (trace.values > 0).any():
        return None
    chart = Chart("layer-gradient", "", layout=axes("step", "norm of the gradient", log=True))
    said = []
    for number, (name, own) in enumerate(_own_names(trace, layer)):
        column, colour = trace.column(name), CYCLE[number % len(CYCLE)]
        if column.merged > 1:
            chart.data += between(positive(column.low), positive(column.high), column.steps, colour, "extremes")
        chart.data.append(line(own, column.steps, positive(column.values), colour))
        level = late_level(column)
        said.append(f"{own} {'none' if level == 0 else figure(level)}")
    chart.title = "Gradient at the end: " + ", ".join(said)
    return chart


def draw_layer_update(run: Run, layer: str) -> Chart | None:
    """Change of a step over the size of the weight, with the usual band."""
    trace = own_columns(run, UPDATE_RATIO, layer)
    if not (trace.values > 0).any():
        return None
    chart = Chart("layer-update", "", layout=axes("step", "change / weight", log=True))
    shape, note = band(*HEALTHY_UPDATES, "usual: 0.01 % to 1 % a step")
    chart.layout |= {"shapes": [shape], "annotations": [note]}
    said = []
    for number, (name, own) in enumerate(_own_names(trace, layer)):
        column = trace.column(name)
        colour = CYCLE[number % len(CYCLE)]
        chart.data.append(line(own, column.steps, positive(column.values), colour))
        said.append(f"{own} by {figure(late_level(column))}")
    chart.title = "A step changes, at the end: " + ", ".join(said)
    return chart


def draw_layer_activation(run: Run, layer: str) -> Chart | None:
    """Shares of dead, saturated and zero outputs, and the spread of the output."""
    shares = [(kind, _output(run, kind, layer), colour) for kind, colour in (("dead", RED), ("saturated", ORANGE))]
    shares = [(kind, trace, colour) for kind, trace, colour in shares if trace is not None]
    spread = _output(run, "std", layer)
    if not shares and spread is None:
        return None
    chart = Chart("layer-activation", "", layout=axes("step", "share"))
    chart.layout["yaxis"] |= {"range": [0, 1.05], "tickformat": ".0%"}
    said = []
    for kind, trace, colour in shares:
        chart.data.append(line(kind, trace.steps, trace.values, colour))
        said.append(f"{percent(late_level(trace))} {kind}")
    if spread is not None:
        chart.data.append(line("spread", spread.steps, positive(spread.values), BLUE, yaxis="y2"))
        second = {"title": {"text": "spread"}, "type": "log", "overlaying": "y", "side": "right", "showgrid": False}
        chart.layout["yaxis2"] = {**second, "exponentformat": "power"}
        said.append(f"spread {figure(late_level(spread))}")
    chart.title = "Output at the end: " + ", ".join(said)
    return chart


DRAWN: dict[str, Callable[[Run, str], Chart | None]] = {
    "layer-gradient": draw_layer_gradient,
    "layer-update": draw_layer_update,
    "layer-activation": draw_layer_activation,
}


def module_of(run: Run, parameter: str) -> str:
    """The layer that a parameter belongs to."""
    known = run.parameters.get(parameter)
    return known.module if known is not None else parameter.rpartition(".")[0]


def own_columns(run: Run, signal: Signal, layer: str) -> Trace:
    """Of the parameters of that layer, not of those inside its parts."""
    trace = run.matrix(signal)
    return trace.select([n for n in trace.columns if module_of(run, n) == layer]) if trace.columns else trace


def _output(run: Run, kind: str, layer: str) -> Trace | None:
    trace = run.matrix(ACTIVATION[kind])
    if layer not in trace.columns:
        return None
    column = trace.column(layer)
    return column if np.isfinite(column.values).any() else None


def _own_names(trace: Trace, layer: str) -> list[tuple[str, str]]:
    """Each parameter, and what it is called inside its layer."""
    return list(zip(trace.columns, label([name.removeprefix(f"{layer}.") for name in trace.columns]), strict=True))
