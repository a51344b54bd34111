"""How weights, gradients and outputs are spread, and how that moves over the run.

A hill for each look, one behind the other, shows the shape on the values' own scale. Where sizes differ too much from
look to look for one scale, magnitudes are shown as a heat map over powers of two instead: then size is the news.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from torchdoctor.errors import UsageError
from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, faint, shorten
from torchdoctor.plots.layer import module_of
from torchdoctor.plots.palette import BLUE, GREEN, HEAT
from torchdoctor.plots.spreads import Histograms, Spread, changed_most, magnitude_edges, read_spreads, spread_of
from torchdoctor.rules.curves import figure
from torchdoctor.run import Run

ROLES = {"weights": "weight", "gradients": "gradient", "activations": "activation"}
"""What is drawn, and what its histograms are recorded as."""
NOUNS = {"weights": "weights", "gradients": "gradients", "activations": "outputs"}
HEALTHY = {
    "weights": "healthy: one hill around zero, slowly wider",
    "gradients": "healthy: keeps its size, not all near zero",
    "activations": "healthy: spread out, not heaped at zero or the ends",
}
HILLS = 16
"""Looks that are drawn as hills; more would hide each other."""
HEIGHT = 1.8
"""Of the highest hill, in distances from one to the next."""
PLACES = 121
SMOOTH = 1 / 14
"""Of the whole width, over which a hill is averaged: the edges of the bins are not to be seen."""
ONE_SCALE = 30.0
"""Times by which reaches of looks may differ for one scale: a hill thirty times narrower is a needle."""
STEADY = 1.5
"""Times by which sizes may differ and be called kept: half a bin, which is a power of two."""
MANY_ZEROS = 0.02
LEAST_SHARE = 0.001
"""Of the values: a magnitude that fewer ever have is not worth a row of the heat map."""
LOOKS = "looks, by their step"


def draw_distribution(
    held: Sequence[Histograms], column: str, what: str = "weights", name: str = "distribution"
) -> Chart | None:
    """Of one tensor, over its looks."""
    spread = spread_of(held, column)
    if spread is None:
        return None
    known = spread.reach[np.isfinite(spread.reach)]
    reach = float(known.max(initial=0.0))
    even = reach <= ONE_SCALE * known.min(initial=reach)
    chart = _draw_hills(name, spread, reach or 1.0) if even else _draw_heat(name, spread)
    chart.title = _title(column, what, spread)
    note = {"text": HEALTHY[what], "xref": "paper", "yref": "paper", "x": 1, "y": 1.0, "showarrow": False}
    chart.layout["annotations"] = [
        note | {"xanchor": "right", "yanchor": "bottom", "font": {"color": GREEN, "size": 11}}
    ]
    return chart


def _draw_hills(name: str, spread: Spread, reach: float) -> Chart:
    """The oldest look at the back, which is on top."""
    chosen = np.unique(np.linspace(0, len(spread.steps) - 1, min(HILLS, len(spread.steps))).round().astype(int))
    places = np.linspace(-1.15 * reach, 1.15 * reach, PLACES)
    hills = [spread.density(int(at), places, 2.3 * reach * SMOOTH) for at in chosen]
    highest = max(float(hill.max()) for hill in hills) or 1.0
    chart = Chart(name, "", layout=axes("value", LOOKS, hovermode="closest", showlegend=False))
    for row, (at, hill) in enumerate(zip(chosen, hills, strict=True)):
        ground = float(len(chosen) - 1 - row)
        flat = {"type": "scatter", "mode": "lines", "x": places[[0, -1]], "y": np.full(2, ground), "hoverinfo": "skip"}
        chart.data.append(flat | {"line": {"width": 0}, "showlegend": False})
        age = row / max(1, len(chosen) - 1)
        style = {"color": faint(BLUE, 0.45 + 0.55 * age), "width": 1.5}
        drawn = {"type": "scatter", "mode": "lines", "x": places, "y": ground + HEIGHT * hill / highest, "line": style}
        drawn |= {"fill": "tonexty", "fillcolor": faint(BLUE, 0.14 + 0.3 * age), "showlegend": False}
        chart.data.append(drawn | {"name": "", "hovertemplate": _tell(spread, int(at)) + "<extra></extra>"})
    grounds = [float(len(chosen) - 1 - row) for row in range(len(chosen))]
    ticks = {"tickvals": grounds, "ticktext": [_label(spread, int(at)) for at in chosen]}
    chart.layout["yaxis"] |= ticks | {"showgrid": False, "zeroline": False, "automargin": True}
    chart.layout["xaxis"] |= {"zeroline": True}
    return chart


def _draw_heat(name: str, spread: Spread) -> Chart:
    rows = np.flatnonzero(spread.sizes.max(axis=0) >= LEAST_SHARE)
    rows = np.arange(rows[0], rows[-1] + 1) if len(rows) else np.arange(1)
    edges = magnitude_edges()
    names = [f"{edges[i]:.2g}" if i else f"< {edges[1]:.2g}" for i in rows]
    steps = [f"{int(s):,}" for s in spread.steps]
    hover = "step %{x}<br>%{z:.1%} from %{y} to twice that<extra></extra>"
    heat: dict[str, Any] = {"type": "heatmap", "x": steps, "y": names, "z": spread.sizes[:, rows].T}
    heat |= {"colorscale": HEAT, "hovertemplate": hover}
    heat["colorbar"] = {"title": {"text": "share"}, "tickformat": ".0%", "thickness": 14}
    chart = Chart(name, "", [heat], axes(LOOKS, "magnitude, either sign", hovermode="closest"))
    chart.layout["xaxis"] |= {"type": "category"}
    chart.layout["yaxis"] |= {"type": "category", "automargin": True}
    return chart


def _label(spread: Spread, at: int) -> str:
    odd = "" if spread.sizes[at].any() else ", all zero" if spread.total[at] else ", none finite"
    return f"{int(spread.steps[at]):,}{odd}"


def _tell(spread: Spread, at: int) -> str:
    zeros = f"<br>{spread.zeros[at]:.0%} exactly zero" if spread.zeros[at] > 0 else ""
    return f"step {int(spread.steps[at]):,}<br>99 % within ±{figure(float(spread.reach[at]))}{zeros}"


def _title(column: str, what: str, spread: Spread) -> str:
    whose = f"{shorten(column) or 'the model'}: {NOUNS[what]}"
    known = np.flatnonzero(np.isfinite(spread.usual))
    broken = np.flatnonzero(spread.total == 0)
    if not len(known) and not len(broken):
        return f"{whose} are all exactly zero"
    if not np.isfinite(spread.usual[-1]):
        how = "all exactly zero" if spread.total[-1] else "all NaN or infinite"
        before = f"; before, usually ±{figure(float(spread.usual[known[-1]]))}" if len(known) else ""
        return f"{whose} are {how} since step {_since(spread):,}{before}"
    first, last = spread.usual[known[0]], spread.usual[-1]
    times = float(max(first, last) / min(first, last))
    size = figure(float(last))
    if times < STEADY:
        said = f"{whose} keep their size, usually ±{size}"
    else:
        moved = "grow" if last > first else "shrink"
        said = f"{whose} {moved} {figure(times)}-fold, from ±{figure(float(first))} to ±{size}"
    zeros = float(spread.zeros[-1])
    said += f"; {zeros:.0%} are exactly zero" if zeros > MANY_ZEROS else ""
    return said + (f"; none is finite at step {int(spread.steps[broken[0]]):,}" if len(broken) else "")


def _since(spread: Spread) -> int:
    """The step of the first look from which on all are as at the last: all zero, or none finite."""
    alike = ~np.isfinite(spread.usual) & ((spread.total > 0) == (spread.total[-1] > 0))
    others = np.flatnonzero(~alike)
    return int(spread.steps[others[-1] + 1 if len(others) else 0])


# -- which tensor ----------------------------------------------------------------------


def draw_weights(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """The spread of the weights that a finding points at, else of those that changed most, over the run."""
    return _draw_chosen(run, findings, "weights", "weight-distribution")


def draw_gradients(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """The same of gradients."""
    return _draw_chosen(run, findings, "gradients", "gradient-distribution")


def draw_outputs(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """The same of a layer's outputs."""
    return _draw_chosen(run, findings, "activations", "activation-distribution")


