"""Norms with the threshold among them, and what every other threshold would do."""

from __future__ import annotations

import numpy as np

from torchdoctor.lab.clipping.recorded import ALIKE, EXCEPTIONAL, Cut, Recorded, cut_at
from torchdoctor.plots.chart import LOG, Chart, axes, between, line
from torchdoctor.plots.layers import positive
from torchdoctor.plots.palette import BAND, BLUE, GREEN, GREY, ORANGE, RED
from torchdoctor.rules.curves import figure

LEAST_TOLD = 0.001
"""Share below which its number is not told."""
GRID = 160
"""Thresholds that the curve of shares is drawn for."""


def draw_norms(recorded: Recorded, found: Cut) -> Chart:
    trace, threshold = recorded.trace, found.threshold
    values, high = positive(trace.values), positive(trace.high)
    above = np.flatnonzero(high > threshold * (1 + ALIKE))
    title = (
        f"No norm exceeds {figure(threshold)}"
        if not len(above)
        else f"{percent(found.share)} of the steps have a norm above {figure(threshold)}, the largest "
        f"{figure(float(np.nanmax(high)) / threshold)} times it"
    )
    chart = Chart("clip-norms", title, layout=axes("step", "norm of all gradients", log=True))
    if trace.merged > 1:
        chart.data += between(positive(trace.low), high, trace.steps, BLUE, "extremes")
    chart.data.append(line("as recorded", trace.steps, values, BLUE, width=1.5))
    chart.data.append(line("after clipping", trace.steps, np.minimum(values, threshold), GREEN, width=1.5))
    marker = {"color": RED, "symbol": "x", "size": 6}
    chart.data.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "cut",
            "marker": marker,
            "x": trace.steps[above],
            "y": high[above],
        }
    )
    ends = trace.steps[[0, -1]]
    chart.data.append(line("threshold", ends, np.full(2, threshold), RED, dash="dash"))
    if recorded.in_use is not None:
        chart.data.append(line("in use", ends, np.full(2, recorded.in_use), GREY, dash="dot"))
    return chart


def draw_shares(recorded: Recorded, found: Cut) -> Chart:
    low, high = recorded.span
    grid = np.geomspace(10.0**low, 10.0**high, GRID)
    share, kept = cut_at(recorded, grid)
    cut_ = percent(found.share)
    title = f"At {figure(found.threshold)}, {cut_} of the steps are cut and {found.kept:.0%} of the way is left"
    chart = Chart("clip-shares", title, layout=axes("threshold", "share", hovermode="closest"))
    chart.layout["xaxis"] |= LOG
    chart.layout["yaxis"] |= {"range": [-0.02, 1.05], "tickformat": ".0%"}
    band = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": 0, "y1": EXCEPTIONAL, "fillcolor": BAND}
    note = {"text": "cuts the exceptional only", "xref": "paper", "x": 0, "y": EXCEPTIONAL, "xanchor": "left"}
    chart.layout["shapes"] = [band | {"line": {"width": 0}, "layer": "below"}]
    chart.layout["annotations"] = [note | {"yanchor": "bottom", "showarrow": False, "font": {"color": GREEN}}]
    chart.data.append(line("steps cut", grid, share, RED))
    chart.data.append(line("of the way kept", grid, kept, BLUE))
    for name, value, colour, dash in (
        ("chosen", found.threshold, RED, "dash"),
        ("suggested", recorded.suggested, ORANGE, "dot"),
        ("in use", recorded.in_use, GREY, "dot"),
    ):
        if value:
            chart.data.append(line(name, np.full(2, value), np.array([0.0, 1.0]), colour, dash=dash, width=1.5))
    spot = {"color": RED, "size": 10}
    chosen = {"type": "scatter", "mode": "markers", "name": "chosen", "showlegend": False, "marker": spot}
    chart.data.append({**chosen, "x": np.array([found.threshold]), "y": np.array([found.share])})
    return chart


def percent(share: float) -> str:
    """At most one digit behind the point, and nothing that is there is none."""
    if 0 < share < LEAST_TOLD:
        return f"less than {LEAST_TOLD:.1%}"
    return f"{share:.1%}" if share < EXCEPTIONAL else f"{share:.0%}"
