"""The learning rate by group, and clipping: the norm before it, its threshold, and how often it acts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, between, line, mark_findings, nth_colour, nth_line, percent, tell_when
from torchdoctor.plots.layers import positive
from torchdoctor.plots.palette import BLUE, RED
from torchdoctor.rules.curves import figure
from torchdoctor.rules.norms import read_clipped
from torchdoctor.run import Run, Trace
from torchdoctor.signals import CLIP_NORM, CLIP_THRESHOLD, LEARNING_RATE
from torchdoctor.summary import gradient_norm

GROUPS = 8
"""Lines that are drawn."""
COURSES = 2
"""Ways of a learning rate that a title tells."""
FEW = 5
"""Looks at either end that say where a norm begins and ends."""
MOVED = 10.0
"""Fold from which on a title speaks of it: noise moves a norm by less."""
STEADY, STEADILY_MOVED = 0.9, 2.0
"""Rank correlation with the steps that noise alone does not have, and the fold that is told of a norm with it."""
JUMP, ABOVE_ENDS = 20.0, 3.0
"""Largest norm over the median, and over what is told of either end, that a title names: norms without trouble scatter
within a few times their median (rules/norms.py)."""


def draw_learning_rate(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    traces = {key: run.scalar(LEARNING_RATE, key) for key in run.keys(LEARNING_RATE)}
    traces = {key: trace for key, trace in traces.items() if len(trace)}
    if not traces:
        return None
    chart = Chart("learning-rate", _rate_title(traces), layout=axes("step", "learning rate"))
    chart.layout["yaxis"]["rangemode"] = "tozero"
    for number, (key, trace) in enumerate(list(traces.items())[:GROUPS]):
        name, colour = f"group {key}" if len(traces) > 1 else "learning rate", nth_colour(number)
        if trace.merged > 1:
            chart.data += between(trace.low, trace.high, trace.steps, colour, f"{name}, extremes")
        chart.data.append(nth_line(number, name, trace.steps, trace.values))
    mark_findings(chart, findings, max(int(t.steps[-1]) for t in traces.values()))
    return chart


def _rate_title(traces: dict[str, Trace]) -> str:
    """Groups that do the same are told once."""
    alike: dict[str, list[str]] = {}
    for key, trace in traces.items():
        alike.setdefault(_rate_course(trace), []).append(key)
    if len(alike) == 1:
        return f"The learning rate {next(iter(alike))}"
    told = [f"{_groups(keys)} {course}" for course, keys in list(alike.items())[:COURSES]]
    rest = sum(len(keys) for keys in list(alike.values())[COURSES:])
    return f"The learning rate of {'; of '.join(told)}" + (f"; {rest} groups more do otherwise" if rest else "")


def _rate_course(trace: Trace) -> str:
    """What it does over the run, its highest and lowest point named where they are not its ends."""
    low, high = (
        np.where(np.isfinite(trace.low), trace.low, np.inf),
        np.where(np.isfinite(trace.high), trace.high, -np.inf),
    )
    known = trace.values[np.isfinite(trace.values)]
    if not len(known):
        return "was never a finite number"
    broken = f", and is NaN or Inf {when}" if (when := tell_when(trace, ~np.isfinite(trace.values))) else ""
    ends = [part.values[np.isfinite(part.values)] for part in (trace.first(), trace.last())]
    first, last = (float(end[at]) if len(end) else float(known[at]) for end, at in zip(ends, (0, -1), strict=True))
    if low.min() == high.max():
        return f"stays at {figure(first)}{broken}"
    turns = [
        f"{figure(float(side[row]))} ({'about ' if trace.merged > 1 else ''}step {trace.steps[row]})"
        for side, row in ((high, int(high.argmax())), (low, int(low.argmin())))
        if not min(first, last) <= side[row] <= max(first, last)
    ]
    return f"runs from {figure(first)} to {figure(last)}{''.join(f', by way of {turn}' for turn in turns)}{broken}"


def _groups(keys: Sequence[str]) -> str:
    return f"group {keys[0]}" + (f" and {len(keys) - 1} more" if len(keys) > 1 else "")


def draw_gradient_norm(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """Of all gradients together: before clipping where the script clips, else as they are applied."""
    norm, threshold = run.scalar(CLIP_NORM), run.scalar(CLIP_THRESHOLD)
    clips = bool(len(norm)) and bool(len(threshold))
    if not clips:
        norm = gradient_norm(run)
    values = positive(norm.values)
    if not np.isfinite(values).any():
        return None
    chart = Chart("gradient-norm", _norm_title(norm), layout=axes("step", "norm of all gradients", log=True))
    if norm.merged > 1:
        chart.data += between(positive(norm.low), positive(norm.high), norm.steps, BLUE, "extremes")
    chart.data.append(line("before clipping" if clips else "norm", norm.steps, values, BLUE))
    if clips:
        chart.data.append(line("threshold", threshold.steps, threshold.values, RED, dash="dash"))
        chart.title += _clipping(norm, threshold)
    mark_findings(chart, findings, int(norm.steps[-1]))
    return chart


def _norm_title(norm: Trace) -> str:
    """What it does over the run, else its size; then its jumps, and from where on it is nothing or no number."""
    known = norm.values[np.isfinite(norm.values) & (norm.values > 0)].astype(np.float64)
    middle = float(np.median(known))
    first, last = float(np.median(known[:FEW])), float(np.median(known[-FEW:]))  # noise alone moves no median
    said = f"The gradient's norm is about {figure(middle)}"
    fold = STEADILY_MOVED if _steadiness(known) > STEADY else MOVED
    if len(known) >= 2 * FEW and not 1 / fold < last / first < fold:
        said = f"The gradient's norm {'grows' if last > first else 'falls'} from {figure(first)} to {figure(last)}"
    high = np.where(np.isfinite(norm.high), norm.high, -np.inf)
    peak = int(high.argmax())
    if high[peak] > max(JUMP * middle, ABOVE_ENDS * max(first, last)):
        about = "about " if norm.merged > 1 else ""
        said += f", up to {figure(float(high[peak]))} at {about}step {norm.steps[peak]}"
    for what, found in (("0", norm.high == 0), ("NaN or Inf", ~np.isfinite(norm.values))):
        said += f", and is {what} {when}" if (when := tell_when(norm, found)) else ""
    return said


def _steadiness(values: np.ndarray) -> float:
    """How far it goes one way all along: Spearman's rank correlation with the order, without its sign."""
    ranks = np.argsort(np.argsort(values))
    return abs(float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])) if len(values) > 1 else 0.0


def _clipping(norm: Trace, threshold: Trace) -> str:
    found = read_clipped(norm, threshold)
    if found is None:
        return ""
    share = percent(found.likely)
    if percent(found.least) != percent(found.most):
        share = f"about {share} ({percent(found.least)} to {percent(found.most)})"
    return f", and clipping at {figure(float(threshold.values[-1]))} acts in {share} of the steps"
