"""A figure as HTML that works without a network and sends nothing anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

CONFIG: dict[str, Any] = {"displaylogo": False, "showSendToCloud": False, "plotlyServerURL": "", "responsive": True}
"""Plotly 7 has a button that uploads the chart unless it is told not to; the pages' charts.js says the same."""


def to_html(figure: Figure, whole_page: bool = True) -> str:
    """With Plotly's own script in it; on the white paper that Plotly's pages have."""
    from torchdoctor.plots.figure import themed

    return str(themed(figure, "light").to_html(full_html=whole_page, include_plotlyjs=True, config=CONFIG))
