"""Activations by depth and over the steps: dead units, saturated ones, and how the scale of the signal runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, mark_findings, shorten
from torchdoctor.plots.layers import positive, shrink
from torchdoctor.plots.palette import BLUE, HEAT, ORANGE, RED
from torchdoctor.plots.thinning import group
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats, Run, Trace
from torchdoctor.signals import ACTIVATION

MANY_DEAD = 0.4
"""Of a layer's units from which on a title speaks of them: a fresh ReLU has hardly any dead ones."""
FLAT_ENDS = 0.5
EVEN = 30.0


def draw_activation_health(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """The last looks, layer by layer: dead and saturated shares as bars, the spread of the output as a line."""
    shares = {name: _late(run.matrix(ACTIVATION[name])) for name in ("dead", "saturated")}
    spread = _late(run.matrix(ACTIVATION["std"]))
    names = [n for n in run.modules if n in spread or any(n in s for s in shares.values())] or list(spread)
    if not names:
        return None
    held = [np.array([found.get(n, np.nan) for n in names]) for found in (*shares.values(), spread)]
    labels, (*levels, scale) = group([shorten(n) for n in names], held)
    chart = Chart("activations", _title(shares, spread, names))
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
    labels, (share_LS,) = group([shorten(n) for n in trace.columns], [share_SL.T])
    hover = "%{y}<br>step %{x}<br>%{z:.0%} dead<extra></extra>"
    heat = {"type": "heatmap", "x": steps, "y": labels, "z": share_LS, "colorscale": HEAT, "hovertemplate": hover}
    heat |= {"zmin": 0, "zmax": 1, "colorbar": {"title": {"text": "dead"}, "tickformat": ".0%", "thickness": 14}}
    late = _late(trace)
    worst = max(late, key=lambda n: late[n]) if late else trace.columns[0]
    share = late.get(worst, 0.0)
    title = f"{worst}: {share:.0%} of its units are zero for every sample at the end" if share else "No unit is dead"
    layout = axes("step", "", hovermode="closest") | {"yaxis": {"automargin": True, "type": "category"}}
    chart = Chart("dead-units", title, [heat], layout, tall=True)
    mark_findings(chart, findings, int(trace.steps[-1]))
    return chart


def _late(trace: Trace) -> dict[str, float]:
    """By column, the median of the last quarter; those that were never measured are left out."""
    if not len(trace) or not trace.columns:
        return {}
    rows: Floats = trace.values[-max(1, len(trace) // 4) :]
    known = np.isfinite(rows).any(axis=0)
    return {name: float(np.nanmedian(rows[:, i])) for i, name in enumerate(trace.columns) if known[i]}


def _title(shares: dict[str, dict[str, float]], spread: dict[str, float], names: list[str]) -> str:
    dead, flat = (
        {n: v for n, v in shares[kind].items() if v > limit}
        for kind, limit in (("dead", MANY_DEAD), ("saturated", FLAT_ENDS))
    )
    if dead:
        worst = max(dead, key=lambda n: dead[n])
        return f"{dead[worst]:.0%} of the units of {worst} are dead" + _more(dead)
    if flat:
        worst = max(flat, key=lambda n: flat[n])
        return f"{flat[worst]:.0%} of the outputs of {worst} are saturated" + _more(flat)
    known = [spread[n] for n in names if spread.get(n, 0.0) > 0]
    if not known:
        return "What the layers put out was not finite, or nothing"
    if len(known) > 1 and max(known) > EVEN * min(known):
        return f"Activations are alive; their spread differs {figure(max(known) / min(known))}-fold between layers"
    return f"Activations are alive in all {len(names)} layers, and their scale is even"


def _more(found: dict[str, float]) -> str:
    return f", and many of {len(found) - 1} more layers" if len(found) > 1 else ""
