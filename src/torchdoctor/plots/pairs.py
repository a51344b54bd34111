"""Two runs in one picture."""

from __future__ import annotations

import numpy as np

from torchdoctor.plots.chart import Chart, axes, line
from torchdoctor.plots.palette import BLUE, ORANGE
from torchdoctor.rules.curves import figure, smooth
from torchdoctor.run import Run, Trace
from torchdoctor.signals import GRADIENT_GLOBAL_L2, LEARNING_RATE, LOSS_TRAIN, LOSS_VALIDATION, Signal

DRAWN: tuple[tuple[str, Signal, str, bool], ...] = (
    ("loss", LOSS_TRAIN, "training loss", False),
    ("validation", LOSS_VALIDATION, "validation loss", False),
    ("gradient-norm", GRADIENT_GLOBAL_L2, "norm of all gradients", True),
    ("learning-rate", LEARNING_RATE, "learning rate", False),
)
SMOOTHED = 40


def draw_pairs(first: Run, second: Run, names: tuple[str, str]) -> list[Chart]:
    """A chart for each signal that both have."""
    found = []
    for name, signal, words, log in DRAWN:
        traces = [_longest(run, signal) for run in (first, second)]
        if all(len(trace) for trace in traces):
            found.append(_pair(name, words, traces, names, log))
    return found


def _pair(name: str, words: str, traces: list[Trace], names: tuple[str, str], log: bool) -> Chart:
    chart = Chart(f"pair-{name}", "", layout=axes("step", words, log=log))
    ends = []
    for trace, label, colour in zip(traces, names, (BLUE, ORANGE), strict=True):
        finite, values = np.isfinite(trace.values), np.array(trace.values, np.float64)
        values[finite] = smooth(values[finite], max(1, len(trace) // SMOOTHED) | 1)
        chart.data.append(line(label, trace.steps, values, colour))
        ends.append(float(values[-1]))
    chart.title = f"{words.capitalize()} at the end: {names[0]} {figure(ends[0])}, {names[1]} {figure(ends[1])}"
    return chart


def _longest(run: Run, signal: Signal) -> Trace:
    return max((run.scalar(signal, key) for key in run.keys(signal)), key=len, default=Trace.empty())
