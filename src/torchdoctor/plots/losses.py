"""The loss over the training: raw and smoothed, validation, spikes, and where findings begin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, between, line, mark_findings
from torchdoctor.plots.palette import BLUE, GREY, ORANGE, RED
from torchdoctor.rules.curves import MAD_TO_SIGMA, figure, noise, smooth
from torchdoctor.run import Floats, Run, Trace
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION
from torchdoctor.summary import trend

WIDE_RANGE = 30.0
"""Greatest over least loss from which on a linear axis would hide the small ones."""
SMOOTHED = 40
"""Stretches that a smoothed curve shows."""
SPIKE = 8.0
"""Heights above the smoothed curve, in units of its noise, that a person would ask about."""
SPIKES_SHOWN = 20
NEAR = 8
"""Part of the run whose scatter a spike has to stand out of."""


def draw_loss(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    keys = run.keys(LOSS_TRAIN) or [""]
    traces = {key: run.scalar(LOSS_TRAIN, key) for key in keys}
    traces = {key: trace for key, trace in traces.items() if len(trace)}
    validation = run.scalar(LOSS_VALIDATION)
    if not traces and not len(validation):
        return None
    chart = Chart("loss", _title(traces, validation))
    colours = (BLUE, "#56B4E9", "#CC79A7", GREY)
    for number, (key, trace) in enumerate(traces.items()):
        _add_training(chart, trace, f"training {key}".strip() if len(traces) > 1 else "training", colours[number % 4])
    if len(validation):
        markers = {"mode": "lines+markers", "marker": {"size": 6, "symbol": "diamond"}}
        chart.data.append(line("validation", validation.steps, validation.values, ORANGE, **markers))
    every = [t.values for t in (*traces.values(), validation) if len(t)]
    chart.layout = axes("step", "loss", log=_is_wide(np.concatenate(every)))
    last = max(int(t.steps[-1]) for t in (*traces.values(), validation) if len(t))
    mark_findings(chart, findings, last)
    return chart


def _add_training(chart: Chart, trace: Trace, name: str, colour: str) -> None:
    if trace.merged > 1:
        chart.data += between(trace.low, trace.high, trace.steps, colour, f"{name}, extremes")
    smoothed = smooth(trace.values, _width(len(trace)))
    raw = {"opacity": 0.5, "width": 1, "hoverinfo": "skip"}
    chart.data.append(line(name, trace.steps, trace.values, colour, **raw))
    chart.data.append(line(f"{name}, smoothed", trace.steps, smoothed, colour, width=2.5))
    at = find_spikes(trace.high, smoothed)
    if len(at):
        marker = {"color": RED, "symbol": "triangle-up", "size": 9}
        spikes = {"type": "scatter", "mode": "markers", "name": "spike", "marker": marker}
        chart.data.append({**spikes, "x": trace.steps[at], "y": trace.high[at]})
    broken = np.flatnonzero(~np.isfinite(trace.values))
    if len(broken):
        marker = {"color": RED, "symbol": "x", "size": 10}
        known = trace.values[np.isfinite(trace.values)]
        level = float(known.max()) if len(known) else 1.0
        first = trace.steps[broken[:1]]
        chart.data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "NaN or Inf from here",
                "marker": marker,
                "x": first,
                "y": [level],
            }
        )


def find_spikes(high: Floats, smoothed: Floats) -> np.ndarray:
    """Rows that stand out of the noise around them, the highest first. Around them, since early in a run the loss is
    larger, and so is its scatter."""
    above = high - smoothed
    known = above[np.isfinite(above)]
    least = noise(known) or float(np.abs(known).mean() if len(known) else 0.0)
    above = np.where(np.isfinite(above), above, 0.0)
    unit = np.maximum(least, MAD_TO_SIGMA * smooth(np.abs(above), len(above) // NEAR | 1))
    found = np.flatnonzero(above > SPIKE * unit) if least > 0 else np.zeros(0, int)
    return np.sort(found[np.argsort(-above[found])][:SPIKES_SHOWN])


def _width(rows: int) -> int:
    return max(1, rows // SMOOTHED) | 1


def _is_wide(values: Floats) -> bool:
    finite = values[np.isfinite(values)]
    return bool(len(finite)) and finite.min() > 0 and finite.max() > WIDE_RANGE * finite.min()


def _title(traces: dict[str, Trace], validation: Trace) -> str:
    parts = []
    for key, trace in list(traces.items())[:1]:
        finite = trace.values[np.isfinite(trace.values)]
        said = trend(trace)
        name = f"Training loss {key}".strip()
        if not len(finite):
            parts.append(f"{name} was never a finite number")
        elif said == "not finite":
            broke = trace.steps[int(np.argmin(np.isfinite(trace.values)))]
            parts.append(f"{name} breaks at step {broke} (NaN or Inf)")
        else:
            level = smooth(trace.values, _width(len(trace)))
            parts.append(f"{name}: {said}, from {figure(float(finite[0]))} to {figure(level[-1])}")
    if len(validation) >= 2 and np.isfinite(validation.values).all():
        best = int(np.argmin(validation.values))
        gained = best == len(validation) - 1
        parts.append(
            f"validation best at the end ({figure(validation.values[best])})"
            if gained
            else f"validation best at step {validation.steps[best]} ({figure(validation.values[best])}), "
            f"then {figure(validation.values[-1])}"
        )
    return "; ".join(parts) or "Loss"
