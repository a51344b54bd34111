"""What a landscape shows, in words and as a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from torchdoctor.errors import UsageError
from torchdoctor.instruments.result import Result, plain
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import new_figure
from torchdoctor.plots.palette import BLUE, GREY, RED
from torchdoctor.rules.curves import figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

BARRIER = 0.05
"""Height over the straight line between both ends, as a share of the worse end's loss, that still counts as none:
batches and rounding make about as much."""
LOWER = 0.02
"""Share of its loss by which another point has to be lower than the weights, to be told."""
AT_BOTTOM = 0.05
"""Share of all there is between the lowest and the highest point, up to which the weights are at the bottom of it."""
WIDE = 30.0
"""Largest over smallest loss from which on a logarithm shows more."""
FEW_LEVELS = 20


@dataclass(frozen=True)
class Landscape(Result):
    x: list[float]
    """along the first direction: noise as a share of each filter's norm, or from one checkpoint (0) to the other (1)"""
    y: list[float] | None
    losses: list[Any]
    """one for each x; for a plane one such row for each y"""
    joined: bool
    """between two checkpoints"""
    parameters: int
    samples: int
    notes: list[str]

    @property
    def grid(self) -> np.ndarray:
        """Losses, y by x."""
        return np.atleast_2d(np.asarray(self.losses, dtype=np.float64))

    @property
    def line(self) -> np.ndarray:
        """Losses along x, through the weights or the checkpoints."""
        return self.grid[0 if self.y is None else _nearest(self.y, 0.0)]

    @property
    def loss(self) -> float:
        """Of the weights, or of the first checkpoint."""
        return float(self.line[_nearest(self.x, 0.0)])

    @property
    def barrier(self) -> float | None:
        """The most by which the loss between two checkpoints lies above the straight line between theirs."""
        if not self.joined:
            return None
        x = np.asarray(self.x)
        inside = (x >= 0) & (x <= 1)
        straight = self.loss + x * (float(self.line[_nearest(self.x, 1.0)]) - self.loss)
        above = np.where(np.isfinite(self.line), self.line - straight, math.inf)[inside]
        return float(max(above.max(), 0.0))

    @property
    def lowest(self) -> tuple[float, float, float]:
        """x, y and loss of the lowest point."""
        grid = np.where(np.isfinite(self.grid), self.grid, math.inf)
        i, j = np.unravel_index(grid.argmin(), grid.shape)
        return self.x[int(j)], 0.0 if self.y is None else self.y[int(i)], float(grid[i, j])

    @property
    def verdict(self) -> str:
        return self._joined_verdict() if self.joined else self._verdict()

    def _joined_verdict(self) -> str:
        end, barrier = float(self.line[_nearest(self.x, 1.0)]), self.barrier or 0.0
        worse = max(abs(self.loss), abs(end))
        if not math.isfinite(barrier):
            return "A wall lies between the two: the loss is not finite on the way"
        if barrier > BARRIER * worse and self._falls_all_the_way(BARRIER * worse):
            return "No barrier between the two: the loss falls all the way from the worse to the better"
        if barrier > BARRIER * worse:
            return f"A barrier of {figure(barrier)} lies between the two: different basins"
        return "No barrier between the two: they lie in one basin or on one slope"

    def _falls_all_the_way(self, tolerance: float) -> bool:
        x = np.asarray(self.x)
        way = self.line[(x >= 0) & (x <= 1)]
        way = way if way[0] >= way[-1] else way[::-1]
        return bool((way - np.minimum.accumulate(way)).max() <= tolerance)

    def _verdict(self) -> str:
        x, y, low = self.lowest
        where = f"{x:.2g}" if self.y is None else f"({x:.2g}, {y:.2g})"
        if not math.isfinite(self.loss):
            return "The loss of the weights themselves is not finite"
        if self.loss - low > LOWER * abs(self.loss):
            return f"Not at the bottom: the loss is {figure(low)} at {where} and {figure(self.loss)} at the weights"
        finite = self.grid[np.isfinite(self.grid)]
        if finite.max() - low <= LOWER * abs(self.loss):
            return f"Flat: the loss stays within {LOWER:.0%} all over"
        dips = count_dips(self.line)
        more = f", with {dips - 1} further dip{'s' if dips > 2 else ''} beside it" if dips > 1 else ""
        directions = "this random direction" if self.y is None else "these random directions"
        if self.loss - low <= AT_BOTTOM * (finite.max() - low) or figure(low) == figure(self.loss):
            return f"The weights lie at the bottom of a bowl along {directions}{more}"
        return (
            f"The weights lie near the bottom along {directions}{more}: the loss is {figure(low)} at {where} and "
            f"{figure(self.loss)} at the weights"
        )

    def __str__(self) -> str:
        shape = f"{len(self.x)} points" if self.y is None else f"{len(self.x)} x {len(self.y)} points"
        lines = [f"{self.verdict}.", ""]
        if self.joined:
            end, x = float(self.line[_nearest(self.x, 1.0)]), np.asarray(self.x)
            inside = np.where((x >= 0) & (x <= 1), np.nan_to_num(self.line, nan=math.inf), -math.inf)
            top = int(inside.argmax())
            lines.append(f"loss {figure(self.loss)} at the first, {figure(end)} at the second")
            lines.append(f"highest between them {figure(float(self.line[top]))}, at {self.x[top]:.2f} of the way")
        else:
            finite = self.grid[np.isfinite(self.grid)]
            if finite.size:
                around = f"{figure(self.lowest[2])} to {figure(float(finite.max()))} around them"
                lines.append(f"loss {figure(self.loss)} at the weights, {around}")
            lines += self._width()
        broken = int((~np.isfinite(self.grid)).sum())
        lines += [f"not finite at {broken} of {self.grid.size} points"] if broken else []
        lines.append(f"{shape}, {self.samples:,} samples, {self.parameters:,} weights")
        return "\n".join([*lines, *(f"note: {n}" for n in self.notes)])

    def _width(self) -> list[str]:
        """How far the loss takes to double, along the first direction."""
        x, high = np.asarray(self.x), self.line >= 2 * self.loss
        if not self.loss > 0 or not high.any():
            return []
        return [f"it doubles {100 * np.abs(x[high]).min():.3g}% of each filter's norm away"]

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | plain({"verdict": self.verdict, "barrier": self.barrier, "loss": self.loss})

    def plot(self) -> Figure:
        return self._drawn_line() if self.y is None else self._drawn_plane()

    def _drawn_line(self) -> Figure:
        name = "from the first checkpoint (0) to the second (1)" if self.joined else "noise over each filter's norm"
        drawing = new_figure(self.verdict, name, "loss")
        finite = self.line[np.isfinite(self.line)]
        if _is_wide(finite):
            drawing.update_yaxes(LOG)
        drawing.add_scatter(x=self.x, y=plain(self.line), mode="lines+markers", line={"color": BLUE}, name="loss")
        marks = (0.0, 1.0) if self.joined else (0.0,)
        drawing.add_scatter(
            x=list(marks),
            y=[float(self.line[_nearest(self.x, m)]) for m in marks],
            mode="markers",
            marker={"color": RED, "size": 12, "symbol": "diamond"},
            name="checkpoints" if self.joined else "the weights",
        )
        if self.joined:
            ends = [self.loss, float(self.line[_nearest(self.x, 1.0)])]
            drawing.add_scatter(x=[0, 1], y=ends, mode="lines", line={"color": GREY, "dash": "dot"}, name="straight")
        return drawing

    def _drawn_plane(self) -> Figure:
        name = "from the first checkpoint (0) to the second (1)" if self.joined else "first random direction"
        drawing = new_figure(self.verdict, name, "random direction" if self.joined else "second random direction")
        finite = self.grid[np.isfinite(self.grid)]
        if not finite.size:
            raise UsageError("no point of the plane has a finite loss; there is nothing to draw")
        wide = _is_wide(finite)
        drawing.add_contour(
            x=self.x,
            y=self.y,
            z=plain(np.log10(self.grid) if wide else self.grid),
            customdata=plain(self.grid),
            hovertemplate="%{x:.2f}, %{y:.2f}: loss %{customdata:.4g}<extra></extra>",
            colorscale="Cividis",
            ncontours=FEW_LEVELS,
            colorbar={"title": "log10 of the loss" if wide else "loss"},
        )
        marks = [0.0, 1.0] if self.joined else [0.0]
        drawing.add_scatter(
            x=marks,
            y=[0.0] * len(marks),
            mode="markers",
            marker={"color": RED, "size": 12, "symbol": "diamond", "line": {"color": "white", "width": 1}},
            name="checkpoints" if self.joined else "the weights",
        )
        return drawing


def count_dips(line: np.ndarray) -> int:
    """Local minima that are deeper than LOWER of what lies around them: bends of rounding are none."""
    values = np.where(np.isfinite(line), line, math.inf)
    dips, low, high = 0, math.inf, math.inf
    falling = True
    for value in values:
        if falling:
            low = min(low, value)
            if value > low + LOWER * max(abs(low), 1e-12):
                dips, falling, high = dips + 1, False, value
        else:
            high = max(high, value)
            if value < high - LOWER * max(abs(high), 1e-12):
                falling, low = True, value
    return dips + (falling and low < high)


def _is_wide(values: np.ndarray) -> bool:
    return bool(values.size and values.min() > 0 and values.max() / values.min() > WIDE)


def _nearest(values: list[float], to: float) -> int:
    return int(np.abs(np.asarray(values) - to).argmin())
