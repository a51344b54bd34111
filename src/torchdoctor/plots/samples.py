"""Samples as a model gets them, as a grid of small pictures, curves or rows of numbers, with what is said of each.

    draw_samples("batches", "", [Group("training", arrays, captions), Group("validation", arrays, captions)])

Nothing is undone that a transform did: one scale holds for all groups of the same quantity, so that a difference in
preprocessing shows. What is not finite is red.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchdoctor.distributions.gaps import nanmedian, nanstd
from torchdoctor.plots.chart import Chart, line
from torchdoctor.plots.palette import CYCLE, GREY, HEAT, RED
from torchdoctor.plots.png import picture_uri
from torchdoctor.plots.sample_kinds import (
    SERIES,
    TABLE,
    TOKENS,
    Array,
    curves_of,
    kind_of,
    pictures_of,
    shown_part,
)
from torchdoctor.plots.sample_values import describe_splits, measure_samples
from torchdoctor.plots.svg import CIVIDIS
from torchdoctor.plots.thinning import pick

COLUMNS, BESIDE = 6, 3
"""Samples in a row of one group, and of each of two that stand beside each other: a phone shows them still."""
CELL = 132
"""Pixels of the height of a sample with its caption; the width is the page's."""
ROW = 26
"""The same of a row of numbers."""
HEADROOM = 110
"""For title and margins."""
MARGIN = {"l": 20, "r": 20, "t": 60, "b": 20}
SHARP = 96
"""Pixels that a small picture is enlarged to, and a large one is thinned to twice of: browsers would blur the one, and
nobody sees the other."""
POINTS = 200
"""Of a curve in its small frame."""
TAIL = 1.0
"""Percent of the values at either end that the scale leaves out: one hot pixel would darken all others."""
MOST_NUMBERS = 128
"""Columns of rows of numbers; a page has no room for more."""
WRITTEN = 24
"""Columns up to which the numbers are written into their cells."""
LETTERS = 22
"""Of a line of a caption."""


@dataclass(frozen=True)
class Group:
    """Samples under one heading, each an array of its own; a caption may have two lines."""

    heading: str
    arrays: Sequence[Array]
    captions: Sequence[str] = ()
    quantity: str = "inputs"
    """groups of the same are drawn on one scale"""
    columns: Sequence[str] = ()
    """names of a table's columns"""
    words: Sequence[Sequence[str]] = ()
    """what token ids stand for, sample by sample"""


def draw_samples(name: str, title: str, groups: Sequence[Group], kind: str | None = None) -> Chart:
    """Without a title it says how the first quantity is spread, and how its groups differ. `kind`: image, series,
    tokens or table, where that cannot be told by shapes. The height stands in the layout."""
    groups = [group for group in groups if len(group.arrays)]
    if not groups:
        return Chart(name, title or "There are no samples to show", layout=_empty(1, 1, HEADROOM))
    kinds = {g.quantity: kind or _common_kind(g.arrays) for g in reversed(groups)}
    if not title:
        first = [g for g in groups if g.quantity == groups[0].quantity]
        title = describe_splits(
            [g.heading for g in first], [measure_samples(g.arrays, kinds[g.quantity]) for g in first]
        )
    if kinds[groups[0].quantity] in (TOKENS, TABLE):
        return _draw_rows(name, title, groups, kinds)
    return _draw_grid(name, title, groups, kinds)


def _common_kind(arrays: Sequence[Array]) -> str:
    kinds = {kind_of(a) for a in arrays}
    return kinds.pop() if len(kinds) == 1 else TABLE


def scale_of(arrays: Sequence[Array], tail: float = TAIL) -> tuple[float, float]:
    """The range that is drawn, without the outermost values: `tail` percent at either end."""
    values = np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays])
    known = values[np.isfinite(values)]
    if not len(known):
        return 0.0, 1.0
    low, high = np.percentile(known, [tail, 100 - tail])
    if low == high:
        low, high = known.min(), known.max()
    beside = max(0.5, abs(float(low)) / 1000)  # of large numbers, half of one is nothing
    return (float(low), float(high)) if low < high else (float(low) - beside, float(low) + beside)


def paint(picture: Array, scale: tuple[float, float]) -> Any:
    """Pixels of 0 to 255; what is not finite is red."""
    low, high = scale
    picture = np.asarray(picture, np.float64)
    known = np.isfinite(picture)
    with np.errstate(all="ignore"):
        shade = np.clip((np.where(known, picture, low) - low) / (high - low), 0.0, 1.0)
    pixels = (255 * shade).round().astype(np.uint8)
    if known.all():
        return pixels
    pixels = pixels if pixels.ndim == 3 else np.repeat(pixels[..., None], 3, axis=-1)
    lost = ~(known if known.ndim == 2 else known.all(axis=-1))
    pixels[lost] = [int(RED[i : i + 2], 16) for i in (1, 3, 5)]
    return pixels


