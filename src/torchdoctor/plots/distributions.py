"""How weights and gradients are spread, and how that moves over the steps: a heat map of magnitudes by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from torchdoctor.plots.chart import Chart, axes
from torchdoctor.plots.palette import HEAT
from torchdoctor.run import Floats, Ints
from torchdoctor.signals import histogram_edges


class Spread(Protocol):
    """As store.Histograms: counts are (steps, columns, bins) over the bins of signals.histogram_edges."""

    steps: Ints
    columns: tuple[str, ...]
    counts: Floats


def draw_distribution(spreads: Sequence[Spread], column: str, what: str = "weights") -> Chart | None:
    """Of one tensor, its magnitudes over the steps; exact zeros are said in the title."""
    found = [s for s in spreads if column in s.columns]
    if not found:
        return None
    steps = np.concatenate([s.steps for s in found])
    counts_SB = np.concatenate([s.counts[:, s.columns.index(column)] for s in found])
    edges = histogram_edges()
    upper = [i for i, (low, _) in enumerate(edges) if low > 0 or (low == 0 and edges[i][1] > 0)]
    lower = [len(edges) - 1 - i for i in upper]
    size_SB = counts_SB[:, upper] + counts_SB[:, lower]
    total_S = np.maximum(counts_SB.sum(axis=1), 1)
    share_BS = (size_SB / total_S[:, None]).T
    keep = np.flatnonzero(share_BS.max(axis=1) > 0)
    if not len(keep):
        return None
    rows = slice(keep[0], keep[-1] + 1)
    names = [_magnitude(edges[i]) for i in upper][rows]
    hover = "step %{x}<br>%{y}<br>%{z:.1%} of the elements<extra></extra>"
    heat = {"type": "heatmap", "x": steps, "y": names, "z": share_BS[rows], "colorscale": HEAT, "hovertemplate": hover}
    heat["colorbar"] = {"title": {"text": "share"}, "tickformat": ".0%", "thickness": 14}
    layout = axes("step", "magnitude", hovermode="closest")
    layout["yaxis"] |= {"type": "category", "automargin": True}
    return Chart(f"distribution-{column}", _title(column, what, share_BS, counts_SB, total_S), [heat], layout)


def _magnitude(edge: tuple[float, float]) -> str:
    low, high = edge
    return f"< {high:.2g}" if low == 0 else f"> {low:.2g}" if np.isinf(high) else f"{low:.2g}"


def _title(column: str, what: str, share_BS: Floats, counts_SB: Floats, total_S: Floats) -> str:
    centre = (np.arange(len(share_BS))[:, None] * share_BS).sum(axis=0) / np.maximum(share_BS.sum(axis=0), 1e-12)
    moved = float(centre[-1] - centre[0])
    zeros = float(counts_SB[-1, counts_SB.shape[1] // 2] / total_S[-1])
    size = (
        "keep their size" if abs(moved) < 1 else f"{'grow' if moved > 0 else 'shrink'} about {2 ** abs(moved):.2g}-fold"
    )
    said = f"{column}: {what} {size} over the run"
    return said + (f"; {zeros:.0%} are exactly zero" if zeros > 0.01 else "")
