"""What the figures of several stations have in common."""

from __future__ import annotations

import numpy as np

from torchdoctor.plots.chart import Chart, axes, line
from torchdoctor.plots.palette import BLUE
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats

STEP = "training step"
"""The axis along which the cursor of a film moves."""
LEARNED = 0.9
"""Of the loss at the start: what a short training of a healthy network falls below."""
DIVERGED = 100.0
"""Times the loss at the start: from two orders of magnitude on nobody would wait for it to come back."""
HIGHEST = 1e3
"""Times its start up to which a loss is drawn: beyond, it is enough to see that it leaves the picture."""


def visible(values: Floats, most: float) -> Floats:
    """What lies beyond is left out, as is what is not finite: an axis that shows it would show nothing else."""
    return np.where(np.abs(values) <= most, values, np.nan)


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
