"""Where heads look: a small map for each, layers below each other, or one of them with its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchdoctor.distributions.gaps import nanmax
from torchdoctor.plots.chart import Chart, shorten
from torchdoctor.plots.palette import HEAT, RED
from torchdoctor.plots.png import picture_uri
from torchdoctor.plots.sample_kinds import Array
from torchdoctor.plots.samples import HEADROOM, MARGIN, fit, plain_text, shade, thin

MOST_HEADS, MOST_LAYERS = 16, 24
"""That are drawn; more would be too small to see."""
CELL, LEAST_WIDTH = 104, 6
"""Pixels of the height of a map with its caption, and heads that have room beside each other."""
PICTURE = 0.76
MOST_TOKENS = 64
"""Written at an axis."""


@dataclass(frozen=True)
class Map:
    """Of one head: queries x keys, each row a query's attention."""

    layer: str
    head: int
    weights: Array
    caption: str = ""
    is_odd: bool = False
    """worth a look: its caption is marked"""


def draw_attention(title: str, maps: Sequence[Map], tokens: Sequence[str] = ()) -> Chart:
    """All heads, each on a scale of its own from 0 (dark) to its largest weight (bright); a single one in full."""
    return _draw_one(title, maps[0], tokens) if len(maps) == 1 else _draw_grid(title, maps)


def _draw_grid(title: str, maps: Sequence[Map]) -> Chart:
    layers = list(dict.fromkeys(m.layer for m in maps))[:MOST_LAYERS]
    shown = [m for m in maps if m.layer in layers and m.head < MOST_HEADS]
    width = max(LEAST_WIDTH, 1 + max(m.head for m in shown))
    axis: dict[str, Any] = {"visible": False, "fixedrange": True}
    rows = {layer: 1.25 * at for at, layer in enumerate(layers)}
    height = 1.25 * len(layers)
    chart = Chart("attention", title, tall=True)
    chart.layout = {"xaxis": {**axis, "range": [0, width]}, "yaxis": {**axis, "range": [height, 0]}}
    chart.layout |= {"hovermode": "closest", "height": int(HEADROOM + CELL * height), "margin": MARGIN}
    chart.layout["images"] = [_place(m, rows[m.layer]) for m in shown]
    note = {"xanchor": "left", "yanchor": "top", "showarrow": False, "x": 0.03}
    chart.layout["annotations"] = [
        {**note, "text": f"<b>{plain_text(shorten(layer, 48), 50)}</b>  head: entropy", "y": y}
        for layer, y in rows.items()
    ]
    for odd in (False, True):
        part = [m for m in shown if m.is_odd is odd]
        if part:
            chart.data.append(_write_captions(part, rows, RED if odd else None))
    hover: dict[str, Any] = {"mode": "markers", "marker": {"size": 40, "opacity": 0}, "hoverinfo": "text"}
    place = {"x": np.array([m.head + 0.5 for m in shown]), "y": np.array([rows[m.layer] + 0.6 for m in shown])}
    hover |= {"type": "scatter", "showlegend": False, "hovertext": [_tell(m) for m in shown]}
    chart.data.append({**hover, **place})
    return chart


def _write_captions(maps: Sequence[Map], rows: dict[str, float], colour: str | None) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "text",
        "x": np.array([m.head + 0.5 for m in maps]),
        "y": np.array([rows[m.layer] + 0.23 + PICTURE for m in maps]),
        "text": [plain_text(m.caption, 20) for m in maps],
        "textposition": "bottom center",
        "textfont": {"size": 10, **({"color": colour} if colour else {})},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _place(m: Map, y: float) -> dict[str, Any]:
    size = {"sizex": 0.94, "sizey": PICTURE, "sizing": "contain", "xref": "x", "yref": "y", "layer": "above"}
    place = {"x": m.head + 0.5, "y": y + 0.22 + PICTURE, "xanchor": "center", "yanchor": "bottom"}
    return {"source": picture_uri(fit(shade(thin(m.weights)))), **size, **place}


def _tell(m: Map) -> str:
    queries, keys = m.weights.shape
    lines = f"{m.layer}, head {m.head}\n{m.caption}\n{queries} queries x {keys} keys, at most {nanmax(m.weights):.2g}"
    return plain_text(lines, 120)


def _draw_one(title: str, m: Map, tokens: Sequence[str]) -> Chart:
    queries, keys = m.weights.shape
    hover = "query %{y} gives key %{x}<br>%{z:.3f}<extra></extra>"
    heat = {"type": "heatmap", "z": m.weights, "colorscale": HEAT, "zmin": 0, "hovertemplate": hover}
    heat |= {"colorbar": {"title": {"text": "weight"}, "thickness": 14}}
    heat |= {"x": np.arange(keys), "y": np.arange(queries)}
    axis_x: dict[str, Any] = {"title": {"text": "key: what is looked at"}, "automargin": True}
    axis_y: dict[str, Any] = {"title": {"text": "query: who looks"}, "autorange": "reversed", "automargin": True}
    for axis, length in ((axis_x, keys), (axis_y, queries)):
        if length == len(tokens) <= MOST_TOKENS:
            axis |= {"tickvals": list(range(length)), "ticktext": [plain_text(t, 14) for t in tokens]}
    layout = {"xaxis": axis_x, "yaxis": axis_y, "hovermode": "closest", "height": 560}
    return Chart("attention", title, [heat], layout, tall=True)
