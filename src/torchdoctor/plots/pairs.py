"""Two runs in one picture."""

from __future__ import annotations

import numpy as np

from torchdoctor.plots.chart import Chart, axes, nth_line
from torchdoctor.plots.lines import positive
from torchdoctor.plots.losses import is_wide
from torchdoctor.rules.curves import figure, smooth
from torchdoctor.run import Floats, Run, Trace
from torchdoctor.signals import GRADIENT_GLOBAL_L2, LEARNING_RATE, LOSS_TRAIN, LOSS_VALIDATION, Signal
from torchdoctor.summary import gradient_norm, loss_ends

DRAWN: tuple[tuple[str, Signal, str], ...] = (
    ("loss", LOSS_TRAIN, "training loss"),
    ("validation", LOSS_VALIDATION, "validation loss"),
    ("gradient-norm", GRADIENT_GLOBAL_L2, "norm of all gradients"),
    ("learning-rate", LEARNING_RATE, "learning rate"),
)
SMOOTHED = 40


def draw_pairs(first: Run, second: Run, names: tuple[str, str]) -> list[Chart]:
    """A chart for each signal that both have."""
    found = []
    for name, signal, words in DRAWN:
        traces = [_longest(run, signal) for run in (first, second)]
        if all(len(trace) for trace in traces):
            found.append(_pair(name, signal, words, traces, names))
    return found


def _pair(name: str, signal: Signal, words: str, traces: list[Trace], names: tuple[str, str]) -> Chart:
    log = signal is GRADIENT_GLOBAL_L2 or is_wide(np.concatenate([trace.values for trace in traces]))
    widths = [max(1, len(trace) // SMOOTHED) | 1 for trace in traces]
    shown = f"{words}, smoothed" if max(widths) > 1 else words
    chart = Chart(f"pair-{name}", "", layout=axes("step", shown, log=log))
    ends = []
    for number, (trace, label) in enumerate(zip(traces, names, strict=True)):
        finite, values = np.isfinite(trace.values), np.array(trace.values, np.float64)
        values[finite] = _smooth(values[finite], widths[number])
        drawn = positive(values) if log else values
        chart.data.append(nth_line(number, label.replace("<", "&lt;"), trace.steps, drawn))
        ends.append(loss_ends(trace)[1] if name == "loss" else float(values[-1]))
    chart.title = f"{words.capitalize()} at the end: {names[0]} {figure(ends[0])}, {names[1]} {figure(ends[1])}"
    return chart


def _smooth(values: Floats, width: int) -> Floats:
    """Begins where the run begins: a loss that leaves its start at once would be drawn far from it."""
    smoothed = smooth(values, width)
    for i in range(min(width // 2, len(values) // 2)):
        smoothed[i] = np.median(values[: 2 * i + 1])
    return smoothed


def _longest(run: Run, signal: Signal) -> Trace:
    if signal is GRADIENT_GLOBAL_L2:
        return gradient_norm(run)
    return max((run.scalar(signal, key) for key in run.keys(signal)), key=len, default=Trace.empty())
