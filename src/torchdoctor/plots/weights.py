"""How large the weights are, layer by layer: whether they grow, shrink, keep their size, or break."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, mark_findings, percent, tell_when
from torchdoctor.plots.layers import weights_only
from torchdoctor.plots.lines import add_lines, choose, without_broken
from torchdoctor.rules.curves import figure
from torchdoctor.run import Run, Trace
from torchdoctor.signals import WEIGHT, WEIGHT_L2

STEADY = 1.5
"""Times by which a norm may differ from its first and be called kept, as sizes of values are (tensor_values)."""


def draw_weight_norms(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """Norms of the weights, layer by layer."""
    trace = without_broken(weights_only(run, WEIGHT_L2), run.matrix(WEIGHT["nonfinite"]))
    if not len(trace) or not (trace.values > 0).any():
        return None
    chart = Chart("weight-norms", _title(trace), layout=axes("step", "norm of the weights", log=True))
    add_lines(chart, choose(trace, findings))
    mark_findings(chart, findings, int(trace.steps[-1]))
    return chart


def _title(trace: Trace) -> str:
    """Of the layer whose norm moved most while it was finite; then from where on none is."""
    when = tell_when(trace, ~np.isfinite(trace.values).any(axis=1))
    broken = f"; no weight is finite {when}" if when else ""
    ends = {name: _ends(trace.column(name)) for name in trace.columns}
    zero = [name for name, (first, last) in ends.items() if last == 0 < first]
    if zero:
        return f"{zero[0]} falls from a norm of {figure(ends[zero[0]][0])} to 0{broken}"
    times = {name: last / first for name, (first, last) in ends.items() if first > 0 and np.isfinite(last / first)}
    if not times:
        return f"Norms of the weights at {len(trace)} looks{broken}"
    most = max(times, key=lambda name: abs(np.log(times[name])))
    fold = max(times[most], 1 / times[most])
    if fold < STEADY:
        return f"The weights keep their size: norms of layers change by {percent(fold - 1)} at most{broken}"
    moved = "grows" if times[most] > 1 else "shrinks"
    first, last = ends[most]
    which = f", the most of {len(trace.columns)} layers" if len(trace.columns) > 1 else ""
    return f"The norm of {most} {moved} {figure(fold)}-fold, from {figure(first)} to {figure(last)}{which}{broken}"


def _ends(column: Trace) -> tuple[float, float]:
    """Its first and its last number: weights have no noise that one look could be caught in."""
    known = column.values[np.isfinite(column.values)]
    return (float(known[0]), float(known[-1])) if len(known) else (np.nan, np.nan)
