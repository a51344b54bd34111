"""The learning rate by group, and clipping: the norm before it, its threshold, and how often it acts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, between, line, mark_findings
from torchdoctor.plots.layers import positive
from torchdoctor.plots.palette import BLUE, CYCLE, RED
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats, Run
from torchdoctor.signals import CLIP_NORM, CLIP_THRESHOLD, GRADIENT_GLOBAL_L2, LEARNING_RATE

GROUPS = 8
FEW = 5
"""Looks at either end that say where a norm begins and ends."""
MOVED = 10.0
"""Fold from which on a title speaks of it: noise moves a norm by less."""


def draw_learning_rate(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    traces = {key: run.scalar(LEARNING_RATE, key) for key in run.keys(LEARNING_RATE)[:GROUPS]}
    traces = {key: trace for key, trace in traces.items() if len(trace)}
    if not traces:
        return None
    chart = Chart("learning-rate", "", layout=axes("step", "learning rate"))
    chart.layout["yaxis"]["rangemode"] = "tozero"
    for number, (key, trace) in enumerate(traces.items()):
        name = f"group {key}" if len(traces) > 1 else "learning rate"
        chart.data.append(line(name, trace.steps, trace.values, CYCLE[number % len(CYCLE)]))
    first = next(iter(traces.values()))
    low, high, last = float(first.low.min()), float(first.high.max()), float(first.values[-1])
    peak = int(first.steps[int(np.argmax(first.high))])
    chart.title = (
        f"The learning rate stays at {figure(high)}"
        if low == high
        else f"The learning rate runs from {figure(float(first.values[0]))} by way of {figure(high)} (step {peak}) "
        f"to {figure(last)}"
    )
    mark_findings(chart, findings, max(int(t.steps[-1]) for t in traces.values()))
    return chart


def _norm_title(known: Floats, middle: float) -> str:
    """What it does over the run, else its size."""
    first, last = (float(np.median(part)) if len(part) else middle for part in (known[:FEW], known[-FEW:]))
    if len(known) >= 2 * FEW and not 1 / MOVED < last / first < MOVED:
        return f"The gradient's norm {'grows' if last > first else 'falls'} from {figure(first)} to {figure(last)}"
    return f"The gradient's norm is about {figure(middle)}"


def draw_gradient_norm(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """Of all gradients together: before clipping where the script clips, else as they are applied."""
    norm, threshold = run.scalar(CLIP_NORM), run.scalar(CLIP_THRESHOLD)
    clips = bool(len(norm)) and bool(len(threshold))
    if not clips:
        keys = run.keys(GRADIENT_GLOBAL_L2)
        norm = max((run.scalar(GRADIENT_GLOBAL_L2, key) for key in keys), key=len, default=norm)
    values = positive(norm.values)
    if not np.isfinite(values).any():
        return None
    chart = Chart("gradient-norm", "", layout=axes("step", "norm of all gradients", log=True))
    if norm.merged > 1:
        chart.data += between(positive(norm.low), positive(norm.high), norm.steps, BLUE, "extremes")
    chart.data.append(line("before clipping" if clips else "norm", norm.steps, values, BLUE))
    known = values[np.isfinite(values)]
    middle = float(np.median(known))
    chart.title = _norm_title(known, middle)
    if clips:
        chart.data.append(line("threshold", threshold.steps, threshold.values, RED, dash="dash"))
        _, at, limits = np.intersect1d(norm.steps, threshold.steps, return_indices=True)
        share = float(np.mean(~(norm.values[at] <= threshold.values[limits]))) if len(at) else 0.0
        chart.title += f", and clipping at {figure(float(threshold.values[-1]))} acts in {share:.0%} of the steps"
    elif known.max() > 100 * middle:
        chart.title += f", and jumps to {figure(float(known.max()))}"
    mark_findings(chart, findings, int(norm.steps[-1]))
    return chart
