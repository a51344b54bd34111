"""Where the time of a step goes, and how memory runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, between, line, mark_findings, percent
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
CLOSE_LOOK = 3.0
"""Times our usual share of a step."""
LEVEL = 0.05
"""Change of memory, as a share, that is none."""
LARGE = 0.3
"""Share of the step that a title names."""


def draw_time(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    whole = run.scalar(TIME_STEP)
    traces = [(name, run.scalar(signal), colour) for name, signal, colour in PARTS]
    traces = [(name, trace, colour) for name, trace, colour in traces if _is_known(trace)]
    if not _is_known(whole) or not traces:
        return None
    usual = _usual_steps(whole, run.scalar(TIME_OWN))
    ends = _stretches([whole, *(trace for _, trace, _ in traces)])
    steps, step_S = ends, _levels(whole, ends, usual)
    chart = Chart("time", "", layout=axes("step", "milliseconds a step"))
    rest, shares = step_S.copy(), {}
    other = "everything else" if "forward" in {name for name, _, _ in traces} else "forward and everything else"
    for name, trace, colour in traces:
        part_S = _levels(trace, ends, usual if 2 * len(trace) > len(whole) else None)
        rest = rest - part_S
        shares[name] = _share(part_S, step_S)
        chart.data.append(_area(name, steps, 1e3 * part_S, colour))
    chart.data.append(_area(other, steps, 1e3 * np.maximum(rest, 0.0), GREY))
    shares[other] = _share(np.maximum(rest, 0.0), step_S)
    chart.layout["yaxis"]["range"] = [0, 1.3e3 * float(np.nanquantile(step_S, USUAL))]
    typical = float(np.median(whole.values[np.isfinite(whole.values) & (whole.values > 0)]))
    name = max(shares, key=lambda n: shares[n])
    text = f"{1e3 * typical:.3g} ms" if typical < 1 else f"{typical:.3g} s"
    waiting = shares.get("waiting for data", 0.0)
    chart.title = (
        f"A step takes {text}, and waits for data {percent(waiting)} of it"
        if waiting > LARGE
        else f"A step takes {text}, {'most of it' if shares[name] > 0.5 else 'the largest part'} {name} "
        f"({percent(shares[name])})"
    )
    mark_findings(chart, [f for f in findings if f.family == "throughput"], int(whole.steps[-1]))
    return chart


def draw_memory(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    traces = {"process": run.scalar(MEMORY_HOST), "device": run.scalar(MEMORY_DEVICE)}
    traces = {name: trace for name, trace in traces.items() if np.isfinite(trace.values).sum() > 1}
    if not traces:
        return None
    chart = Chart("memory", "", layout=axes("step", "megabytes"))
    said = []
    for (name, trace), colour in zip(traces.items(), (BLUE, ORANGE), strict=False):
        if trace.merged > 1:
            chart.data += between(trace.low / 1e6, trace.high / 1e6, trace.steps, colour, f"{name}, extremes")
        chart.data.append(line(name, trace.steps, trace.values / 1e6, colour))
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


def _share(part_S: Floats, step_S: Floats) -> float:
    """Of the steps; nothing where no stretch has both."""
    known = np.isfinite(part_S) & (step_S > 0)
    return float(np.median(part_S[known] / step_S[known])) if known.any() else 0.0


def _is_known(trace: Trace) -> bool:
    """A part that is zero on most looks was not seen on those: without a loader, forward's begin is known on few."""
    return bool(len(trace)) and bool((np.isfinite(trace.values) & (trace.values > 0)).mean() > 0.5)


def _stretches(traces: Sequence[Trace]) -> np.ndarray:
    """Last steps of stretches in which each signal has several looks."""
    rarest = min(traces, key=len).steps
    parts = np.array_split(rarest, max(1, min(POINTS, len(rarest) // LOOKS)))
    return np.array([part[-1] for part in parts[:-1]] + [max(int(trace.steps[-1]) for trace in traces)])


def _usual_steps(whole: Trace, own: Trace) -> np.ndarray:
    """Those on which nothing was looked at closely: that takes many times as long, and is told elsewhere."""
    if not len(own) or not np.isfinite(own.values).any():
        return whole.steps
    return own.steps[~(own.values > CLOSE_LOOK * np.nanmedian(own.values))]


def _levels(trace: Trace, ends: np.ndarray, usual: np.ndarray | None) -> Floats:
    """Of each stretch; one without a look has what its neighbours have. What every step has, such as waiting, comes
    in bursts: its mean over the `usual` ones. The rest is known on some steps, half of them looked at closely and so
    slower: a low one."""
    at = np.minimum(np.searchsorted(ends, trace.steps), len(ends) - 1)
    counted = np.isfinite(trace.values) & (np.isin(trace.steps, usual) if usual is not None else True)
    found = np.full(len(ends), np.nan)
    for stretch in np.unique(at[counted]):
        part = trace.values[counted & (at == stretch)]
        found[stretch] = part.mean() if usual is not None else np.quantile(part, USUAL_LOOK)
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
