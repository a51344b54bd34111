"""What an answer hangs on: a map beside the picture, bars for columns and tokens, a band under curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchdoctor.distributions.gaps import nanmax, nanmin
from torchdoctor.plots.chart import Chart, axes, line
from torchdoctor.plots.palette import BLUE, CYCLE, GREY, ORANGE
from torchdoctor.plots.png import picture_uri
from torchdoctor.plots.sample_kinds import IMAGE, SERIES, TABLE, Array, curves_of, pictures_of
from torchdoctor.plots.samples import HEADROOM, MARGIN, fit, paint, plain_text, scale_of, shade, thin

MOST_BARS = 30
HEIGHT = 380
TOP = 99.5
"""Percent of a map's values that are below its brightest: one pixel would darken all others."""


def draw_saliency(
    title: str, values: Array, saliency: Array, kind: str, names: Sequence[str] = (), is_signed: bool = False
) -> Chart:
    """`saliency` has the shape of the values, or of the positions of token ids."""
    if kind == IMAGE:
        return _draw_map(title, values, np.abs(saliency))
    if kind == SERIES:
        return _draw_curves(title, values, np.abs(saliency))
    return _draw_bars(title, values, saliency, kind, names, is_signed)


def picture_map(saliency: Array) -> Array:
    """Rows x columns: of channels the sum; of volumes and films what is shown of them."""
    shown = pictures_of(np.abs(saliency))
    first = shown[0]
    if first.ndim == 3:
        return np.asarray(first.sum(-1))
    return np.asarray(np.sum([p for p in shown if p.shape == first.shape], axis=0))


def _draw_map(title: str, values: Array, saliency: Array) -> Chart:
    picture = fit(paint(thin(pictures_of(values)[0]), scale_of([values])))
    heat = picture_map(saliency)
    most = float(np.percentile(heat, TOP)) or float(heat.max(initial=0.0))
    drawn = (("the input", picture), ("what the answer hangs on", fit(shade(thin(heat), most))))
    axis: dict[str, Any] = {"visible": False, "fixedrange": True}
    layout: dict[str, Any] = {"xaxis": {**axis, "range": [0, 2]}, "yaxis": {**axis, "range": [1.1, 0]}}
    layout |= {"hovermode": "closest", "height": HEIGHT + HEADROOM - 60, "margin": MARGIN}
    place = {"sizex": 0.96, "sizey": 0.98, "sizing": "contain", "xref": "x", "yref": "y", "y": 0.1}
    anchors = {"xanchor": "center", "yanchor": "top", "layer": "above"}
    layout["images"] = [
        {"source": picture_uri(pixels), "x": at + 0.5, **place, **anchors} for at, (_, pixels) in enumerate(drawn)
    ]
    note = {"yanchor": "top", "y": 0, "showarrow": False}
    layout["annotations"] = [{**note, "x": at + 0.5, "text": f"<b>{text}</b>"} for at, (text, _) in enumerate(drawn)]
    # Plotly draws no axes, and so no pictures, without a trace
    ghost = {"type": "scatter", "mode": "markers", "x": [0.5, 1.5], "y": [0.5, 0.5], "marker": {"opacity": 0}}
    texts = [f"{text}: {_span(part)}" for (text, _), part in zip(drawn, (values, heat), strict=True)]
    ghost |= {"hovertext": texts, "hoverinfo": "text", "showlegend": False}
    return Chart("saliency", title, [ghost], layout, tall=True)


def _span(values: Array) -> str:
    return f"{nanmin(values):.3g} to {nanmax(values):.3g}"


def _draw_curves(title: str, values: Array, saliency: Array) -> Chart:
    curves_CT, saliency_CT = curves_of(np.asarray(values, float)), curves_of(saliency)
    steps = np.arange(curves_CT.shape[1])
    total = saliency_CT.sum(0)
    share = total / (total.sum() or 1.0)
    bars = {"type": "bar", "name": "share of the saliency", "x": steps, "y": share, "yaxis": "y2"}
    chart = Chart("saliency", title, [{**bars, "marker": {"color": ORANGE}, "opacity": 0.75}], tall=True)
    chart.data += [
        line(f"channel {i}" if len(curves_CT) > 1 else "the input", steps, curve, CYCLE[(0, 2, 3, 4)[i % 4]])
        for i, curve in enumerate(curves_CT[:8])
    ]
    chart.layout = axes("position", "the input", height=HEIGHT + 60)
    chart.layout["xaxis"] |= {"anchor": "y2"}
    chart.layout["yaxis"] |= {"domain": [0.42, 1]}
    chart.layout["yaxis2"] = {"domain": [0, 0.34], "tickformat": ".0%", "title": {"text": "saliency"}}
    return chart


def _draw_bars(title: str, values: Array, saliency: Array, kind: str, names: Sequence[str], is_signed: bool) -> Chart:
    """Of tokens in their order, of columns the largest first."""
    flat = np.asarray(saliency, float).ravel()
    share = flat / (np.abs(flat).sum() or 1.0)
    labels = [plain_text(str(n), 24) for n in names] or [str(i) for i in range(len(flat))]
    order = np.argsort(-np.abs(share), kind="stable") if kind == TABLE else np.arange(len(flat))
    order = order[:MOST_BARS]
    number = np.asarray(values, float).ravel()
    texts = [f"{number[i]:.4g}" if kind == TABLE else f"position {i}" for i in order]
    colours = [BLUE if share[i] >= 0 else ORANGE for i in order]
    bars = {"type": "bar", "orientation": "h", "x": share[order] if is_signed else np.abs(share[order])}
    bars |= {"y": np.arange(len(order)), "marker": {"color": colours if is_signed else BLUE}, "text": texts}
    bars |= {"hovertemplate": "%{x:.1%}, value %{text}<extra></extra>", "textposition": "none", "showlegend": False}
    what = "share of the saliency" + (" (left: speaks against it)" if is_signed else "")
    layout = axes(
        what,
        "column" if kind == TABLE else "token",
        hovermode="closest",
        height=HEADROOM + 40 + 22 * max(6, len(order)),
    )
    layout["xaxis"] |= {"tickformat": ".0%", "zeroline": True, "zerolinecolor": GREY}
    ticks = {"tickvals": list(range(len(order))), "ticktext": [labels[i] for i in order]}
    layout["yaxis"] |= {**ticks, "autorange": "reversed", "automargin": True}
    if len(flat) > MOST_BARS:
        layout["xaxis"]["title"] = {"text": f"{what}; {MOST_BARS} of {len(flat)} are drawn"}
    return Chart("saliency", title, [bars], layout, tall=True)
