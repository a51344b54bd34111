"""Plotly figures of what instruments measure, in the style of the charts of runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torchdoctor.errors import UsageError
from torchdoctor.plots.chart import dressed, fold
from torchdoctor.plots.palette import inked

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def new_figure(title: str, x: str, y: str, **layout: Any) -> Figure:
    """An empty one; `title` says what is to be seen."""
    try:
        from plotly.graph_objects import Figure
    except ImportError as error:
        raise UsageError("a plot needs plotly: pip install plotly") from error
    figure = Figure(layout=dressed("light"))
    return figure.update_layout(title_text=fold(title), xaxis_title=x, yaxis_title=y, **layout)


def themed(figure: Figure, theme: str) -> Figure:
    """The same in a theme's inks."""
    plain = figure.to_plotly_json()
    drawn = type(figure)(data=inked(plain["data"], theme), layout=inked(plain["layout"], theme))
    return drawn.update_layout({name: part for name, part in dressed(theme).items() if name != "margin"})


def mark_level(chart: Figure, value: float, text: str, colour: str, dash: str = "dash") -> None:
    """Horizontal. Plotly takes lines in the axis' own numbers, but texts in their logarithms."""
    log = chart.layout.yaxis.type == "log"
    if not math.isfinite(value) or (log and value <= 0):
        return
    chart.add_hline(value, line={"color": colour, "dash": dash})
    place = math.log10(value) if log else value
    chart.add_annotation(
        text=text, y=place, x=1, xref="x domain", xanchor="right", yanchor="bottom", showarrow=False, font_color=colour
    )


def mark_place(chart: Figure, value: float, text: str, colour: str, dash: str = "solid", height: float = 1.0) -> None:
    """Vertical; its name stands at this share of the height."""
    log = chart.layout.xaxis.type == "log"
    if not math.isfinite(value) or (log and value <= 0):
        return
    chart.add_vline(value, line={"color": colour, "dash": dash})
    place = math.log10(value) if log else value
    chart.add_annotation(
        text=text, x=place, y=height, yref="y domain", xanchor="left", yanchor="top", showarrow=False, font_color=colour
    )
