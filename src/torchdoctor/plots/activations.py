"""Activations by depth and over the steps: dead units, saturated ones, and how the scale of the signal runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, mark_findings, percent
from torchdoctor.plots.layers import EVEN, late_level, positive, shrink
from torchdoctor.plots.palette import BLUE, HEAT, ORANGE, RED
from torchdoctor.plots.thinning import group
from torchdoctor.rules.curves import figure
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ACTIVATION

MANY_DEAD = 0.4
"""Of a layer's units from which on a title speaks of them: a fresh ReLU has hardly any dead ones."""
FLAT_ENDS = 0.5


def draw_activation_health(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """The last looks, layer by layer: dead and saturated shares as bars, the spread of the output as a line."""
    shares = {name: _late(run.matrix(ACTIVATION[name])) for name in ("dead", "saturated")}
    spread = _late(run.matrix(ACTIVATION["std"]))
    broken = [n for n, count in _late(run.matrix(ACTIVATION["nonfinite"])).items() if count > 0]
    seen = dict.fromkeys([*spread, *shares["dead"], *shares["saturated"], *broken])
    names = [n for n in run.modules if n in seen] or list(seen)
    if not names:
        return None
    held = [np.array([found.get(n, np.nan) for n in names]) for found in (*shares.values(), spread)]
    labels, (*levels, scale) = group(names, held)
    chart = Chart("activations", _title(shares, spread, broken, len(names)))
    for kind, values, colour in zip(shares, levels, (RED, ORANGE), strict=True):
        if np.isfinite(values).any():
            bars = {"type": "bar", "name": f"{kind} units" if kind == "dead" else f"{kind} outputs", "x": labels}
            chart.data.append({**bars, "y": values, "marker": {"color": colour}, "opacity": 0.75})
    curve = {"type": "scatter", "mode": "lines+markers", "name": "spread of the output", "yaxis": "y2"}
    chart.data.append({**curve, "x": labels, "y": positive(scale), "line": {"color": BLUE, "width": 2}})
    chart.layout = axes("layer, in the order of the forward pass", "share", barmode="group")
    chart.layout["xaxis"] |= {"type": "category", "automargin": True}
    chart.layout["yaxis"] |= {"range": [0, 1.05], "tickformat": ".0%"}
    second = {"title": {"text": "spread"}, "type": "log", "overlaying": "y", "side": "right", "showgrid": False}
    chart.layout["yaxis2"] = {**second, "exponentformat": "power"}
    return chart


def draw_dead_units(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """How units die: the share of each layer over the steps."""
    trace = run.matrix(ACTIVATION["dead"])
    known = [n for n in trace.columns if np.isfinite(trace.column(n).values).any()]
    if not len(trace) or not known:
        return None
    trace = trace.select([n for n in run.modules if n in known] or known)
    steps, share_SL = shrink(trace)
    labels, (share_LS,) = group(trace.columns, [share_SL.T])
    hover = "%{y}<br>step %{x}<br>%{z:.0%} dead<extra></extra>"
    heat = {"type": "heatmap", "x": steps, "y": labels, "z": share_LS, "colorscale": HEAT, "hovertemplate": hover}
    heat |= {"zmin": 0, "zmax": 1, "colorbar": {"title": {"text": "dead"}, "tickformat": ".0%", "thickness": 14}}
    late = _late(trace)
    worst = max(late, key=lambda n: late[n]) if late else trace.columns[0]
    share = late.get(worst, 0.0)
    title = (
        f"{worst}: {percent(share)} of its units are zero for every sample at the end" if share else "No unit is dead"
    )
    layout = axes("step", "", hovermode="closest") | {"yaxis": {"automargin": True, "type": "category"}}
    chart = Chart("dead-units", title, [heat], layout, tall=True)
    mark_findings(chart, findings, int(trace.steps[-1]))
    return chart


def _late(trace: Trace) -> dict[str, float]:
    """By column, the median of the last quarter; those in which nothing was finite are left out."""
    found = {name: late_level(trace.column(name)) for name in trace.columns if len(trace)}
    return {name: level for name, level in found.items() if np.isfinite(level)}


def _title(shares: dict[str, dict[str, float]], spread: dict[str, float], broken: Sequence[str], known: int) -> str:
    """The worst that there is: not finite, dead, saturated, always the same; else how the scale runs."""
    if broken:
        return f"The output of {broken[0]} is not finite" + _more(broken, "so is that of")
    for kind, limit, what in (("dead", MANY_DEAD, "units"), ("saturated", FLAT_ENDS, "outputs")):
        many = {n: v for n, v in shares[kind].items() if v > limit}
        if many:
            worst = max(many, key=lambda n: many[n])
            return f"{percent(many[worst])} of the {what} of {worst} are {kind}" + _more(many, "many of")
    constant = [n for n, v in spread.items() if v == 0]
    if constant:
        return f"{constant[0]} puts out one and the same number" + _more(constant, "so do")
    if not spread:
        most_bad = max(v for share in shares.values() for v in share.values())
        return f"Most dead units or saturated outputs of a layer: {percent(most_bad)}, in {known} layers"
    least, most = (choose(spread, key=lambda n: spread[n]) for choose in (min, max))
    fold = spread[most] / spread[least]
    if fold > EVEN:
        return (
            f"Activations are alive; their spread differs {figure(fold)}-fold between layers: least in {least} "
            f"({figure(spread[least])}), most in {most} ({figure(spread[most])})"
        )
    return f"Activations are alive in all {known} layers, and their scale is even"


def _more(found: Sequence[str] | dict[str, float], what: str) -> str:
    return f", and {what} {len(found) - 1} more layers" if len(found) > 1 else ""
