"""Activations by depth and over the steps: dead units, saturated ones, and how the scale of the signal runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import LOG, Chart, axes, mark_places, percent
from torchdoctor.plots.heat import mark_rows, rows_of, show_odd
from torchdoctor.plots.labels import label
from torchdoctor.plots.layers import EVEN, shrink
from torchdoctor.plots.lines import END, late_level, positive, while_finite, without_broken
from torchdoctor.plots.palette import BLUE, HEAT, ORANGE, RED, faint
from torchdoctor.plots.thinning import group
from torchdoctor.rules.curves import figure
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ACTIVATION

MANY_DEAD = 0.4
"""Of a layer's units from which on a title speaks of them: a fresh ReLU has hardly any dead ones."""
FLAT_ENDS = 0.5
ROOM = 18
"""Letters of a label below a bar: they stand upright, and take that from the picture."""
CALL = re.compile(r" #\d+$")
"""Behind a layer's name from its second call in a forward pass on (probes.activations)."""


def draw_activation_health(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """The last finite looks, layer by layer: dead and saturated shares as bars, the spread of the output as a line."""
    nonfinite = run.matrix(ACTIVATION["nonfinite"])
    traces = {kind: without_broken(run.matrix(ACTIVATION[kind]), nonfinite) for kind in ("dead", "saturated", "std")}
    found = {kind: fold_calls(_late(trace)) for kind, trace in traces.items()}
    broken = list(fold_calls({n: v for n, v in _late(nonfinite).items() if v > 0}))
    shares, spread = {kind: found[kind] for kind in ("dead", "saturated")}, found["std"]
    seen = dict.fromkeys([*spread, *shares["dead"], *shares["saturated"]])
    names = [n for n in run.modules if n in seen] or list(seen)
    if not names:
        return None
    held = [np.array([each.get(n, np.nan) for n in names]) for each in (*shares.values(), spread)]
    labels, (*levels, scale) = group(names, held)
    labels = label(labels, ROOM)
    when = while_finite(traces["std"])[1] if len(traces["std"]) else END
    title = _title(shares, spread, broken, len(names)) + (f"; shown {when}" if broken and when != END else "")
    chart = Chart("activations", title)
    for kind, values, colour in zip(shares, levels, (RED, ORANGE), strict=True):
        if np.isfinite(values).any():
            bars = {"type": "bar", "name": f"{kind} units" if kind == "dead" else f"{kind} outputs", "x": labels}
            chart.data.append({**bars, "y": values, "marker": _filled(kind, colour)})
    curve = {"type": "scatter", "mode": "lines+markers", "name": "spread of the output", "yaxis": "y2"}
    chart.data.append({**curve, "x": labels, "y": positive(scale), "line": {"color": BLUE, "width": 2}})
    chart.layout = axes("layer, in the order of the forward pass", "share", barmode="group")
    chart.layout["xaxis"] |= {"type": "category", "automargin": True}
    chart.layout["yaxis"] |= {"range": [0, 1.05], "tickformat": ".0%"}
    second = {"title": {"text": "spread"}, **LOG, "overlaying": "y", "side": "right", "showgrid": False}
    chart.layout["yaxis2"] = second | {"tickformat": ".3~g"}
    mark_places(chart, findings, _with_calls(run, rows_of(names, labels)), "x")
    return chart


def fold_calls(found: Mapping[str, float]) -> dict[str, float]:
    """Calls of one layer as one: a recurrent one is called at every position. Of them the greatest number counts."""
    folded: dict[str, float] = {}
    for name, value in found.items():
        base = CALL.sub("", name)
        folded[base] = max(value, folded.get(base, value))
    return folded


def _with_calls(run: Run, labels: dict[str, str]) -> dict[str, str]:
    """A finding may name any of a layer's calls."""
    return {n: labels[CALL.sub("", n)] for n in (*labels, *run.modules) if CALL.sub("", n) in labels}


def _filled(kind: str, colour: str) -> dict[str, object]:
    """Dead ones full, saturated ones as frames: they are told apart without their colours (hatches draw slowly)."""
    if kind == "dead":
        return {"color": colour}
    return {"color": faint(colour, 0.25), "line": {"color": colour, "width": 1.5}}


def draw_dead_units(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """How units die: the share of each layer over the steps, as long as its output is finite."""
    raw = run.matrix(ACTIVATION["dead"])
    known = np.isfinite(raw.values).any(axis=0) if len(raw) else np.zeros(0, bool)
    names = [n for n, is_known in zip(raw.columns, known, strict=False) if is_known]
    if not names:
        return None
    raw = raw.select([n for n in run.modules if n in names] or names)
    trace = without_broken(raw, run.matrix(ACTIVATION["nonfinite"]))
    if not np.isfinite(trace.values).any():
        return None
    steps, share_SL = shrink(trace)
    labels, (share_LS,) = group(trace.columns, [share_SL.T])
    hover = "%{y}<br>step %{x}<br>%{z:.0%} dead<extra></extra>"
    heat = {"type": "heatmap", "x": steps, "y": labels, "z": share_LS, "colorscale": HEAT, "hovertemplate": hover}
    heat |= {"zmin": 0, "zmax": 1, "colorbar": {"title": {"text": "dead"}, "tickformat": ".0%", "thickness": 14}}
    layout = axes("step", "", hovermode="closest") | {"yaxis": {"automargin": True, "type": "category"}}
    chart = Chart("dead-units", _dead_title(trace, raw), [heat], layout, tall=True)
    if np.isnan(trace.values).sum() > np.isnan(raw.values).sum():
        broken = np.isnan(share_LS) & np.isfinite(group(raw.columns, [shrink(raw)[1].T])[1][0])
        show_odd(chart, np.zeros(broken.shape, bool), broken)
    mark_rows(chart, findings, trace.columns, int(trace.steps[-1]))
    return chart


def _dead_title(trace: Trace, raw: Trace) -> str:
    late = _late(trace)
    worst = max(late, key=lambda n: late[n])
    ended = bool((np.isnan(trace.values[-1]) & np.isfinite(raw.values[-1])).any())  # not just not looked at
    when = while_finite(trace)[1] if ended else END
    if late[worst] == 0:
        return "No unit is dead" if when == END else f"No unit is dead {when}"
    return f"{worst}: {percent(late[worst])} of its units are zero for every sample {when}"


def _late(trace: Trace) -> dict[str, float]:
    """By column, the median of the last quarter of its finite looks; those without any are left out."""
    if not len(trace):
        return {}
    found = {}
    for name in trace.columns:
        column = trace.column(name)
        if np.isfinite(column.values).any():
            found[name] = late_level(while_finite(column)[0])
    return found


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
    rest = len(found) - 1
    return f", and {what} {rest} more layer{'s' if rest > 1 else ''}" if rest else ""
