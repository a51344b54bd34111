"""Charts as the page asks for them: one by its name, for the steps that are visible, never more points than help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from torchdoctor import signals
from torchdoctor.findings import Finding
from torchdoctor.plots import DRAWN
from torchdoctor.plots.activations import draw_activation_health
from torchdoctor.plots.chart import Chart
from torchdoctor.plots.layer import DRAWN as LAYER_SIGNALS
from torchdoctor.plots.tensor_values import LAYER as LAYER_VALUES
from torchdoctor.run import Run, Trace

CHARTS = {name.replace("_", "-"): draw for name, draw in DRAWN.items()} | {"activations": draw_activation_health}
"""By the names that charts give themselves."""
LAYER = LAYER_SIGNALS | LAYER_VALUES


@dataclass(frozen=True)
class Window:
    """Steps that are visible, both included."""

    first: float
    last: float


def draw(
    run: Run,
    name: str,
    findings: Sequence[Finding] = (),
    window: Window | None = None,
    layer: str = "",
    whole: Chart | None = None,
) -> Chart | None:
    """None where there is no such chart, or the run has no signals for it. `whole` is the same without a window, where
    it is at hand: a part goes under its title, which speaks of the run and not of what is zoomed to."""
    if name in LAYER:
        make = partial(LAYER[name], layer=layer)
    elif name in CHARTS:
        make = partial(CHARTS[name], findings=findings)
    else:
        return None
    if window is None:
        return make(run)
    whole = whole or make(run)
    if whole is None or not is_over_steps(whole):
        return whole
    part = make(narrow(run, window))
    return whole if part is None else replace(part, title=whole.title)


def is_over_steps(chart: Chart) -> bool:
    return bool(chart.layout.get("xaxis", {}).get("title", {}).get("text") == "step")


def narrow(run: Run, window: Window) -> Run:
    """The run as if only the visible steps had been recorded, in as fine rows as there are."""

    def load(name: str, key: str) -> Trace:
        signal = signals.ALL.get(name)
        if signal is None:
            return Trace.empty()
        return clip(run.scalar(signal, key) if signal.scope is signals.Scope.STEP else run.matrix(signal), window)

    return replace(run, load=load, _cache={})


def clip(trace: Trace, window: Window) -> Trace:
    """Single steps where the window lies among the first or the last; else merged rows, which keep their extremes."""
    if not len(trace):
        return trace
    for raw, holds in (
        (trace.head, lambda part: window.last <= part.steps[-1]),
        (trace.tail, lambda part: window.first >= part.steps[0]),
    ):
        if raw is not None and len(raw) and holds(raw):
            return _cut(raw, window)
    return _cut(trace, window)


def _cut(trace: Trace, window: Window) -> Trace:
    """With one more row at either end, so that lines run on to the edge."""
    low = max(0, int(np.searchsorted(trace.steps, window.first)) - 1)
    high = min(len(trace) - 1, int(np.searchsorted(trace.steps, window.last, side="right")))
    return trace.between(int(trace.steps[low]), int(trace.steps[high]))
