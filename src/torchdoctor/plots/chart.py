"""A chart as plain data in Plotly's own words: quick to build and to send, and a Figure once somebody wants one.

Backgrounds are clear and inks are set by the theme, so that one chart serves a light page, a dark one and paper.
"""

from __future__ import annotations

import base64
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from torchdoctor.findings import Finding, Severity
from torchdoctor.plots.palette import BAND, CYCLE, GREEN, ORANGE, RED, SKY
from torchdoctor.plots.thinning import enclose, pick
from torchdoctor.run import Trace

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MARKED = {Severity.ERROR: RED, Severity.WARNING: ORANGE, Severity.INFO: SKY}
INK = {"light": ("#1f2328", "rgba(31, 35, 40, 0.12)"), "dark": ("#e6edf3", "rgba(230, 237, 243, 0.16)")}
"""Of texts, and of the lines behind the curves."""
TITLE_WIDTH = 100
"""Letters of a line in a figure's title; a page folds them by its own width."""
LARGEST = {"f4": float(np.finfo(np.float32).max), "i4": float(np.iinfo(np.int32).max)}
"""That half the bytes can hold; what is larger takes all."""
MARKS = 3
"""Findings that are marked in one chart; more would hide what they point at."""


@dataclass
class Chart:
    """`title` says what is to be seen; `name` is for anchors and file names."""

    name: str
    title: str
    data: list[dict[str, Any]] = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)
    tall: bool = False
    """needs room: one row a layer"""

    def to_dict(self, theme: str = "light") -> dict[str, Any]:
        title = {"text": "<br>".join(textwrap.wrap(self.title, TITLE_WIDTH))}
        return {"data": self.data, "layout": {**dressed(theme), **self.layout, "title": title}}

    def figure(self, theme: str = "light") -> Figure:
        from plotly.graph_objects import Figure

        plain = self.to_dict(theme)
        return Figure(data=plain["data"], layout=plain["layout"])

    def to_json(self) -> dict[str, Any]:
        """For a page, which sets inks and sizes itself; arrays as packed numbers."""
        return {
            "name": self.name,
            "title": self.title,
            "tall": self.tall,
            "data": pack(self.data),
            "layout": self.layout,
        }


def dressed(theme: str) -> dict[str, Any]:
    ink, line = INK[theme]
    axis = {"gridcolor": line, "linecolor": line, "zerolinecolor": line}
    return {
        "template": "none",
        "paper_bgcolor": "#ffffff" if theme == "light" else "#0d1117",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": ink, "family": "system-ui, sans-serif", "size": 13},
        "colorway": list(CYCLE),
        "margin": {"l": 70, "r": 30, "t": 60, "b": 50},
        "xaxis": axis,
        "yaxis": axis,
    }


def axes(x: str, y: str, *, log: bool = False, **more: Any) -> dict[str, Any]:
    """A layout with named axes."""
    vertical = {"title": {"text": y}, **({"type": "log", "exponentformat": "power"} if log else {})}
    legend = {"orientation": "h", "y": -0.22, "x": 0}
    return {"xaxis": {"title": {"text": x}}, "yaxis": vertical, "legend": legend, "hovermode": "x unified", **more}


def line(name: str, x: Any, y: Any, colour: str, **more: Any) -> dict[str, Any]:
    style = {"color": colour, "width": more.pop("width", 2), "dash": more.pop("dash", "solid")}
    x, y = pick(x, y)
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "line": style, **more}


def between(low: Any, high: Any, x: Any, colour: str, name: str) -> list[dict[str, Any]]:
    """The space between two curves, shaded."""
    x, low, high = enclose(x, low, high)
    edge = {"type": "scatter", "mode": "lines", "x": x, "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    return [{**edge, "y": low}, {**edge, "y": high, "fill": "tonexty", "fillcolor": faint(colour, 0.18), "name": name}]


def band(low: float, high: float, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Where healthy values lie: a shape and its name. On a logarithmic axis texts stand at logarithms, shapes not."""
    shape = {"type": "rect", "xref": "paper", "x0": 0, "x1": 1, "y0": low, "y1": high, "fillcolor": BAND}
    shape |= {"line": {"width": 0}, "layer": "below"}
    note = {"text": text, "xref": "paper", "x": 1, "y": math.log10(high), "xanchor": "right", "yanchor": "top"}
    return shape, {**note, "showarrow": False, "font": {"color": GREEN}}


def mark_findings(chart: Chart, findings: Sequence[Finding], last_step: int, height: float = 1.0) -> None:
    """A line where each finding begins, with its name; findings without a step have no place."""
    causes = [f for f in findings if f.consequence_of is None and f.severity is not Severity.INFO]
    placed = [f for f in causes if f.first_step is not None][:MARKS]
    shapes, notes = chart.layout.setdefault("shapes", []), chart.layout.setdefault("annotations", [])
    for number, finding in enumerate(placed):
        colour, at = MARKED[finding.severity], finding.first_step or 0
        late = at > 0.7 * last_step
        shapes.append({"type": "line", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1})
        shapes[-1]["line"] = {"color": colour, "dash": "dot", "width": 1.5}
        note = {"text": finding.name, "x": at, "yref": "paper", "y": height - 0.08 * number, "showarrow": False}
        notes.append({**note, "xanchor": "right" if late else "left", "font": {"color": colour, "size": 12}})


def faint(colour: str, strength: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {strength})"


def shorten(name: str, most: int = 34) -> str:
    """A layer's name on an axis: its end tells more than its beginning."""
    return name if len(name) <= most else "..." + name[3 - most :]


def percent(share: float) -> str:
    """What is neither none nor all is never told as such."""
    if not math.isfinite(share):
        return "an unknown share"
    text = f"{share:.0%}"
    if text == "0%" and share > 0:
        return "less than 1%"
    return "more than 99%" if text == "100%" and share < 1 else text


def tell_when(trace: Trace, found: np.ndarray) -> str:
    """Where rows of a trace are so: to its end, at one step, or at several; nothing where none is."""
    rows = np.flatnonzero(found)
    if not len(rows):
        return ""
    first = f"step {trace.steps[rows[0]]}" if trace.merged == 1 else f"about step {trace.steps[rows[0]]}"
    if found[rows[0] :].all() and (trace.merged == 1 or len(rows) > 1):  # of one merged row a single step may be so
        return f"from {first} on"
    return f"at {first}" + (f" and {len(rows) - 1} later times" if len(rows) > 1 else "")


def pack(value: Any) -> Any:
    """Arrays as base64, which Plotly reads by itself; numbers that are not finite as null."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fi":
            return value.tolist()
        size = abs(value).max(initial=0, where=np.isfinite(value))
        few = "f4" if value.dtype.kind == "f" else "i4"
        dtype = few if size <= LARGEST[few] else "f8"
        raw = np.ascontiguousarray(value.astype(f"<{dtype}"))
        packed = {"dtype": dtype, "bdata": base64.b64encode(raw.tobytes()).decode()}
        return packed | ({"shape": ", ".join(map(str, value.shape))} if value.ndim > 1 else {})
    if isinstance(value, dict):
        return {key: pack(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [pack(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
