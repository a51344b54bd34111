"""A chart as an SVG of a few kilobytes: for notebooks, where Plotly's script would come again with every update.

Curves, areas, marks and heat maps over steps; nothing else that a chart may hold. Inks are the page's own, so that it
reads on light and dark. Whatever comes from a run is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.plots.chart import Chart
from torchdoctor.plots.png import picture_uri
from torchdoctor.run import Floats

SIZE = (480, 250)
LEFT, RIGHT, TOP, BOTTOM = 58, 10, 14, 40
HEAT_LEFT = 120
"""Room for names of layers."""
HEAT_COLUMNS = 200
LABELS = 12
"""Layers that are named beside a heat map."""
CIVIDIS = ("00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838")
"""Nuñez, Anderton, Renslow, "Optimizing colormaps with consideration for color vision deficiency", 2018; ten of it."""
TICKS = 5
"""Of an axis, at most."""
SOFT = 'fill="currentColor" fill-opacity="0.65"'
LONGEST = 40


def can_draw(chart: Chart) -> bool:
    return bool(chart.data) and all(_is_numeric(trace.get("x")) and _kind(trace) for trace in chart.data)


def draw_svg(chart: Chart, size: tuple[int, int] = SIZE) -> str:
    """Its curves or its heat map; the title is left to the page. `can_draw` must hold."""
    heats = [trace for trace in chart.data if _kind(trace) == "heatmap"]
    heat = heats[0] if heats else None
    frame = _frame(chart, size, heat)
    parts = [part for each in heats for part in _draw_heat(each, frame)] or list(_draw_curves(chart, frame))
    inside = "".join([*parts, *_shapes(chart, frame), *_axes(chart, frame, heat), *_notes(chart, frame)])
    width, height = size
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="{_text(chart.title, 300)}" '
        f'style="max-width:100%;font:11px system-ui,sans-serif">{inside}</svg>'
    )


@dataclass(frozen=True)
class Frame:
    """From steps and values to places on the paper."""

    x: tuple[float, float]
    y: tuple[float, float]
    """logarithms where the axis is logarithmic"""
    is_log: bool
    left: float
    right: float
    top: float
    bottom: float

    def across(self, x: Any) -> Any:
        low, high = self.x
        return self.left + (np.asarray(x, float) - low) / ((high - low) or 1.0) * (self.right - self.left)

    def up(self, y: Any) -> Any:
        """Outside the range: at its edge."""
        low, high = self.y
        with np.errstate(all="ignore"):
            value = np.log10(np.asarray(y, float)) if self.is_log else np.asarray(y, float)
        share = np.clip((value - low) / ((high - low) or 1.0), 0.0, 1.0)
        return self.bottom - share * (self.bottom - self.top)


def _frame(chart: Chart, size: tuple[int, int], heat: Mapping[str, Any] | None) -> Frame:
    steps = np.concatenate([np.asarray(trace["x"], float) for trace in chart.data])
    x = (float(steps.min()), float(steps.max())) if len(steps) else (0.0, 1.0)
    axis = chart.layout.get("yaxis", {})
    is_log = axis.get("type") == "log"
    y = (0.0, 1.0) if heat is not None else _range(chart, axis.get("range"), is_log)
    left = HEAT_LEFT if heat is not None else LEFT
    return Frame(x, y, is_log, left, size[0] - RIGHT, TOP, size[1] - BOTTOM)


def _range(chart: Chart, given: Sequence[float] | None, is_log: bool) -> tuple[float, float]:
    if given is not None:
        return float(given[0]), float(given[1])
    values = np.concatenate([y for _, y in _curves(chart)] or [np.zeros(0)])
    known = values[np.isfinite(values) & (values > 0 if is_log else True)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    if is_log:
        low, high = math.log10(low), math.log10(high)
    margin = 0.04 * (high - low) or 0.05 * (abs(high) or 1.0)
    return low - margin, high + margin


def _curves(chart: Chart) -> Iterator[tuple[Mapping[str, Any], Floats]]:
    """Each trace with its values; stacked ones upon those before them."""
    below: Floats | None = None
    for trace in chart.data:
        values = np.asarray(trace["y"], float)
        if "stackgroup" in trace:
            below = values if below is None else below + values
            values = below
        yield trace, values


def _draw_curves(chart: Chart, frame: Frame) -> Iterator[str]:
    before: tuple[Any, Floats] | None = None
    for trace, values in _curves(chart):
        steps = np.asarray(trace["x"], float)
        line = trace.get("line", {})
        colour = _colour(line.get("color") or trace.get("marker", {}).get("color"))
        if "stackgroup" in trace or "fill" in trace:
            base = before if before is not None else (steps, np.full(len(values), float(frame.y[0])))
            shade = _colour(trace.get("fillcolor") or colour)
            yield _area(steps, values, *base, frame, shade, 0.8 if "stackgroup" in trace else 1.0)
        before = steps, values
        mode, width = str(trace.get("mode", "lines")), float(line.get("width", 0 if "stackgroup" in trace else 2))
        if "lines" in mode and width > 0:
            yield _line(steps, values, frame, colour, width, float(trace.get("opacity", 1.0)))
        if "markers" in mode:
            yield from _marks(steps, values, frame, colour)
    yield from _legend(chart, frame)


def _line(steps: Floats, values: Floats, frame: Frame, colour: str, width: float, opacity: float) -> str:
    """One path with gaps where a value is not known; of each column of the paper the least and the most."""
    x, y = frame.across(steps), frame.up(values)
    known = np.isfinite(values) & ((values > 0) | (not frame.is_log))
    keep = _extremes(x, y, known)
    path, pen = [], False
    for i in keep:
        if not known[i]:
            pen = False
            continue
        path.append(f"{'L' if pen else 'M'}{x[i]:.1f} {y[i]:.1f}")
        pen = True
    style = f'stroke="{colour}" stroke-width="{width:g}" stroke-opacity="{opacity:g}"'
    return f'<path d="{"".join(path)}" fill="none" {style} stroke-linejoin="round"/>'


def _extremes(x: Floats, y: Floats, known: Any) -> list[int]:
    column = np.round(x).astype(int)
    if len(column) <= 2 * len(np.unique(column)):
        return list(range(len(x)))
    kept: set[int] = set()
    for part in np.split(np.arange(len(x)), np.flatnonzero(np.diff(column)) + 1):
        good = part[known[part]]
        kept.update([int(good[y[good].argmin()]), int(good[y[good].argmax()])] if len(good) else [int(part[0])])
    return sorted(kept)


def _area(
    steps: Floats, values: Floats, base_steps: Any, base: Floats, frame: Frame, colour: str, opacity: float
) -> str:
    over = np.isfinite(values)
    under = np.isfinite(base)
    there = zip(frame.across(steps[over]), frame.up(values[over]), strict=True)
    back = zip(frame.across(base_steps[under])[::-1], frame.up(base[under])[::-1], strict=True)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (*there, *back))
    return f'<polygon points="{points}" fill="{colour}" fill-opacity="{opacity:g}"/>' if points else ""


def _marks(steps: Floats, values: Floats, frame: Frame, colour: str) -> Iterator[str]:
    for x, y in zip(frame.across(steps), frame.up(values), strict=True):
        if np.isfinite(y):
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>'


def _legend(chart: Chart, frame: Frame) -> Iterator[str]:
    x = frame.left
    for trace in chart.data:
        if trace.get("showlegend") is False or "extremes" in str(trace.get("name")):
            continue
        name = _text(trace.get("name", ""), 22)
        colour = _colour(trace.get("line", {}).get("color") or trace.get("marker", {}).get("color"))
        wide = 16 + 6 * len(str(trace.get("name", ""))[:22])
        if x + wide > frame.right:
            return
        yield f'<rect x="{x:.0f}" y="{frame.bottom + 28:.0f}" width="9" height="4" fill="{colour}"/>'
        yield f'<text x="{x + 12:.0f}" y="{frame.bottom + 34:.0f}" {SOFT}>{name}</text>'
        x += wide


def _draw_heat(trace: Mapping[str, Any], frame: Frame) -> Iterator[str]:
    values = _even(np.asarray(trace["x"], float), np.asarray(trace["z"], float), frame)
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    low, high = float(trace.get("zmin", low)), float(trace.get("zmax", high))
    picture = picture_uri(_shades(values, low, high, trace.get("colorscale"))[::-1])
    wide, tall = frame.right - frame.left, frame.bottom - frame.top
    yield (
        f'<image x="{frame.left}" y="{frame.top}" width="{wide:.0f}" height="{tall:.0f}" preserveAspectRatio="none" '
        f'style="image-rendering:pixelated" href="{picture}"/>'
    )
    if trace.get("showscale") is False:
        return  # lies over another, which has the names
    words = str(trace.get("colorbar", {}).get("title", {}).get("text", ""))
    legend = f"{words}: {low:.2g} (dark) to {high:.2g} (bright)"
    yield f'<text x="{frame.right:.0f}" y="{frame.bottom + 34:.0f}" text-anchor="end" {SOFT}>{_text(legend, 80)}</text>'
    names = list(trace["y"])
    for i in np.unique(np.linspace(0, len(names) - 1, min(LABELS, len(names))).round().astype(int)):
        y = frame.bottom - (i + 0.5) / len(names) * tall
        name = str(names[i])
        shown = name if len(name) <= 19 else f"..{name[-17:]}"
        yield f'<text x="{frame.left - 5}" y="{y + 4:.1f}" text-anchor="end" {SOFT}>{_text(shown, 20)}</text>'


def _even(steps: Floats, values: Floats, frame: Frame) -> Floats:
    """Columns at equal distances, each with the last look before it: looks are seldom evenly spaced."""
    at = np.linspace(*frame.x, HEAT_COLUMNS)
    return values[:, np.clip(np.searchsorted(steps, at, side="right") - 1, 0, len(steps) - 1)]


def _shades(values: Floats, low: float, high: float, scale: Any) -> NDArray[np.uint8]:
    """Colours of CIVIDIS, or the one colour that a scale of its own has; what is not known is clear."""
    own = isinstance(scale, list)
    stops = np.array([_parts(scale[-1][1].lstrip("#"))] * 2 if own else [_parts(c) for c in CIVIDIS], float)
    known = np.isfinite(values)
    level = np.where(known, (values - low) / ((high - low) or 1.0), 0.0) * (len(stops) - 1)
    colours = [np.interp(level, np.arange(len(stops)), stops[:, i]) for i in range(3)]
    return np.stack([*colours, 255.0 * known], axis=2).round().astype(np.uint8)


def _parts(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (0, 2, 4)]


def _shapes(chart: Chart, frame: Frame) -> Iterator[str]:
    for shape in chart.layout.get("shapes", ()):
        if shape.get("xref") == "paper":
            top, bottom = float(frame.up(shape["y1"])), float(frame.up(shape["y0"]))
            place = f'x="{frame.left}" y="{top:.1f}" width="{frame.right - frame.left:.1f}" height="{bottom - top:.1f}"'
            yield f'<rect {place} fill="{_colour(shape.get("fillcolor"))}"/>'
        elif shape.get("yref") == "paper":
            x = float(np.clip(frame.across(shape["x0"]), frame.left, frame.right))
            style = f'stroke="{_colour(shape.get("line", {}).get("color"))}" stroke-dasharray="3 3"'
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{frame.bottom}" {style}/>'


def _notes(chart: Chart, frame: Frame) -> Iterator[str]:
    """Names of findings beside their lines, and of the healthy band in its corner."""
    row = 0
    for note in chart.layout.get("annotations", ()):
        colour = _colour(note.get("font", {}).get("color"))
        if note.get("xref") == "paper":
            edge = float(frame.up(10 ** note["y"] if frame.is_log else note["y"]))
            x, anchor, y = frame.right - 4, "end", min(edge + 11, frame.bottom - 3)
        else:
            x = float(np.clip(frame.across(note["x"]), frame.left, frame.right))
            anchor, y = ("end" if x > (frame.left + frame.right) / 2 else "start"), frame.top + 10 + 12 * row
            x, row = x + (-4 if anchor == "end" else 4), row + 1
        yield f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{_text(note["text"])}</text>'


def _axes(chart: Chart, frame: Frame, heat: Mapping[str, Any] | None) -> Iterator[str]:
    line = 'stroke="currentColor" stroke-opacity="0.25"'
    yield f'<path d="M{frame.left} {frame.top}V{frame.bottom}H{frame.right}" fill="none" {line}/>'
    for step in _ticks(*frame.x):
        x = float(frame.across(step))
        yield f'<text x="{x:.1f}" y="{frame.bottom + 13}" text-anchor="middle" {SOFT}>{step:,g}</text>'
    if heat is not None:
        return
    for value in _log_ticks(*frame.y) if frame.is_log else _ticks(*frame.y):
        y = float(frame.up(value))
        yield f'<line x1="{frame.left}" x2="{frame.right}" y1="{y:.1f}" y2="{y:.1f}" {line}/>'
        yield f'<text x="{frame.left - 5}" y="{y + 4:.1f}" text-anchor="end" {SOFT}>{value:.3g}</text>'
    words = chart.layout.get("yaxis", {}).get("title", {}).get("text", "")
    middle = (frame.top + frame.bottom) / 2
    turned = f'transform="rotate(-90 11 {middle:.0f})"'
    yield f'<text x="11" y="{middle:.0f}" text-anchor="middle" {turned} {SOFT}>{_text(words)}</text>'


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers inside a range."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low] if math.isfinite(low) else []
    unit = 10.0 ** math.floor(math.log10(span / TICKS))
    step = next(unit * factor for factor in (1, 2, 5, 10) if span / (unit * factor) <= TICKS)
    return [float(f"{i * step:.9g}") for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; where the range has less than two of them, round numbers."""
    first, last = math.ceil(low), math.floor(high)
    if last > first:
        return [10.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / TICKS)))]
    return [value for value in _ticks(10.0**low, 10.0**high) if value > 0]


def _kind(trace: Mapping[str, Any]) -> str | None:
    kind = trace.get("type")
    return kind if kind == "heatmap" or (kind == "scatter" and trace.get("yaxis", "y") == "y") else None


def _is_numeric(values: Any) -> bool:
    return len(values) > 0 and np.asarray(values).dtype.kind in "fiu" if values is not None else False


def _colour(value: Any) -> str:
    return escape(str(value), quote=True) if value else "currentColor"


def _text(words: Any, most: int = LONGEST) -> str:
    kept = "".join(c for c in str(words) if c.isprintable())
    return escape(kept if len(kept) <= most else f"{kept[: most - 2]}..", quote=True)
