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
from torchdoctor.plots.chart import BEHIND, MARKED, SIGNS, Chart, axes, beside, faint, percent, shorten
from torchdoctor.plots.heat import STRIPES, lay_over
from torchdoctor.plots.layer import module_of
from torchdoctor.plots.palette import BLUE, GREEN, HEAT, RED
from torchdoctor.plots.spreads import (
    OUTER,
    Histograms,
    Spread,
    changed_most,
    largest_known,
    magnitude_edges,
    read_spreads,
    spread_of,
)
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats, Ints, Run

ROLES = {"weights": "weight", "gradients": "gradient", "activations": "activation"}
"""What is drawn, and what its histograms are recorded as."""
NOUNS = {"weights": "weights", "gradients": "gradients", "activations": "outputs"}
HEALTHY = {
    "weights": "a healthy one: one hill around zero, slowly wider",
    "gradients": "healthy ones: keep their size, not all near zero",
    "activations": "healthy ones: spread out, not heaped at zero or the ends",
}
HILLS = 16
"""Looks that are drawn as hills; more would hide each other."""
HEIGHT = 1.8
"""Of the highest hill, in distances from one to the next."""
BAR = 0.85
"""Of a bar that stands for all values, in the same: it ends below the next look."""
PLACES = 121
SMOOTH = 1 / 14
"""Of the whole width, over which a hill is averaged: the edges of the bins are not to be seen."""
ONE_SCALE = 30.0
"""Times by which reaches of looks may differ for one scale: a hill thirty times narrower is a needle."""
STEADY = 1.5
"""Times by which sizes may differ and be called kept: half a bin, which is a power of two."""
MANY_ZEROS = 0.02
SOME_ZEROS = 0.005
"""Share of exact zeros from which on a bar of them is more than its own line's width."""
LEAST_SHARE = 0.001
"""Of the values: a magnitude that fewer ever have is not worth a row of the heat map."""
LOOKS = "looks, by their step"


def draw_distribution(
    held: Sequence[Histograms],
    column: str,
    what: str = "weights",
    name: str = "distribution",
    finding: Finding | None = None,
) -> Chart | None:
    """Of one tensor, over its looks; `finding` points at it."""
    spread = spread_of(held, column)
    if spread is None:
        return None
    known = spread.reach[np.isfinite(spread.reach)]
    reach = float(known.max(initial=0.0))
    even = reach <= ONE_SCALE * known.min(initial=reach)
    names = [_label(spread, at, finding) for at in range(len(spread.steps))]
    chart = _draw_hills(name, spread, reach or 1.0, names) if even else _draw_heat(name, spread, names)
    chart.title = _title(column, what, spread)
    notes = chart.layout.setdefault("annotations", [])
    notes.append(beside(HEALTHY[what], GREEN))
    if finding is not None:
        notes.append(_point(finding))
    return chart


def _point(finding: Finding) -> dict[str, Any]:
    note = beside(f"{SIGNS[finding.severity]} {finding.name}", MARKED[finding.severity], "left")
    return note | {"hovertext": finding.title, "yanchor": "top", "bgcolor": BEHIND}  # the other corner is taken


