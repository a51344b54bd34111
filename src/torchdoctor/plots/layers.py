"""Layer by layer over the steps: how gradients flow, and how far updates move the weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.distributions.gaps import nanmax, nanmedian, nanmin
from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, band, between, mark_findings, tell_when
from torchdoctor.plots.heat import BROKEN, UNKNOWN, mark_rows, show_odd
from torchdoctor.plots.labels import label
from torchdoctor.plots.lines import END, LINES, add_lines, choose, end_levels, late_level, positive, without_broken
from torchdoctor.plots.palette import GREY, HEAT
from torchdoctor.plots.thinning import farthest, group, unwarned
from torchdoctor.rules.curves import figure
from torchdoctor.rules.movement import HEALTHY_UPDATES
from torchdoctor.run import Floats, Run, Trace
from torchdoctor.signals import GRADIENT, GRADIENT_L2, UPDATE_RATIO, WEIGHT, Signal

COLUMNS = 240
"""Of a heat map: as many as a page has room for."""
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
    hover = "%{y}<br>step %{x}<br>norm 10^%{z:.2f}<extra></extra>"
    shown = np.where(np.isfinite(log_LS), log_LS, np.nan)
    heat = {"type": "heatmap", "x": steps, "y": labels, "z": shown, "colorscale": HEAT, "hovertemplate": hover}
    heat["colorbar"] = {"title": {"text": "log10 of norm"}, "thickness": 14}
    layout = axes("step", "", hovermode="closest") | {"yaxis": {"automargin": True, "type": "category"}}
    nonfinite = run.matrix(GRADIENT["nonfinite"])
    chart = Chart("gradient-flow", flow_title(trace, nonfinite), [heat], layout, tall=True)
    word = BROKEN if _ever(trace, nonfinite) else UNKNOWN
    show_odd(chart, np.isneginf(log_LS), np.isnan(log_LS) | np.isposinf(log_LS), word)
    mark_rows(chart, findings, trace.columns, int(trace.steps[-1]))
    return chart


def _ever(trace: Trace, nonfinite: Trace) -> bool:
    """Whether every column without a number had elements that were not finite, so that it was measured."""
    unknown = [n for n, lacks in zip(trace.columns, np.isnan(trace.values).any(axis=0), strict=True) if lacks]
    return all(n in nonfinite.columns and (nonfinite.column(n).values > 0).any() for n in unknown)


def draw_gradient_lines(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """Norms of the gradients, layer by layer."""
    trace = weights_only(run, GRADIENT_L2)
    if not len(trace) or not (np.isfinite(trace.values) & (trace.values > 0)).any():
        return None
    ends = list(dict.fromkeys([trace.columns[0], trace.columns[-1]]))
    levels, when = end_levels(trace.select(ends))
    said = [f"{short} {figure(float(level))}" for short, level in zip(label(ends), levels, strict=True)]
    title = f"Norms of the gradients {when}: {', '.join(said)}"
    chart = Chart("gradient-norms", title, layout=axes("step", "norm of the gradient", log=True))
    add_lines(chart, choose(trace, findings))
    mark_findings(chart, findings, int(trace.steps[-1]))
    return chart


def draw_update_ratio(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """How far a step moves the weights, layer by layer."""
    trace = without_broken(weights_only(run, UPDATE_RATIO), run.matrix(WEIGHT["nonfinite"]))
    if not len(trace) or not (trace.values > 0).any():
        return None
    low, high = HEALTHY_UPDATES
    chart = Chart("update-ratio", _ratio_title(trace), layout=axes("step", "change / weight", log=True))
    shape, note = band(low, high, "usual: 0.01 % to 1 % a step")
    chart.layout |= {"shapes": [shape], "annotations": [note]}
    values = positive(trace.values)
    if len(trace.columns) > LINES:
        with unwarned():
            least, most = nanmin(values, axis=1), nanmax(values, axis=1)
        chart.data += between(least, most, trace.steps, GREY, "all layers")
    add_lines(chart, choose(trace, findings))
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


def flow_title(trace: Trace, nonfinite: Trace) -> str:
    """From the last quarter of the steps: whether gradients reach all layers, and by how much they differ."""
    level, names = _late_levels(trace), trace.columns
    counts = {n: late_level(nonfinite.column(n)) for n in trace.columns if n in nonfinite.columns}
    broken = ~np.isfinite(level) | np.array([counts.get(n, 0.0) > 0 for n in trace.columns])
    if broken.all():
        when = tell_when(trace, ~np.isfinite(trace.values).any(axis=1))
        return f"Gradients are not finite{f' {when}' if when else ''}"
    zero = (level == 0) & ~broken
    if broken.any():
        unreached = f", and none reaches {_count(zero, names)}" if zero.any() else ""
        return f"No finite gradient in {_count(broken, names)}{unreached}"
    if zero.any():
        return f"No gradient reaches {_count(zero, names)}"
    spread, ends = float(level.max() / level.min()), float(level[-1] / level[0])
    if spread <= EVEN:
        return f"Gradients reach all {len(level)} layers, their norms within a factor of {figure(spread)}"
    if spread <= EVEN * max(ends, 1 / ends):  # it is a way: nothing between the ends is far beyond them
        first, last = label([names[0], names[-1]])
        times = f"{figure(ends)} times smaller" if ends > 1 else f"{figure(1 / ends)} times larger"
        return f"The gradient's norm is {times} in {first} than in {last}"
    least, most = (f"{names[at]} ({figure(level[at])})" for at in (int(level.argmin()), int(level.argmax())))
    return f"Norms of the gradients differ {figure(spread)}-fold between layers: least in {least}, most in {most}"


def _ratio_title(trace: Trace) -> str:
    low, high = HEALTHY_UPDATES
    last, when = end_levels(trace)
    level, names = _late_levels(trace) if when == END else last, trace.columns
    known = np.isfinite(level)
    ended = "" if when == END else f"; {when}"
    if not known.any():
        return "How far a step moves the weights is not known, or not finite"
    if (level[known] == 0).all():
        moved = np.flatnonzero((trace.values > 0).any(axis=1))
        since = f" after step {trace.steps[moved[-1]]:,}" if len(moved) else ""
        return f"No step{since} changes the weights{ended}"
    said = f"A step changes the weights by {figure(float(np.median(level[known])))} of their size"
    outside = [
        f"{word} than usual in {_count(found, names)}"
        for word, found in (("more", known & (level > high)), ("less", known & (level < low)))
        if found.any()
    ]
    outside += [f"by no finite number in {_count(np.isinf(level), names)}"] if np.isinf(level).any() else []
    return f"{said}: {', '.join(outside)}{ended}" if outside else f"{said}, as usual{ended}"


def _count(found: np.ndarray, names: Sequence[str]) -> str:
    """So many of the layers, and which."""
    which = [name for name, is_one in zip(names, found, strict=True) if is_one]
    more = f" and {len(which) - NAMED} more" if len(which) > NAMED else ""
    told = "" if len(which) == len(names) else f" ({', '.join(which[:NAMED])}{more})"
    return f"{len(which)} of {len(names)} layers{told}"


def _late_levels(trace: Trace) -> Floats:
    """By column, the median of the last quarter; NaN where nothing was measured."""
    with unwarned():
        return nanmedian(trace.values[-max(1, len(trace) // 4) :].astype(np.float64), axis=0)