def draw_chosen_tensor(run: Run, column: str | None = None, what: str = "weights") -> Chart:
    """`column` is a parameter's name, of activations a layer's; without one, what changed most."""
    if what not in ROLES:
        raise UsageError(f"what is {', '.join(ROLES)}, not {what!r}")
    held = read_spreads(run, ROLES[what])
    columns = list(dict.fromkeys(name for h in held for name in h.columns))
    chosen = changed_most(held, columns) if column is None else column
    chart = draw_distribution(held, chosen, what) if chosen is not None else None
    if chart is None:
        there = f"; there are those of {', '.join(columns[:8])}" if columns else ": it was too short, or has no folder"
        raise UsageError(f"the run has no distributions of {what}{f' of {column}' if column else ''}{there}")
    return chart


def _draw_chosen(run: Run, findings: Sequence[Finding], what: str, name: str) -> Chart | None:
    held = read_spreads(run, ROLES[what])
    columns = list(dict.fromkeys(column for h in held for column in h.columns))
    pointed = [c for c in columns if c in _pointed_at(run, findings)]
    large = [c for c in columns if _is_matrix(run, c)]
    chosen = changed_most(held, pointed or large or columns)
    return draw_distribution(held, chosen, what, name) if chosen is not None else None


def _pointed_at(run: Run, findings: Sequence[Finding]) -> set[str]:
    """Parameters and layers that the first finding with a place names, with the parameters of such layers."""
    for finding in findings:
        named = {n for place in finding.where for n in (place.parameter, place.module) if n}
        if named:
            return named | {p for p in run.parameters if module_of(run, p) in named}
    return set()


def _is_matrix(run: Run, column: str) -> bool:
    known = run.parameters.get(column)
    return known is None or len(known.shape) > 1


# -- of one layer ------------------------------------------------------------------------


def _draw_layer(what: str) -> Callable[[Run, str], Chart | None]:
    def draw(run: Run, layer: str) -> Chart | None:
        held = read_spreads(run, ROLES[what])
        columns = list(dict.fromkeys(c for h in held for c in h.columns))
        own = [c for c in columns if (c if what == "activations" else module_of(run, c)) == layer]
        largest = max(own, key=lambda c: _elements(held, c), default=None)
        return draw_distribution(held, largest, what, f"layer-{ROLES[what]}-distribution") if own else None

    return draw


def _elements(held: Sequence[Histograms], column: str) -> float:
    spread = spread_of(held, column)
    return float(spread.total.max()) if spread is not None else 0.0


LAYER: dict[str, Callable[[Run, str], Chart | None]] = {
    f"layer-{role}-distribution": _draw_layer(what) for what, role in ROLES.items()
}