def _draw_hills(name: str, spread: Spread, reach: float, names: Sequence[str]) -> Chart:
    """The oldest look at the back, which is on top."""
    chosen = np.unique(np.linspace(0, len(spread.steps) - 1, min(HILLS, len(spread.steps))).round().astype(int))
    places = np.linspace(*np.clip([-1.15 * reach, 1.15 * reach], *spread.sides), PLACES)
    hills = [spread.density(int(at), places, (places[-1] - places[0]) * SMOOTH) for at in chosen]
    highest = max(float(hill.max()) for hill in hills) or 1.0
    chart = Chart(name, "", layout=axes("value", LOOKS, hovermode="closest", showlegend=False))
    grounds = np.arange(len(chosen), dtype=float)[::-1]
    for row, (at, hill, ground) in enumerate(zip(chosen, hills, grounds, strict=True)):
        flat = {"type": "scatter", "mode": "lines", "x": places[[0, -1]], "y": np.full(2, ground), "hoverinfo": "skip"}
        chart.data.append(flat | {"line": {"width": 0}, "showlegend": False})
        age = row / max(1, len(chosen) - 1)
        style = {"color": BLUE, "width": 1 + age}
        drawn = {"type": "scatter", "mode": "lines", "x": places, "y": ground + HEIGHT * hill / highest, "line": style}
        drawn |= {"fill": "tonexty", "fillcolor": faint(BLUE, 0.14 + 0.3 * age), "showlegend": False}
        chart.data.append(drawn | {"name": "", "hovertemplate": _tell(spread, int(at)) + "<extra></extra>"})
    if (spread.zeros[chosen] > SOME_ZEROS).any():
        chart.data.append(_draw_zeros(spread.zeros[chosen], grounds))
        chart.layout["annotations"] = [_tell_zeros(spread.zeros[chosen], grounds)]
    ticks = {"tickvals": grounds.tolist(), "ticktext": [names[at] for at in chosen]}
    chart.layout["yaxis"] |= ticks | {"showgrid": False, "zeroline": False, "automargin": True}
    edge = 0.03 * (places[-1] - places[0])  # a bar at the very edge would be cut in half
    chart.layout["xaxis"] |= {"zeroline": True, "range": [float(places[0] - edge), float(places[-1] + edge)]}
    return chart


