"""A line across a figure with its name beside it, at the right place on a logarithmic axis too."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


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
