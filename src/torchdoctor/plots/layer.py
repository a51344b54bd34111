"""One layer by itself over the steps: its gradients, how far updates move it, and what it puts out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from torchdoctor.plots.chart import LOG, Chart, axes, band, between, line, nth_colour, percent
from torchdoctor.plots.labels import label
from torchdoctor.plots.lines import add_lines, end_levels, late_level, positive, while_finite, without_broken
from torchdoctor.plots.palette import BLUE, ORANGE, RED
from torchdoctor.rules.curves import figure
from torchdoctor.rules.movement import HEALTHY_UPDATES
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ACTIVATION, GRADIENT_L2, UPDATE_RATIO, WEIGHT, Signal

SHARES = {"dead": (RED, "dash"), "saturated": (ORANGE, "dot")}
TOLD = 4
"""Parameters of a layer that a title names."""


def draw_layer_gradient(run: Run, layer: str) -> Chart | None:
    """Norms of its own parameters' gradients."""
    trace = own_columns(run, GRADIENT_L2, layer)
    if not (trace.values > 0).any():
        return None
    chart = Chart("layer-gradient", "", layout=axes("step", "norm of the gradient", log=True))
    columns = [(own, trace.column(name)) for name, own in _own_names(trace, layer)]
    for number, (_, column) in enumerate(columns):
        if column.merged > 1:
            low, high, colour = positive(column.low), positive(column.high), nth_colour(number)
            chart.data += between(low, high, column.steps, colour, "extremes")
    add_lines(chart, columns)
    levels, when = end_levels(trace)
    named = [(own, float(level)) for (own, _), level in zip(columns, levels, strict=True)]
    if not any(level != 0 for _, level in named):
        chart.title = f"Gradient {when}: exactly 0 in {_few([own for own, _ in named])}"
        return chart
    chart.title = f"Gradient {when}: {_few([f'{own} {figure(level)}' for own, level in named])}"
    return chart


def draw_layer_update(run: Run, layer: str) -> Chart | None:
    """Change of a step over the size of the weight, with the usual band."""
    trace = without_broken(own_columns(run, UPDATE_RATIO, layer), run.matrix(WEIGHT["nonfinite"]))
    if not (trace.values > 0).any():
        return None
    chart = Chart("layer-update", "", layout=axes("step", "change / weight", log=True))
    shape, note = band(*HEALTHY_UPDATES, "usual: 0.01 % to 1 % a step")
    chart.layout |= {"shapes": [shape], "annotations": [note]}
    columns = [(own, trace.column(name)) for name, own in _own_names(trace, layer)]
    add_lines(chart, columns)
    levels, when = end_levels(trace)
    said = [f"{own} by {figure(float(level))}" for (own, _), level in zip(columns, levels, strict=True)]
    chart.title = f"A step changes, {when}: {_few(said)}"
    return chart


def draw_layer_activation(run: Run, layer: str) -> Chart | None:
    """Shares of dead and saturated outputs, and the spread of the output, as long as it is finite."""
    shares = [(kind, _output(run, kind, layer), *style) for kind, style in SHARES.items()]
    shares = [(kind, trace, colour, dash) for kind, trace, colour, dash in shares if trace is not None]
    spread = _output(run, "std", layer)
    if not shares and spread is None:
        return None
    chart = Chart("layer-activation", "", layout=axes("step", "share"))
    chart.layout["yaxis"] |= {"range": [0, 1.05], "tickformat": ".0%"}
    said, when = [], ""
    for kind, trace, colour, dash in shares:
        chart.data.append(line(kind, trace.steps, trace.values, colour, dash=dash))
        known, when = while_finite(trace)
        said.append(f"{percent(late_level(known))} {kind}")
    if spread is not None:
        chart.data.append(line("spread", spread.steps, positive(spread.values), BLUE, yaxis="y2"))
        second = {"title": {"text": "spread"}, **LOG, "overlaying": "y", "side": "right", "showgrid": False}
        chart.layout["yaxis2"] = {**second, "exponentformat": "power", "tickformat": ".3~g"}
        known, when = while_finite(spread)
        said.append(f"spread {figure(late_level(known))}")
    chart.title = f"Output {when}: {', '.join(said)}"
    return chart


def _few(said: Sequence[str]) -> str:
    more = f" and {len(said) - TOLD} more" if len(said) > TOLD else ""
    return ", ".join(said[:TOLD]) + more


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
    column = without_broken(trace.select([layer]), run.matrix(ACTIVATION["nonfinite"])).column(layer)
    return column if np.isfinite(column.values).any() else None


def _own_names(trace: Trace, layer: str) -> list[tuple[str, str]]:
    """Each parameter, and what it is called inside its layer."""
    return list(zip(trace.columns, label([name.removeprefix(f"{layer}.") for name in trace.columns]), strict=True))
