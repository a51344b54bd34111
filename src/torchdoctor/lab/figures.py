"""What the figures of several stations have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from torchdoctor.plots.chart import Chart, axes, line
from torchdoctor.plots.palette import BLUE, RED
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats

STEP = "training step"
"""The axis along which the cursor of a film moves."""
LEARNED = 0.9
"""Of the loss at the start: what a short training of a healthy network falls below."""
DIVERGED = 100.0
"""Times the loss at the start: from two orders of magnitude on nobody would wait for it to come back."""
BELOW, TICKS = 1.0, 5
"""Powers of ten that the marks of zeros stand below all else, and how many are written beside an axis."""
HIGHEST = 1e3
"""Times its start up to which a loss is drawn: beyond, it is enough to see that it leaves the picture."""


def visible(values: Floats, most: float) -> Floats:
    """What lies beyond is left out, as is what is not finite: an axis that shows it would show nothing else."""
    return np.where(np.abs(values) <= most, values, np.nan)


def mark_zeros(chart: Chart, names: Sequence[str], *curves: Floats) -> None:
    """A logarithmic axis has no zero: a marker at the foot of the chart stands for it."""
    zero = np.any([values == 0 for values in curves], axis=0)
    if not zero.any():
        return
    known = np.concatenate([values[np.isfinite(values) & (values > 0)] for values in curves])
    edges = [edge for shape in chart.layout.get("shapes", ()) for edge in (shape["y0"], shape["y1"])]
    low, high = (math.log10(end([*known, *edges], default=1.0)) for end in (min, max))
    foot = 10 ** (low - BELOW)
    at = [name for name, is_zero in zip(names, zero, strict=True) if is_zero]
    marks = {"type": "scatter", "mode": "markers", "name": "exactly zero", "x": at, "y": [foot] * len(at)}
    marks["marker"] = {"color": RED, "symbol": "triangle-down", "size": 11}
    chart.data.append(marks | {"hovertemplate": "%{x}: exactly zero<extra></extra>"})
    powers = range(math.ceil(low), math.floor(high) + 1, max(1, math.ceil((high - low) / TICKS)))
    ticks = {"tickmode": "array", "tickvals": [foot, *(10.0**p for p in powers)]}
    ticks |= {"ticktext": ["0", *(figure(10.0**p) for p in powers)]}
    chart.layout["yaxis"] |= {"range": [low - BELOW - 0.4, high + 0.4], "autorange": False, **ticks}


def last_tenth(losses: Floats) -> float:
    """The level at the end; NaN where it is not finite."""
    return float(np.median(losses[-max(1, len(losses) // 10) :]))


def learned(losses: Floats, guess: float) -> bool:
    """Whether it ends below where it began, and below what a model scores that ignores its inputs."""
    return last_tenth(losses) < LEARNED * min(float(losses[0]), guess)


def tell_stuck(losses: Floats, guess: float) -> str:
    """Of one that has not learned, why it counts as such."""
    if last_tenth(losses) < LEARNED * guess:
        return "it has hardly fallen from where it began"
    return "it has not got below that of a constant guess"


def diverged(losses: Floats, guess: float) -> bool:
    """Whether it has run off: whatever the reason, such a training is broken."""
    return not last_tenth(losses) <= DIVERGED * max(float(losses[0]), guess)


def draw_losses(losses: Floats, guess: float) -> Chart:
    """`guess` is what a model scores that ignores its inputs."""
    first, last = float(losses[0]), last_tenth(losses)
    broken = np.flatnonzero(~np.isfinite(losses))
    if len(broken):
        title = f"The loss is not finite from step {broken[0]} on"
    elif learned(losses, guess):
        title = f"It learns: the loss falls from {figure(first)} to {figure(last)}"
    else:
        title = f"It does not learn: the loss goes from {figure(first)} to {figure(last)}"
        title += f"; a constant guess has {figure(guess)}" if guess < first else ""
    shown = visible(losses, HIGHEST * max(abs(first), 1e-12))
    known = shown[np.isfinite(shown) & (shown > 0)]
    steep = bool(len(known)) and known.max() > 30 * known.min()
    chart = Chart("lab-loss", title, layout=axes(STEP, "loss", log=steep))
    chart.data.append(line("loss", np.arange(len(losses)), shown, BLUE))
    chart.layout["xaxis"] |= {"range": [0, len(losses)]}
    return chart


def percent(share: float) -> str:
    """Of a whole: never 0 % or 100 % where it is not quite that."""
    if 0 < share < 1e-4:
        return "less than 0.01%"
    return f"{100 * share:.1g}%" if 0 < share < 0.01 else "nearly 100%" if 0.995 < share < 1 else f"{share:.0%}"
