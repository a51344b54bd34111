"""Layer by layer over the steps: how gradients flow, and how far updates move the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, band, between, line, mark_findings, shorten
from torchdoctor.plots.palette import CYCLE, GREY, HEAT, RED
from torchdoctor.plots.thinning import farthest, group, unwarned
from torchdoctor.rules.curves import figure
from torchdoctor.rules.movement import HEALTHY_UPDATES
from torchdoctor.run import Floats, Run, Trace
from torchdoctor.signals import GRADIENT_L2, UPDATE_RATIO, Signal

COLUMNS = 240
"""Of a heat map: as many as a page has room for."""
LINES = 6
"""Layers that are drawn one by one: the first, the last, and those between at equal distances."""
EVEN = 30.0
"""Largest over smallest norm of layers that a person would call even."""


def draw_gradient_flow(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """A heat map, the first layer at the bottom."""
    trace = weights_only(run, GRADIENT_L2)
    if not len(trace) or not trace.columns:
        return None
    steps, norm_SL = shrink(trace)
    if not np.isfinite(norm_SL).any():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        log_LS = np.log10(norm_SL).T
    labels, (log_LS,) = group([shorten(name) for name in trace.columns], [log_LS])
    none_LS = np.isneginf(log_LS)
    log_LS = np.where(np.isfinite(log_LS), log_LS, np.nan)
    hover = "%{y}<br>step %{x}<br>norm 10^%{z:.2f}<extra></extra>"
    heat = {"type": "heatmap", "x": steps, "y": labels, "z": log_LS, "colorscale": HEAT, "hovertemplate": hover}
    heat["colorbar"] = {"title": {"text": "log10 of norm"}, "thickness": 14}
    layout = axes("step", "", hovermode="closest") | {"yaxis": {"automargin": True, "type": "category"}}
    chart = Chart("gradient-flow", flow_title(trace), [heat, *_draw_none(heat, none_LS)], layout, tall=True)
    mark_findings(chart, findings, int(trace.steps[-1]))
    return chart


def _draw_none(heat: dict[str, Any], none_LS: np.ndarray) -> list[dict[str, Any]]:
    """Where the gradient is exactly zero, which no logarithm shows: in a colour of its own."""
    if not none_LS.any():
        return []
    scale = {"colorscale": [[0, RED], [1, RED]], "zmin": 0, "zmax": 1, "showscale": False}
    hover = {"hovertemplate": "%{y}<br>step %{x}<br>no gradient<extra></extra>"}
    return [{"type": "heatmap", "x": heat["x"], "y": heat["y"], "z": np.where(none_LS, 1.0, np.nan), **scale, **hover}]


def draw_gradient_lines(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    trace = weights_only(run, GRADIENT_L2)
    if not len(trace) or not (trace.values > 0).any():
        return None
    ends = [(n, _level(trace.column(n))) for n in (trace.columns[0], trace.columns[-1])]
    title = "Norms of the gradients at the end: " + ", ".join(f"{shorten(n)} {figure(v)}" for n, v in ends)
    chart = Chart("gradient-norms", title, layout=axes("step", "norm of the gradient", log=True))
    for number, name in enumerate(_chosen(trace.columns)):
        column = trace.column(name)
        chart.data.append(line(shorten(name), column.steps, positive(column.values), CYCLE[number % len(CYCLE)]))
    mark_findings(chart, findings, int(trace.steps[-1]))
    return chart


def draw_update_ratio(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    trace = weights_only(run, UPDATE_RATIO)
    if not len(trace) or not (trace.values > 0).any():
        return None
    low, high = HEALTHY_UPDATES
    chart = Chart(
        "update-ratio", _ratio_title(trace), layout=axes("step", "change of a step over the weight", log=True)
    )
    shape, note = band(low, high, "usual: 0.01 % to 1 % a step")
    chart.layout |= {"shapes": [shape], "annotations": [note]}
    values = positive(trace.values)
    if len(trace.columns) > LINES:
        with unwarned():
            least, most = np.nanmin(values, axis=1), np.nanmax(values, axis=1)
        chart.data += between(least, most, trace.steps, GREY, "all layers")
    for number, name in enumerate(_chosen(trace.columns)):
        column = trace.column(name)
        chart.data.append(line(shorten(name), column.steps, positive(column.values), CYCLE[number % len(CYCLE)]))
    mark_findings(chart, findings, int(trace.steps[-1]))
    return chart


def weights_only(run: Run, signal: Signal) -> Trace:
    """Of matrices and kernels, in the order of the forward pass; biases and gains would hide them."""
    trace = run.matrix(signal)
    known = [n for n in run.parameters if n in trace.columns] or list(trace.columns)
    heavy = [n for n in known if n not in run.parameters or len(run.parameters[n].shape) > 1]
    return trace.select(heavy or known) if trace.columns else trace


def shrink(trace: Trace, most: int = COLUMNS) -> tuple[np.ndarray, Floats]:
    """At most so many steps: of each stretch the value farthest from its median, so that a spike stays."""
    if len(trace) <= most:
        return trace.steps, np.array(trace.values)
    last, values = farthest(trace.values, trace.low, trace.high, most)
    return trace.steps[last], values


def positive(values: Floats) -> Floats:
    """What a logarithmic axis can show."""
    return np.where(values > 0, values, np.nan)


def flow_title(trace: Trace) -> str:
    """From the last quarter of the steps: by how much gradients differ between the first layers and the last."""
    late = trace.values[-max(1, len(trace) // 4) :]
    with unwarned():
        level = np.nanmedian(late, axis=0)
    if not np.isfinite(level).any():
        return "Gradients are not finite"
    zero = int((level == 0).sum())
    if zero:
        return f"No gradient reaches {zero} of {len(level)} layers"
    known = np.flatnonzero(np.isfinite(level))
    first, last = level[known[0]], level[known[-1]]
    spread = float(np.nanmax(level) / np.nanmin(level))
    if len(known) > 1 and last > EVEN * first:
        return f"Gradients shrink {figure(last / first)}-fold on the way from the last layer to the first"
    if len(known) > 1 and first > EVEN * last:
        return f"Gradients grow {figure(first / last)}-fold on the way from the last layer to the first"
    return f"Gradients reach all {len(known)} layers, within a factor of {figure(spread)}"


def _ratio_title(trace: Trace) -> str:
    low, high = HEALTHY_UPDATES
    late = trace.values[-max(1, len(trace) // 4) :]
    with unwarned():
        level = np.nanmedian(late, axis=0)
    known = level[np.isfinite(level)]
    if not len(known):
        return "How far a step moves the weights is not known"
    middle = float(np.median(known))
    above, below = int((known > high).sum()), int((known < low).sum())
    said = f"A step changes the weights by {middle:.2g} of their size"
    if above > len(known) / 2:
        return f"{said}: more than usual in {above} of {len(known)} layers"
    if below > len(known) / 2:
        return f"{said}: less than usual in {below} of {len(known)} layers"
    return f"{said}, as usual"


def _level(trace: Trace) -> float:
    """Of the last quarter."""
    late = trace.values[-max(1, len(trace) // 4) :]
    known = late[np.isfinite(late)]
    return float(np.median(known)) if len(known) else float("nan")


def _chosen(columns: Sequence[str]) -> list[str]:
    at = np.unique(np.linspace(0, len(columns) - 1, min(LINES, len(columns))).round().astype(int))
    return [columns[i] for i in at]
