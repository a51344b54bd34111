"""Where the time of a step goes, and how memory runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, between, mark_findings, nth_colour, nth_line, percent
from torchdoctor.plots.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY
from torchdoctor.rules.step_time import BACKWARD, DATA, FORWARD, OWN, REST, UPDATE, StepTime, read_step_time
from torchdoctor.run import Floats, Run, Trace
from torchdoctor.signals import MEMORY_DEVICE, MEMORY_HOST, TIME_STEP

NAMES = {DATA: "waiting for data", REST: "everything else"}
COLOURS = {DATA: ORANGE, FORWARD: BLUE, BACKWARD: SKY, UPDATE: GREEN, OWN: PURPLE, REST: GREY}
POINTS, LOOKS = 200, 8
"""Stretches of a stacked picture, at most, and steps of each, at least: single steps flicker."""
USUAL = 0.95
"""Of the stretches that are shown whole: the first steps take far longer, and are cut off."""
GAP = 0.3
"""Of the run, between two steps that are known in parts, which is said."""
LEVEL = 0.05
"""Change of memory, as a share, that is none."""
LARGE = 0.3
"""Share of the step that a title names."""


def draw_time(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    found, whole = read_step_time(run), run.scalar(TIME_STEP)
    shares = found.shares() if found is not None else {}
    if found is None or not shares:
        return None
    names = NAMES if FORWARD in shares else {**NAMES, REST: "forward and everything else"}
    ends, levels = _stretches(found, int(whole.steps[-1]))
    chart = Chart("time", "", layout=axes("step", "milliseconds a step"))
    chart.data += [_area(names.get(part, part), ends, 1e3 * levels[part], COLOURS[part]) for part in shares]
    chart.layout["yaxis"]["range"] = [0, 1.3e3 * float(np.quantile(sum(levels.values()), USUAL))]
    if whole.merged > 1:
        _mark_gap(chart, found.steps, int(whole.steps[-1]))
    typical = float(np.median(whole.values[np.isfinite(whole.values) & (whole.values > 0)]))
    text = f"{1e3 * typical:.3g} ms" if typical < 1 else f"{typical:.3g} s"
    largest, waiting = max(shares, key=lambda part: shares[part]), shares.get(DATA, 0.0)
    chart.title = (
        f"A step takes {text}, and waits for data {percent(waiting)} of it"
        if waiting > LARGE
        else f"A step takes {text}, {'most of it' if shares[largest] > 0.5 else 'the largest part'} "
        f"{names.get(largest, largest)} ({percent(shares[largest])})"
    )
    mark_findings(chart, [f for f in findings if f.family == "throughput"], int(whole.steps[-1]))
    return chart


def _stretches(found: StepTime, last: int) -> tuple[np.ndarray, dict[str, Floats]]:
    """Where each begins, then where the last one ends; seconds of each part there."""
    parts = np.array_split(found.steps, max(1, min(POINTS, len(found.steps) // LOOKS)))
    levels = [found.levels(int(part[0]), int(part[-1])) for part in parts]
    begins = np.array([*(int(part[0]) for part in parts), last])
    return begins, {name: np.array([level[name] for level in [*levels, levels[-1]]]) for name in levels[0]}


def _mark_gap(chart: Chart, steps: np.ndarray, last: int) -> None:
    """Of long runs the parts are known at both ends: between them the picture has straight lines."""
    if len(steps) < 2 or np.diff(steps).max() < GAP * last:
        return
    at = int(np.diff(steps).argmax())
    note = {"text": "not known in parts here", "x": float(steps[at] + steps[at + 1]) / 2, "yref": "paper", "y": 1.0}
    chart.layout.setdefault("annotations", []).append({**note, "showarrow": False, "font": {"color": GREY}})


def draw_memory(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    traces = {"process": run.scalar(MEMORY_HOST), "device": run.scalar(MEMORY_DEVICE)}
    traces = {name: trace for name, trace in traces.items() if np.isfinite(trace.values).sum() > 1}
    if not traces:
        return None
    chart = Chart("memory", "", layout=axes("step", "megabytes"))
    said = []
    for number, (name, trace) in enumerate(traces.items()):
        colour = nth_colour(number)
        if trace.merged > 1:
            chart.data += between(trace.low / 1e6, trace.high / 1e6, trace.steps, colour, f"{name}, extremes")
        chart.data.append(nth_line(number, name, trace.steps, trace.values / 1e6))
        said.append(f"{name} {_memory_course(trace)}")
    chart.title = "Memory: " + "; ".join(said)
    mark_findings(chart, [f for f in findings if "memory" in f.name or "graph" in f.name], run.steps)
    return chart


def _memory_course(trace: Trace) -> str:
    """From quarter to quarter, where it stands, and its peak if that is neither: by it a process is killed."""
    known = trace.values[np.isfinite(trace.values)].astype(np.float64)
    few = max(1, len(known) // 4)
    first, last, now = float(np.median(known[:few])), float(np.median(known[-few:])), float(known[-1])
    change = last - first
    moved = f"{'grows' if change > 0 else 'falls'} by {_megabytes(abs(change))}"
    said = f"{moved if abs(change) > LEVEL * first else 'stays level'} (now {_megabytes(now)})"
    high = np.where(np.isfinite(trace.high), trace.high, -np.inf)
    peak = int(high.argmax())
    if high[peak] > (1 + LEVEL) * max(first, last, now):
        said += f", with a peak of {_megabytes(float(high[peak]))} at {'about ' if trace.merged > 1 else ''}step "
        said += str(trace.steps[peak])
    return said


def _megabytes(amount: float) -> str:
    return f"{amount / 1e6:,.0f} MB" if amount >= 1e8 else f"{amount / 1e6:.3g} MB"


def _area(name: str, x: np.ndarray, y: Floats, colour: str) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "stackgroup": "time",
        "line": {"width": 0.5, "color": colour},
    }
