"""Layers as lines over the steps, on a logarithmic axis: those that findings name are among them, zeros are seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import BEHIND, MARKS, SIGNS, SYMBOLS, Chart, causes, named_by, nth_colour, nth_line
from torchdoctor.plots.labels import label
from torchdoctor.run import Floats, Ints, Trace

LINES = 6
"""Layers that are drawn one by one: the first, the last, and those between at equal distances."""
NAMED_LINES = 3
"""Of them for those that findings name."""
ZEROS_SHOWN = 40
"""Marks of one line: they stand for a stretch, not for single steps."""
ROW = 0.06
"""Of the axis' length: the distance of rows of zeros below it."""
END = "at the end"


def choose(trace: Trace, findings: Sequence[Finding] = ()) -> list[tuple[str, Trace]]:
    """With their labels; a sign before those that findings name."""
    signs = {n: SIGNS[f.severity] for f in reversed(causes(findings)[:MARKS]) for n in named_by(f, trace.columns)}
    named = [trace.columns.index(name) for name in list(signs)[:NAMED_LINES]]
    count = len(trace.columns)
    even = np.linspace(0, count - 1, min(LINES - len(named), count)).round().astype(int)
    names = [trace.columns[i] for i in sorted({*even.tolist(), *named})]
    return [
        (f"{signs[name]} {short}" if name in signs else short, trace.column(name))
        for short, name in zip(label(names), names, strict=True)
    ]


def add_lines(chart: Chart, chosen: Sequence[tuple[str, Trace]]) -> None:
    """What is exactly zero has no place on the axis: it is marked below it, each line in a row of its own."""
    rows = 0
    floor, gap = _floor([column.values for _, column in chosen])
    for number, (name, column) in enumerate(chosen):
        chart.data.append(nth_line(number, name, column.steps, positive(column.values), legendgroup=name))
        zero = np.flatnonzero(column.values == 0)
        if len(zero):
            rows += 1
            marks = {"color": nth_colour(number), "symbol": SYMBOLS[number % len(SYMBOLS)], "size": 7}
            chart.data.append(_mark_zeros(name, column.steps, zero, floor - rows * gap, marks))
    if rows:
        note = {"text": "marks: exactly 0", "xref": "paper", "x": 1, "xanchor": "right", "y": floor - 0.5 * gap}
        note |= {"yanchor": "bottom", "showarrow": False, "font": {"size": 11}, "bgcolor": BEHIND}
        chart.layout.setdefault("annotations", []).append(note)
    chart.layout["legend"] = {**chart.layout.get("legend", {}), "traceorder": "normal"}


def _mark_zeros(name: str, steps: Ints, zero: Ints, height: float, marker: dict[str, Any]) -> dict[str, Any]:
    """The first of each stretch of the steps in which there is one."""
    stretch = ZEROS_SHOWN * (steps[zero] - steps[0]) // max(int(steps[-1] - steps[0]), 1)
    kept = steps[zero[np.unique(stretch, return_index=True)[1]]]
    shown = {"type": "scatter", "mode": "markers", "name": name, "legendgroup": name, "showlegend": False}
    hover = {"hovertemplate": "0", "marker": marker}
    # a list, not an array, which a page holds in single precision: 1e-46 would be zero there, and have no place
    return shown | {"x": kept, "y": [10.0**height] * len(kept)} | hover


def _floor(values: Sequence[Floats]) -> tuple[float, float]:
    """Logarithms: of the least that is shown, and of the distance of rows below it."""
    known = [v[np.isfinite(v) & (v > 0)] for v in values]
    ends = [(float(v.min()), float(v.max())) for v in known if len(v)]
    if not ends:
        return 0.0, 1.0
    low, high = np.log10(min(low for low, _ in ends)), np.log10(max(high for _, high in ends))
    return float(low), ROW * max(float(high - low), 1.0)


def positive(values: Floats) -> Floats:
    """What a logarithmic axis can show."""
    return np.where(values > 0, values, np.nan)


def without_broken(trace: Trace, nonfinite: Trace) -> Trace:
    """What is measured over the finite elements says nothing where some were not: there it is not known."""
    index = {name: i for i, name in enumerate(nonfinite.columns)}
    shared = [i for i, name in enumerate(trace.columns) if name in index]
    if not len(nonfinite) or not shared:
        return trace
    broken = np.zeros(trace.values.shape, bool)
    counts = nonfinite.values[:, [index[trace.columns[i]] for i in shared]]
    before, after = _looks_around(nonfinite.steps, trace.steps)
    broken[:, shared] = (counts[before] > 0) | (counts[after] > 0)
    kept = (np.where(broken, np.nan, each) for each in (trace.values, trace.low, trace.high))
    return replace(trace, **dict(zip(("values", "low", "high"), kept, strict=True)), head=None, tail=None)


def _looks_around(looks: Ints, steps: Ints) -> tuple[Ints, Ints]:
    """The looks before and after each step: the one at it, where there is one."""
    before = np.searchsorted(looks, steps, side="right") - 1
    after = np.where((before >= 0) & (looks[before] == steps), before, before + 1)
    return np.maximum(before, 0), np.minimum(after, len(looks) - 1)


def late_level(trace: Trace) -> float:
    """Of one column the median of the last quarter; NaN where nothing in it was finite."""
    late = trace.values[-max(1, len(trace) // 4) :]
    known = late[np.isfinite(late)]
    return float(np.median(known)) if len(known) else float("nan")


def while_finite(trace: Trace) -> tuple[Trace, str]:
    """Up to the last look at which anything was finite, and words for when that was."""
    known = np.isfinite(trace.values)
    rows = np.flatnonzero(known if known.ndim == 1 else known.any(axis=1))
    if not len(rows) or rows[-1] == len(trace) - 1:
        return trace, END
    step = int(trace.steps[rows[-1]])
    return trace.between(int(trace.steps[0]), step), f"up to step {step:,}, the last one with a number"


def end_levels(trace: Trace) -> tuple[Floats, str]:
    """Of each column the level of the last quarter, and that this is at the end. Where all of it broke before, the last
    finite numbers, and when they were: what led to the break is in the very last ones."""
    alive, when = while_finite(trace)
    if when == END:
        return np.array([late_level(trace.column(name)) for name in trace.columns]), END
    known = [column[np.isfinite(column)] for column in alive.values.T]
    last = np.array([float(column[-1]) if len(column) else np.nan for column in known])
    return last, when.replace("up to", "at", 1)
