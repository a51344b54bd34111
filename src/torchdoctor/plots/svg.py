"""A chart as an SVG of a few kilobytes: for notebooks, where Plotly's script would come again with every update.

Curves, areas, marks and heat maps over steps; nothing else that a chart may hold. A notebook's paper may be light or
dark: texts are in the page's own ink, and lines in those for light paper, which stand out from dark paper, too.
Whatever comes from a run is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.plots.chart import SIGNS, Chart
from torchdoctor.plots.palette import ink
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
LEGEND_ROWS, LEGEND_ROW, LEGEND_LETTERS = 2, 13, 22
SAMPLE, MORE = 20, 70
"""Pixels of a line's sample in the legend, and of "and 12 more"."""
DASHED = {"dash": "6 3", "dot": "2 2", "dashdot": "6 2 2 2", "longdash": "10 3", "longdashdot": "10 2 2 2"}
"""Plotly's words."""
SQUARE = "\u25a0"


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
    rows = max((row for row, _, _ in _placed(chart, left, size[0] - RIGHT)), default=0) if heat is None else 0
    return Frame(x, y, is_log, left, size[0] - RIGHT, TOP, size[1] - BOTTOM - rows * LEGEND_ROW)


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
            dash = DASHED.get(str(line.get("dash")), "")
            yield _line(steps, values, frame, colour, width, float(trace.get("opacity", 1.0)), dash)
        if "markers" in mode:
            few = max(1, len(steps) // (trace.get("marker", {}).get("maxdisplayed") or len(steps)))
            yield from _marks(steps[::few], values[::few], frame, colour)
    yield from _legend(chart, frame)


def _line(
    steps: Floats, values: Floats, frame: Frame, colour: str, width: float, opacity: float, dash: str = ""
) -> str:
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
    style += f' stroke-dasharray="{dash}"' if dash else ""
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
    named = {str(trace.get("name")): trace for trace in _named(chart)}
    for row, x, name in _placed(chart, frame.left, frame.right):
        y = frame.bottom + 28 + LEGEND_ROW * row
        line = named.get(name, {}).get("line", {})
        if name in named:
            colour = _colour(line.get("color") or named[name].get("marker", {}).get("color"))
            dash = DASHED.get(str(line.get("dash")), "")
            style = f'stroke="{colour}" stroke-width="3"' + (f' stroke-dasharray="{dash}"' if dash else "")
            yield f'<path d="M{x:.0f} {y + 2}h{SAMPLE}" {style}/>'
        indent = SAMPLE + 3 if name in named else 0
        yield f'<text x="{x + indent:.0f}" y="{y + 6:.0f}" {SOFT}>{_text(name, LEGEND_LETTERS)}</text>'


def _named(chart: Chart) -> list[Mapping[str, Any]]:
    shown = [trace for trace in chart.data if trace.get("showlegend") is not False]
    return [trace for trace in shown if "extremes" not in str(trace.get("name"))]


def _placed(chart: Chart, left: float, right: float) -> list[tuple[int, float, str]]:
    """Row, place and name of what a legend holds; at its end how many more have no room."""
    names = [str(trace.get("name", "")) for trace in _named(chart)]
    found: list[tuple[int, float, str]] = []
    row, x = 0, left
    for at, name in enumerate(names):
        wide = SAMPLE + 9 + 6 * len(name[:LEGEND_LETTERS])
        spare = MORE if row == LEGEND_ROWS - 1 and at < len(names) - 1 else 0
        if x > left and x + wide + spare > right:
            if row == LEGEND_ROWS - 1:
                return [*found, (row, x, f"and {len(names) - at} more")]
            row, x = row + 1, left
        found.append((row, x, name))
        x += wide
    return found


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
    """Colours of CIVIDIS, or of a scale of its own; what is not known is clear."""
    own = [colour.lstrip("#") for _, colour in scale] if isinstance(scale, list) else CIVIDIS
    stops = np.array([_parts(colour) for colour in own], float)
    known = np.isfinite(values)
    level = np.where(known, (values - low) / ((high - low) or 1.0), 0.0) * (len(stops) - 1)
    colours = [np.interp(level, np.arange(len(stops)), stops[:, i]) for i in range(3)]
    return np.stack([*colours, 255.0 * known], axis=2).round().astype(np.uint8)


def _parts(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (0, 2, 4)]


def _shapes(chart: Chart, frame: Frame) -> Iterator[str]:
    for top, bottom, colour in _bands(chart, frame):
        place = f'x="{frame.left}" y="{top:.1f}" width="{frame.right - frame.left:.1f}" height="{bottom - top:.1f}"'
        yield f'<rect {place} fill="{colour}"/>'
    for shape in chart.layout.get("shapes", ()):
        if shape.get("yref") == "paper":
            x = float(np.clip(frame.across(shape["x0"]), frame.left, frame.right))
            line = shape.get("line", {})
            style = f'stroke="{_colour(line.get("color"))}" stroke-width="{float(line.get("width", 1)):g}"'
            style += ' stroke-dasharray="3 3"' if "dash" in line else ""
            yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{frame.bottom}" {style}/>'


def _bands(chart: Chart, frame: Frame) -> list[tuple[float, float, str]]:
    """Top, bottom and colour of those of which something is inside the range."""
    across = [shape for shape in chart.layout.get("shapes", ()) if shape.get("xref") == "paper"]
    ends = [(float(frame.up(s["y1"])), float(frame.up(s["y0"])), _colour(s.get("fillcolor"))) for s in across]
    return [(top, bottom, colour) for top, bottom, colour in ends if bottom > top]


def _notes(chart: Chart, frame: Frame) -> Iterator[str]:
    """Names of findings beside their lines, of rows at their heights, and of the healthy band in its corner."""
    row = 0
    heat = next((trace for trace in chart.data if _kind(trace) == "heatmap"), None)
    for note in chart.layout.get("annotations", ()):
        if note.get("yref") == "paper" and note.get("xref") == "paper":
            x, y, anchor = frame.right, frame.top - 3, "end"
        elif note.get("xref") == "paper":
            height = _height(note["y"], heat, frame)
            if height is None or not (frame.top <= height <= frame.bottom or _bands(chart, frame)):
                continue
            right = note.get("xanchor") == "right"
            x, anchor = (frame.right - 4, "end") if right else (frame.left + 4, "start")
            below = 11 if note.get("yanchor") == "top" else 4
            y = float(np.clip(height, frame.top, frame.bottom - 14 if below == 11 else frame.bottom)) + below
        else:
            x = float(np.clip(frame.across(note["x"]), frame.left, frame.right))
            anchor, y = ("end" if x > (frame.left + frame.right) / 2 else "start"), frame.top + 10 + 12 * row
            x, row = x + (-4 if anchor == "end" else 4), row + 1
        yield from _note(note, x, y, anchor, heat is not None and y > frame.top)


def _height(at: Any, heat: Mapping[str, Any] | None, frame: Frame) -> float | None:
    """Of a row by its label, or of a value (texts stand at logarithms); None where there is no such row."""
    if isinstance(at, str):
        names = list(heat["y"]) if heat is not None else []
        return frame.bottom - (names.index(at) + 0.5) / len(names) * (frame.bottom - frame.top) if at in names else None
    low, high = frame.y
    return float(frame.bottom - (at - low) / ((high - low) or 1.0) * (frame.bottom - frame.top))


def _note(note: Mapping[str, Any], x: float, y: float, anchor: str, over_heat: bool) -> Iterator[str]:
    """In the page's ink with a sign of its colour; over a heat map dark on a bright ground, whatever the page is."""
    words, colour = str(note["text"]), note.get("font", {}).get("color")
    sign, rest = (words[0], words[1:]) if words[:1] in SIGNS.values() else (SQUARE, f" {words}")
    rest = _text(rest, 2 * LONGEST)
    wide = 6.2 * (len(rest) + 1.5) + 6
    if over_heat:
        left = x - wide + 3 if anchor == "end" else x - 3
        place = f'x="{left:.1f}" y="{y - 10:.1f}" width="{wide:.0f}" height="13"'
        yield f'<rect {place} fill="#ffffff" fill-opacity="0.85"/>'
    style = 'fill="#1f2328"' if over_heat else 'fill="currentColor"'
    told = f'<tspan fill="{_colour(colour)}">{sign}</tspan>{rest}' if colour else rest.strip()
    yield f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}>{told}</text>'


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
    return escape(ink(str(value), "light"), quote=True) if value else "currentColor"


def _text(words: Any, most: int = LONGEST) -> str:
    kept = "".join(c for c in str(words) if c.isprintable())
    return escape(kept if len(kept) <= most else f"{kept[: most - 2]}..", quote=True)
