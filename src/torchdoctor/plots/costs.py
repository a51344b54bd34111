"""Where the time of a step goes, and how memory runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, line, mark_findings
from torchdoctor.plots.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY
from torchdoctor.run import Floats, Run, Trace
from torchdoctor.signals import (
    MEMORY_DEVICE,
    MEMORY_HOST,
    TIME_BACKWARD,
    TIME_DATA,
    TIME_FORWARD,
    TIME_OPTIMIZER,
    TIME_OWN,
    TIME_STEP,
)

PARTS = (
    ("waiting for data", TIME_DATA, ORANGE),
    ("forward", TIME_FORWARD, BLUE),
    ("backward", TIME_BACKWARD, SKY),
    ("update", TIME_OPTIMIZER, GREEN),
    ("torchdoctor", TIME_OWN, PURPLE),
)
POINTS = 200
"""Stretches of a stacked picture: single steps flicker."""
USUAL = 0.95
"""Of the stretches that are shown whole: the first steps take far longer, and are cut off."""
LOOKS = 8
"""At a signal in a stretch."""
USUAL_LOOK = 0.25
LARGE = 0.3
"""Share of the step that a title names."""


def draw_time(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    whole = run.scalar(TIME_STEP)
    traces = [(name, run.scalar(signal), colour) for name, signal, colour in PARTS]
    traces = [(name, trace, colour) for name, trace, colour in traces if _is_known(trace)]
    if not len(whole) or not traces:
        return None
    ends = _stretches([whole, *(trace for _, trace, _ in traces)])
    steps, step_S = ends, _levels(whole, ends, dense=True)
    chart = Chart("time", "", layout=axes("step", "milliseconds a step"))
    rest, shares = step_S.copy(), {}
    other = "everything else" if "forward" in {name for name, _, _ in traces} else "forward and everything else"
    for name, trace, colour in traces:
        part_S = _levels(trace, ends, dense=2 * len(trace) > len(whole))
        rest = rest - part_S
        shares[name] = float(np.nanmedian(part_S / step_S))
        chart.data.append(_area(name, steps, 1e3 * part_S, colour))
    chart.data.append(_area(other, steps, 1e3 * np.maximum(rest, 0.0), GREY))
    shares[other] = float(np.nanmedian(np.maximum(rest, 0.0) / step_S))
    chart.layout["yaxis"]["range"] = [0, 1.3e3 * float(np.nanquantile(step_S, USUAL))]
    typical = float(np.nanmedian(whole.values))
    name = max(shares, key=lambda n: shares[n])
    text = f"{1e3 * typical:.3g} ms" if typical < 1 else f"{typical:.3g} s"
    waiting = shares.get("waiting for data", 0.0)
    chart.title = (
        f"A step takes {text}, and waits for data {waiting:.0%} of it"
        if waiting > LARGE
        else f"A step takes {text}, most of it {name} ({shares[name]:.0%})"
    )
    mark_findings(chart, [f for f in findings if f.family == "throughput"], int(whole.steps[-1]))
    return chart


def draw_memory(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    traces = {"process": run.scalar(MEMORY_HOST), "device": run.scalar(MEMORY_DEVICE)}
    traces = {name: trace for name, trace in traces.items() if len(trace) > 1}
    if not traces:
        return None
    chart = Chart("memory", "", layout=axes("step", "megabytes"))
    said = []
    for (name, trace), colour in zip(traces.items(), (BLUE, ORANGE), strict=False):
        chart.data.append(line(name, trace.steps, trace.values / 1e6, colour))
        first, last = (float(np.nanmedian(v)) / 1e6 for v in np.array_split(trace.values, 4)[::3])
        change = last - first
        moved = f"grows by {change:,.0f} MB" if change > 0.05 * max(first, 1.0) else "stays level"
        said.append(f"{name} {moved} (now {last:,.0f} MB)")
    chart.title = "Memory: " + ", ".join(said)
    mark_findings(chart, [f for f in findings if "memory" in f.name or "graph" in f.name], run.steps)
    return chart


def _is_known(trace: Trace) -> bool:
    """A part that is zero on most looks was not seen on those: without a loader, forward's begin is known on few."""
    return bool(len(trace)) and bool((trace.values > 0).mean() > 0.5)


def _stretches(traces: Sequence[Trace]) -> np.ndarray:
    """Last steps of stretches in which each signal has several looks."""
    rarest = min(traces, key=len).steps
    parts = np.array_split(rarest, max(1, min(POINTS, len(rarest) // LOOKS)))
    return np.array([part[-1] for part in parts[:-1]] + [max(int(trace.steps[-1]) for trace in traces)])


def _levels(trace: Trace, ends: np.ndarray, dense: bool) -> Floats:
    """Of each stretch; one without a look has what its neighbours have. What every step has, such as waiting, comes
    in bursts: its mean. The rest is known on some steps, half of them looked at closely and so slower: a low one."""
    at = np.minimum(np.searchsorted(ends, trace.steps), len(ends) - 1)
    found = np.full(len(ends), np.nan)
    for stretch in np.unique(at):
        own = trace.values[at == stretch]
        found[stretch] = np.nanmean(own) if dense else np.nanquantile(own, USUAL_LOOK)
    known = np.isfinite(found)
    return np.interp(np.arange(len(ends)), np.flatnonzero(known), found[known]) if known.any() else found


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