def shade(picture: Array, most: float | None = None) -> Any:
    """Pixels of rows x columns from 0 (dark) to `most` (bright), read the same by colour-blind eyes."""
    picture = np.nan_to_num(np.asarray(picture, np.float64))
    top = most or float(picture.max(initial=0.0)) or 1.0
    stops = np.array([[int(c[i : i + 2], 16) for i in (0, 2, 4)] for c in CIVIDIS], float)
    at = np.clip(picture / top, 0.0, 1.0) * (len(stops) - 1)
    return np.stack([np.interp(at, np.arange(len(stops)), stops[:, i]) for i in range(3)], -1).astype(np.uint8)


def thin(picture: Array) -> Array:
    """A large picture with fewer pixels: of each block the one that stands out most, and first what is not finite."""
    rows, columns = picture.shape[:2]
    step = -(-max(rows, columns) // (2 * SHARP))
    if step <= 1:
        return picture
    down, across = -(-rows // step), -(-columns // step)
    missing = [(0, down * step - rows), (0, across * step - columns), *[(0, 0)] * (picture.ndim - 2)]
    whole = np.pad(picture, missing, mode="edge").reshape(down, step, across, step, -1)
    blocks = whole.swapaxes(1, 2).reshape(down, across, step * step, -1)
    size = np.asarray(blocks, np.float64).sum(axis=-1)
    known = np.isfinite(size)
    middle = np.where(known, size, 0.0).sum(axis=-1) / np.maximum(known.sum(axis=-1), 1)
    away = np.where(known, np.abs(np.where(known, size, 0.0) - middle[..., None]), np.inf)
    chosen = np.take_along_axis(blocks, away.argmax(axis=-1)[..., None, None], axis=2)
    return chosen.reshape(down, across, *picture.shape[2:])


def fit(pixels: Any) -> Any:
    """Small pictures enlarged without blur."""
    times = max(1, SHARP // max(pixels.shape[:2]))
    return pixels.repeat(times, axis=0).repeat(times, axis=1)


def plain_text(words: str, most: int = LETTERS) -> str:
    """For Plotly, which reads tags in texts; lines are kept apart and cut."""
    lines = [s if len(s) <= most else f"{s[: most - 2]}.." for s in str(words).splitlines()]
    kept = ("".join(c for c in s if c.isprintable()) for s in lines)
    return "<br>".join(s.replace("&", "&amp;").replace("<", "&lt;") for s in kept)


@dataclass(frozen=True)
class _Cell:
    """A sample's place: the corner, in columns and rows of the grid."""

    group: Group
    at: int
    x: float
    y: float

    @property
    def sample(self) -> Array:
        return np.asarray(self.group.arrays[self.at])

    @property
    def caption(self) -> str:
        return self.group.captions[self.at] if self.at < len(self.group.captions) else ""


def _draw_grid(name: str, title: str, groups: Sequence[Group], kinds: dict[str, str]) -> Chart:
    cells, notes, width, height = _place(groups)
    chart = Chart(name, title, layout=_empty(width, height, int(HEADROOM + CELL * height)), tall=True)
    tails = {q: 0.0 if kinds[q] == SERIES else TAIL for q in kinds}  # a pulse is what a curve is drawn for
    scales = {q: scale_of([a for g in groups if g.quantity == q for a in g.arrays], tails[q]) for q in kinds}
    images: list[dict[str, Any]] = []
    for cell in cells:
        scale = scales[cell.group.quantity]
        if kinds[cell.group.quantity] == SERIES:
            chart.data += _draw_curves(cell, scale)
        else:
            images += _place_pictures(cell, scale)
    chart.layout["images"] = images
    chart.layout["annotations"] = notes
    chart.data += [_write_captions(cells), _hover(cells)]
    return chart


def _place(groups: Sequence[Group]) -> tuple[list[_Cell], list[dict[str, Any]], float, float]:
    """Two groups stand beside each other, more of them in rows of two."""
    beside = len(groups) > 1
    most = max(len(g.arrays) for g in groups)
    columns = min(BESIDE if beside else COLUMNS, most)
    gap, head = (0.25 if beside else 0.0), (0.25 if any(g.heading for g in groups) else 0.0)
    cells: list[_Cell] = []
    notes: list[dict[str, Any]] = []
    top = 0.0
    for start in range(0, len(groups), 2):
        row = groups[start : start + 2]
        for number, group in enumerate(row):
            left = number * (columns + gap)
            notes.append(_heading(group, left, top))
            for at in range(len(group.arrays)):
                cells.append(_Cell(group, at, left + at % columns, top + head + at // columns))
        top += head + max(-(-len(g.arrays) // columns) for g in row) + 0.1
    return cells, notes, columns * min(2, len(groups)) + gap, top


def _heading(group: Group, x: float, y: float) -> dict[str, Any]:
    text = f"<b>{plain_text(group.heading, 40)}</b>"
    return {"text": text, "x": x + 0.03, "y": y, "xanchor": "left", "yanchor": "top", "showarrow": False}


PICTURE = 0.74
"""Of a cell's height; below it stands the caption."""


def _place_pictures(cell: _Cell, scale: tuple[float, float]) -> list[dict[str, Any]]:
    pictures = pictures_of(cell.sample)
    across = int(np.ceil(np.sqrt(len(pictures))))
    down = -(-len(pictures) // across)
    wide, tall = 0.94 / across, PICTURE / down
    placed = []
    for number, picture in enumerate(pictures):
        place = {"x": cell.x + 0.03 + wide * (number % across + 0.5), "y": cell.y + tall * (number // across + 1)}
        size = {"sizex": wide * 0.97, "sizey": tall * 0.97, "sizing": "contain", "xref": "x", "yref": "y"}
        source = picture_uri(fit(paint(thin(picture), scale)))
        placed.append({"source": source, "xanchor": "center", "yanchor": "bottom", "layer": "above", **place, **size})
    return placed


def _draw_curves(cell: _Cell, scale: tuple[float, float]) -> list[dict[str, Any]]:
    low, high = scale
    curves_CT = np.asarray(curves_of(cell.sample), np.float64)
    x = cell.x + 0.03 + 0.94 * np.linspace(0.0, 1.0, curves_CT.shape[1])
    with np.errstate(all="ignore"):
        height = 1.0 - np.clip((curves_CT - low) / (high - low), 0.0, 1.0)
    y = np.where(np.isfinite(curves_CT), cell.y + PICTURE * height, np.nan)
    frame_x, frame_y = cell.x + np.array([0.03, 0.03, 0.97]), cell.y + PICTURE * np.array([0, 1, 1])
    plain = {"hoverinfo": "skip", "showlegend": False}
    drawn = [line("", frame_x, frame_y, GREY, width=1, **plain)]
    drawn += [
        line("", *pick(x, values, POINTS), CYCLE[i % len(CYCLE)], width=1.5, **plain) for i, values in enumerate(y)
    ]
    lost = np.flatnonzero(~np.isfinite(curves_CT).all(axis=0))
    lost = lost[np.unique(lost * POINTS // max(1, len(x)), return_index=True)[1]]
    if len(lost):
        marker = {"color": RED, "size": 4, "symbol": "x"}
        marks = {"type": "scatter", "mode": "markers", "x": x[lost], "y": np.full(len(lost), cell.y + PICTURE)}
        drawn.append({**marks, "marker": marker, **plain})
    return drawn


def _write_captions(cells: Sequence[_Cell]) -> dict[str, Any]:
    written = [c for c in cells if c.caption]
    return {
        "type": "scatter",
        "mode": "text",
        "x": np.array([c.x + 0.5 for c in written]),
        "y": np.array([c.y + PICTURE + 0.01 for c in written]),
        "text": [plain_text(c.caption) for c in written],
        "textposition": "bottom center",
        "textfont": {"size": 11},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _hover(cells: Sequence[_Cell]) -> dict[str, Any]:
    """What a picture does not show: shape, range, and the caption in full."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": np.array([c.x + 0.5 for c in cells]),
        "y": np.array([c.y + PICTURE / 2 for c in cells]),
        "marker": {"size": 40, "opacity": 0},
        "hovertext": [_tell(c) for c in cells],
        "hoverinfo": "text",
        "showlegend": False,
    }


def _tell(cell: _Cell) -> str:
    sample = np.asarray(cell.sample, np.float64)
    known = sample[np.isfinite(sample)]
    spread = f"{known.min():.3g} to {known.max():.3g}, mean {known.mean():.3g}" if len(known) else "nothing finite"
    lost = f", {sample.size - len(known):,} not finite" if len(known) < sample.size else ""
    part = shown_part(cell.sample)
    shape = " x ".join(map(str, cell.sample.shape)) or "one number"
    where = f"{cell.group.heading}: " if cell.group.heading else ""
    lines = [cell.caption, f"{where}{shape}{f' ({part} shown)' if part else ''}", f"{spread}{lost}"]
    return plain_text("\n".join(s for s in lines if s), 120)


def _draw_rows(name: str, title: str, groups: Sequence[Group], kinds: dict[str, str]) -> Chart:
    """Token ids and rows of a table: a line a sample, groups below each other on one scale."""
    kind = kinds[groups[0].quantity]
    groups = [g for g in groups if g.quantity == groups[0].quantity]
    rows = [np.asarray(a).ravel()[:MOST_NUMBERS] for g in groups for a in g.arrays]
    table_SF = np.full((len(rows), max(len(r) for r in rows)), np.nan)
    for at, row in enumerate(rows):
        table_SF[at, : len(row)] = row
    labels = [_label(g, at) for g in groups for at in range(len(g.arrays))]
    columns = list(groups[0].columns)[: table_SF.shape[1]] if kind == TABLE else []
    named = [plain_text(c, 18) for c in columns] or [str(i) for i in range(table_SF.shape[1])]
    words = [plain for g in groups for plain in (g.words or [()] * len(g.arrays))]
    heat = _heat(table_SF, kind, words)
    heat |= {"x": np.arange(table_SF.shape[1]), "y": np.arange(len(rows))}
    cut = max(np.asarray(a).size for g in groups for a in g.arrays)
    what = "position" if kind == TOKENS else "column"
    more = f" (the first {MOST_NUMBERS} of {cut})" if cut > MOST_NUMBERS else ""
    axis_y = {"tickvals": list(range(len(rows))), "ticktext": labels, "autorange": "reversed", "automargin": True}
    axis_x: dict[str, Any] = {"title": {"text": f"{what}{more}"}, "automargin": True}
    if columns:
        axis_x |= {"tickvals": list(range(len(named))), "ticktext": named, "tickangle": -45}
    layout = {"xaxis": axis_x, "yaxis": {**axis_y, "showgrid": False}, "hovermode": "closest"}
    layout |= {"height": HEADROOM + 40 + ROW * len(rows), "shapes": _borders(groups)}
    return Chart(name, title, [heat], layout, tall=True)


def _label(group: Group, at: int) -> str:
    caption = group.captions[at].replace("\n", ", ") if at < len(group.captions) else str(at)
    return f"{plain_text(group.heading, 14)}: {plain_text(caption)}" if group.heading else plain_text(caption)


def _heat(table_SF: Array, kind: str, words: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Columns of a table have scales of their own: the colour is how far a value lies from its column's middle."""
    shade_SF, bar = table_SF, "id"
    if kind == TABLE:
        finite = np.where(np.isfinite(table_SF), table_SF, np.nan)
        known = np.isfinite(finite).any(axis=0)
        middle, spread = np.zeros(finite.shape[1]), np.ones(finite.shape[1])
        middle[known] = nanmedian(finite[:, known], axis=0)
        low, high = np.nanpercentile(finite[:, known], [16, 84], axis=0)
        width = np.where(high > low, (high - low) / 2, nanstd(finite[:, known], axis=0))
        spread[known] = np.where(width > 0, width, 1.0)
        shade_SF, bar = np.clip((finite - middle) / spread, -4.0, 4.0), "spreads from<br>the column's middle"
    text = [[_written(v, kind, words[r], c) for c, v in enumerate(row)] for r, row in enumerate(table_SF)]
    heat: dict[str, Any] = {"type": "heatmap", "z": shade_SF, "colorscale": HEAT, "text": text, "xgap": 1, "ygap": 1}
    heat |= {"hovertemplate": "column %{x}: %{text}<extra></extra>", "hoverongaps": True}
    heat["colorbar"] = {"title": {"text": bar}, "thickness": 12}
    if kind == TABLE:
        heat |= {"zmin": -4, "zmax": 4}
    if table_SF.shape[1] <= WRITTEN:
        heat |= {"texttemplate": "%{text}", "textfont": {"size": 10}}
    return heat


def _written(value: float, kind: str, words: Sequence[str], column: int) -> str:
    if kind == TOKENS:
        known = plain_text(words[column], 14) if column < len(words) else ""
        return known or ("" if np.isnan(value) else f"{value:.0f}")
    return f"{value:.3g}"


def _borders(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """A line between one group's rows and the next one's."""
    ends = np.cumsum([len(g.arrays) for g in groups])[:-1] - 0.5
    style = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": RED, "width": 2}}
    return [{**style, "y0": float(y), "y1": float(y)} for y in ends]


def _empty(width: float, height: float, pixels: int) -> dict[str, Any]:
    """Axes that only place things."""
    axis = {"visible": False, "fixedrange": True}
    across, down = {**axis, "range": [0, width]}, {**axis, "range": [height, 0]}
    return {"xaxis": across, "yaxis": down, "hovermode": "closest", "height": pixels, "margin": MARGIN}
