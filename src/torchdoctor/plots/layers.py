"""Layer by layer over the steps: how gradients flow, and how far updates move the weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, band, between, line, mark_findings
from torchdoctor.plots.labels import label
from torchdoctor.plots.palette import CYCLE, GREY, HEAT, RED
from torchdoctor.plots.thinning import farthest, group, unwarned
from torchdoctor.rules.curves import figure
from torchdoctor.rules.movement import HEALTHY_UPDATES
from torchdoctor.run import Floats, Run, Trace
from torchdoctor.signals import GRADIENT, GRADIENT_L2, UPDATE_RATIO, Signal

COLUMNS = 240
"""Of a heat map: as many as a page has room for."""
LINES = 6
"""Layers that are drawn one by one: the first, the last, and those between at equal distances."""
EVEN = 30.0
"""Largest over smallest norm of layers that a person would call even."""
NAMED = 2
"""Layers that a title names."""


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
    labels, (log_LS,) = group(trace.columns, [log_LS])
    none_LS = np.isneginf(log_LS)
    log_LS = np.where(np.isfinite(log_LS), log_LS, np.nan)
    hover = "%{y}<br>step %{x}<br>norm 10^%{z:.2f}<extra></extra>"
    heat = {"type": "heatmap", "x": steps, "y": labels, "z": log_LS, "colorscale": HEAT, "hovertemplate": hover}
    heat["colorbar"] = {"title": {"text": "log10 of norm"}, "thickness": 14}
    layout = axes("step", "", hovermode="closest") | {"yaxis": {"automargin": True, "type": "category"}}
    title = flow_title(trace, run.matrix(GRADIENT["nonfinite"]))
    chart = Chart("gradient-flow", title, [heat, *_draw_none(heat, none_LS)], layout, tall=True)
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
    chosen = _chosen(trace)
    ends = [chosen[0], chosen[-1]][: len(chosen)]
    title = "Norms of the gradients at the end: " + ", ".join(f"{n} {figure(late_level(own))}" for n, own in ends)
    chart = Chart("gradient-norms", title, layout=axes("step", "norm of the gradient", log=True))
    for number, (name, column) in enumerate(chosen):
        chart.data.append(line(name, column.steps, positive(column.values), CYCLE[number % len(CYCLE)]))
    mark_findings(chart, findings, int(trace.steps[-1]))
    return chart


def draw_update_ratio(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    trace = weights_only(run, UPDATE_RATIO)
    if not len(trace) or not (trace.values > 0).any():
        return None
    low, high = HEALTHY_UPDATES
    chart = Chart("update-ratio", _ratio_title(trace), layout=axes("step", "change / weight", log=True))
    shape, note = band(low, high, "usual: 0.01 % to 1 % a step")
    chart.layout |= {"shapes": [shape], "annotations": [note]}
    values = positive(trace.values)
    if len(trace.columns) > LINES:
        with unwarned():
            least, most = np.nanmin(values, axis=1), np.nanmax(values, axis=1)
        chart.data += between(least, most, trace.steps, GREY, "all layers")
    for number, (name, column) in enumerate(_chosen(trace)):
        chart.data.append(line(name, column.steps, positive(column.values), CYCLE[number % len(CYCLE)]))
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


def flow_title(trace: Trace, nonfinite: Trace) -> str:
    """From the last quarter of the steps: whether gradients reach all layers, and by how much they differ."""
    level, names = _late_levels(trace), trace.columns
    counts = {n: late_level(nonfinite.column(n)) for n in trace.columns if n in nonfinite.columns}
    broken = ~np.isfinite(level) | np.array([counts.get(n, 0.0) > 0 for n in trace.columns])
    if broken.all():
        return "Gradients are not finite"
    zero = (level == 0) & ~broken
    if broken.any():
        unreached = f", and none reaches {_count(zero, names)}" if zero.any() else ""
        return f"No finite gradient in {_count(broken, names)}{unreached}"
    if zero.any():
        return f"No gradient reaches {_count(zero, names)}"
    spread, ends = float(level.max() / level.min()), float(level[-1] / level[0])
    if spread <= EVEN:
        return f"Gradients reach all {len(level)} layers, within a factor of {figure(spread)}"
    if spread <= EVEN * max(ends, 1 / ends):  # it is a way: nothing between the ends is far beyond them
        way = f"shrink {figure(ends)}-fold" if ends > 1 else f"grow {figure(1 / ends)}-fold"
        return f"Gradients {way} on the way from the last layer to the first"
    least, most = (f"{names[at]} ({figure(level[at])})" for at in (int(level.argmin()), int(level.argmax())))
    return f"Gradients differ {figure(spread)}-fold between layers: least in {least}, most in {most}"


def _ratio_title(trace: Trace) -> str:
    low, high = HEALTHY_UPDATES
    level, names = _late_levels(trace), trace.columns
    known = np.isfinite(level)
    if not known.any():
        return "How far a step moves the weights is not known, or not finite"
    if (level[known] == 0).all():
        moved = np.flatnonzero((trace.values > 0).any(axis=1))
        since = f" after step {trace.steps[moved[-1]]:,}" if len(moved) else ""
        return f"No step{since} changes the weights, or they are not finite"
    said = f"A step changes the weights by {figure(float(np.median(level[known])))} of their size"
    outside = [
        f"{word} than usual in {_count(found, names)}"
        for word, found in (("more", known & (level > high)), ("less", known & (level < low)))
        if found.any()
    ]
    outside += [f"by no finite number in {_count(np.isinf(level), names)}"] if np.isinf(level).any() else []
    return f"{said}: {', '.join(outside)}" if outside else f"{said}, as usual"


def _count(found: np.ndarray, names: Sequence[str]) -> str:
    """So many of the layers, and which."""
    which = [name for name, is_one in zip(names, found, strict=True) if is_one]
    more = f" and {len(which) - NAMED} more" if len(which) > NAMED else ""
    told = "" if len(which) == len(names) else f" ({', '.join(which[:NAMED])}{more})"
    return f"{len(which)} of {len(names)} layers{told}"


def _late_levels(trace: Trace) -> Floats:
    """By column, the median of the last quarter; NaN where nothing was measured."""
    with unwarned():
        return np.nanmedian(trace.values[-max(1, len(trace) // 4) :].astype(np.float64), axis=0)


def late_level(trace: Trace) -> float:
    """Of one column the median of the last quarter; NaN where nothing in it was finite."""
    late = trace.values[-max(1, len(trace) // 4) :]
    known = late[np.isfinite(late)]
    return float(np.median(known)) if len(known) else float("nan")


def _chosen(trace: Trace) -> list[tuple[str, Trace]]:
    """With their labels."""
    at = np.unique(np.linspace(0, len(trace.columns) - 1, min(LINES, len(trace.columns))).round().astype(int))
    names = [trace.columns[i] for i in at]
    return [(short, trace.column(name)) for short, name in zip(label(names), names, strict=True)]