def _draw_zeros(share: Floats, grounds: Floats) -> dict[str, Any]:
    """A bar at zero for each look, as high as their share: all of them would nearly reach the next look."""
    gap = np.full(len(share), np.nan)
    tops = np.where(share > 0, grounds + BAR * share, np.nan)
    x, y = np.zeros(3 * len(share)), np.stack([grounds, tops, gap], axis=1).ravel()
    told = [f"{percent(float(s))} exactly zero" for s in share for _ in range(3)]
    drawn = {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": {"color": RED, "width": 5}, "name": ""}
    return drawn | {"text": told, "hovertemplate": "%{text}<extra></extra>", "showlegend": False}


def _tell_zeros(share: Floats, grounds: Floats) -> dict[str, Any]:
    """Beside the last look's bar, or that of the last look that has one."""
    at = int(np.flatnonzero(share > SOME_ZEROS)[-1])
    note = {"text": f"{percent(float(share[at]))} zero", "x": 0, "y": grounds[at] + BAR * share[at]}
    style = {"font": {"color": RED, "size": 11}, "bgcolor": BEHIND}
    return note | style | {"xanchor": "left", "yanchor": "middle", "xshift": 6, "showarrow": False}


def _draw_heat(name: str, spread: Spread, names: Sequence[str]) -> Chart:
    rows = np.flatnonzero(spread.sizes.max(axis=0) >= LEAST_SHARE)
    rows = np.arange(rows[0], rows[-1] + 1) if len(rows) else np.arange(1)
    edges = magnitude_edges()
    said = [figure(float(edges[i])) if i else f"< {figure(float(edges[1]))}" for i in rows]
    if rows[-1] == len(edges) - 2:
        said[-1] = f"> {largest_known():,.0f}"
    broken = spread.total == 0
    share_MS = np.where(broken, np.nan, spread.sizes[:, rows].T)
    hover = "step %{x}<br>%{z:.1%} from %{y} to twice that<extra></extra>"
    heat: dict[str, Any] = {"type": "heatmap", "x": list(names), "y": said, "z": share_MS}
    heat |= {"colorscale": HEAT, "hovertemplate": hover}
    heat["colorbar"] = {"title": {"text": "share"}, "tickformat": ".0%", "thickness": 14}
    chart = Chart(name, "", [heat], axes(LOOKS, "magnitude, either sign", hovermode="closest"))
    if broken.any():
        chart.data.append(lay_over(heat, np.broadcast_to(broken, share_MS.shape), "none finite", STRIPES))
    chart.layout["xaxis"] |= {"type": "category"}
    chart.layout["yaxis"] |= {"type": "category", "automargin": True}
    return chart


def _label(spread: Spread, at: int, finding: Finding | None = None) -> str:
    """A look's step, with a sign where a finding begins."""
    odd = "" if spread.sizes[at].any() else ", all zero" if spread.total[at] else ", none finite"
    begins = finding is not None and finding.first_step is not None and _first_look(spread, finding.first_step) == at
    sign = f"{SIGNS[finding.severity]} " if finding is not None and begins else ""
    return f"{sign}{int(spread.steps[at]):,}{odd}"


def _first_look(spread: Spread, step: int) -> int:
    return int(np.searchsorted(spread.steps, step))


def _size(value: float) -> str:
    """As far as the bins tell it."""
    known = largest_known()
    return f"more than ±{known:,.0f}" if value >= known else f"±{figure(value)}"


def _tell(spread: Spread, at: int) -> str:
    zeros = f"<br>{spread.zeros[at]:.0%} exactly zero" if spread.zeros[at] > 0 else ""
    return f"step {int(spread.steps[at]):,}<br>{_within(spread, at)}{zeros}"


def _within(spread: Spread, at: int) -> str:
    reach = float(spread.reach[at])
    if not np.isfinite(reach):
        return "none but zeros" if spread.total[at] else "none finite"
    far = f"{percent(float(spread.beyond[at]))} beyond ±{largest_known():,.0f}"
    return far if reach >= largest_known() else f"99 % within ±{figure(reach)}"


def _title(column: str, what: str, spread: Spread) -> str:
    whose = f"{shorten(column) or 'the model'}: {NOUNS[what]}"
    known = np.flatnonzero(np.isfinite(spread.usual))
    broken = np.flatnonzero(spread.total == 0)
    if not len(known) and not len(broken):
        return f"{whose} are all exactly zero"
    if not np.isfinite(spread.usual[-1]):
        how = "all exactly zero" if spread.total[-1] else "all NaN or infinite"
        return f"{whose} are {how} since step {int(spread.steps[_since(spread)]):,}{_before(spread, known)}"
    said = f"{whose} {_course(float(spread.usual[known[0]]), float(spread.usual[-1]))}{_far(spread, -1)}"
    zeros = float(spread.zeros[-1])
    said += f"; {percent(zeros)} are exactly zero" if zeros > MANY_ZEROS else ""
    return said + (f"; none is finite at step {int(spread.steps[broken[0]]):,}" if len(broken) else "")


def _course(first: float, last: float) -> str:
    """From one size to another; those beyond the bins have no size that could be compared."""
    if min(first, last) >= largest_known():
        return f"are usually {_size(last)} all along"
    times = max(min(first, largest_known()), min(last, largest_known())) / min(first, last)
    if times < STEADY:
        return f"keep their size, usually {_size(last)}"
    least = "more than " if max(first, last) >= largest_known() else ""
    return f"{'grow' if last > first else 'shrink'} {least}{figure(times)}-fold, from {_size(first)} to {_size(last)}"


def _far(spread: Spread, at: int) -> str:
    """Those beyond the bins, where the usual size is not among them."""
    share = float(spread.beyond[at])
    if share < 1 - OUTER or spread.usual[at] >= largest_known():
        return ""
    return f" ({percent(share)} are beyond ±{largest_known():,.0f})"


def _before(spread: Spread, known: Ints) -> str:
    """The size that values had at last."""
    if not len(known):
        return ""
    at = int(known[-1])
    when = "before" if at == _since(spread) - 1 else f"at step {int(spread.steps[at]):,}"
    return f"; {when}, usually {_size(float(spread.usual[at]))}{_far(spread, at)}"


def _since(spread: Spread) -> int:
    """The first look from which on all are as at the last: all zero, or none finite."""
    alike = ~np.isfinite(spread.usual) & ((spread.total > 0) == (spread.total[-1] > 0))
    others = np.flatnonzero(~alike)
    return int(others[-1]) + 1 if len(others) else 0


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
    finding, named = _pointed_at(run, findings)
    pointed = [c for c in columns if c in named]
    large = [c for c in columns if _is_matrix(run, c)]
    chosen = changed_most(held, pointed or large or columns)
    return draw_distribution(held, chosen, what, name, finding if pointed else None) if chosen is not None else None


def _pointed_at(run: Run, findings: Sequence[Finding]) -> tuple[Finding | None, set[str]]:
    """The first finding with a place; the parameters and layers that it names, with the parameters of such layers."""
    for finding in findings:
        named = {n for place in finding.where for n in (place.parameter, place.module) if n}
        if named:
            return finding, named | {p for p in run.parameters if module_of(run, p) in named}
    return None, set()


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
