"""Heat maps of layers over steps: what no colour of the scale can show, and which rows findings name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, beside, mark_findings, mark_places
from torchdoctor.plots.palette import RED
from torchdoctor.plots.thinning import ROWS

STRIPES = ("#8A8A8A", "#BEBEBE")
"""Of cells without a number: the map's own greys are never next to each other in this way.
No theme's inks."""
STRIPED, COLUMNS = 60, 4
"""Stripes over all steps, and columns of each: they are to end where the numbers begin."""
ZERO, BROKEN = "orange: exactly zero", "striped: not finite"
UNKNOWN = "striped: not finite, or not measured"


def lay_over(heat: Mapping[str, Any], cells: np.ndarray, said: str, colours: Sequence[str]) -> dict[str, Any]:
    """Cells that are not of the scale: in one colour, or in stripes from column to column."""
    wide = -(-cells.shape[1] // STRIPED)
    shade = np.arange(cells.shape[1]) // wide % 2 if len(colours) > 1 else 1.0
    z = np.where(cells, shade, np.nan)
    scale = [[0, colours[0]], [1, colours[-1]]]
    drawn = {"type": "heatmap", "x": heat["x"], "y": heat["y"], "z": z, "colorscale": scale, "zmin": 0, "zmax": 1}
    return drawn | {"showscale": False, "hovertemplate": f"%{{y}}<br>step %{{x:.0f}}<br>{said}<extra></extra>"}


def stripe(heat: Mapping[str, Any], cells: np.ndarray, said: str) -> dict[str, Any]:
    """Cells without a number. Looks are seldom evenly spaced, stripes are: each is as the look nearest to it."""
    steps = np.asarray(heat["x"], np.float64)
    if len(steps) < 2:
        return lay_over(heat, cells, said, STRIPES)
    even = np.linspace(steps[0], steps[-1], STRIPED * COLUMNS)
    nearest = np.searchsorted((steps[1:] + steps[:-1]) / 2, even)
    return lay_over({**heat, "x": even}, cells[:, nearest], said, STRIPES)


def show_odd(chart: Chart, zero: np.ndarray, broken: np.ndarray, word: str = BROKEN) -> None:
    """Exact zeros and what is no number, each with a word in the chart's corner."""
    heat, notes = chart.data[0], []
    if zero.any():
        chart.data.append(lay_over(heat, zero, "exactly zero", [RED]))
        notes.append(ZERO)
    if broken.any():
        chart.data.append(stripe(heat, broken, word.partition(": ")[2]))
        notes.append(word)
    if notes:
        chart.layout.setdefault("annotations", []).append(beside("; ".join(notes)))


def mark_rows(chart: Chart, findings: Sequence[Finding], names: Sequence[str], last_step: int) -> None:
    """Where findings begin, and the rows that they name."""
    mark_findings(chart, findings, last_step)
    mark_places(chart, findings, rows_of(names, chart.data[0]["y"]), "y")


def rows_of(names: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """The label of each name's row, which it may share with its neighbours."""
    size = -(-len(names) // ROWS)
    return {name: labels[at // size] for at, name in enumerate(names)}
