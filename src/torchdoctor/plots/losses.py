"""The loss over the training: raw and smoothed, validation, spikes, and where findings begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, between, line, mark_findings, tell_when
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
TOLD = 3
"""Losses whose course the title tells: a GAN has two or three."""
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
    finite = np.isfinite(trace.values)
    smoothed = np.full(len(trace), np.nan)
    smoothed[finite] = smooth(trace.values[finite], _width(int(finite.sum())))
    raw = {"opacity": 0.5, "width": 1, "hoverinfo": "skip"}
    chart.data.append(line(name, trace.steps, trace.values, colour, **raw))
    chart.data.append(line(f"{name}, smoothed", trace.steps, smoothed, colour, width=2.5))
    at = find_spikes(*_scaled(trace.high, smoothed))
    if len(at):
        chart.data.append(_marks("spike", "triangle-up", trace.steps[at], trace.high[at]))
    level = float(trace.values[finite].max()) if finite.any() else 1.0
    for said, rows in zip(("NaN or Inf", "NaN or Inf from here"), _broken_rows(finite), strict=True):
        if len(rows):
            rows = rows[:SPIKES_SHOWN]
            chart.data.append(_marks(said, "x", trace.steps[rows], np.full(len(rows), level)))


def _scaled(high: Floats, smoothed: Floats) -> tuple[Floats, Floats]:
    """As the axis shows them: a loss that falls by decades has its scatter in proportion."""
    if not _is_wide(np.concatenate([high, smoothed])):
        return high, smoothed
    with np.errstate(invalid="ignore"):
        return np.log(high), np.log(smoothed)


def _broken_rows(finite: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those between finite ones, and the first of those up to the end."""
    end = len(finite) - int(np.argmax(finite[::-1])) if finite.any() else 0
    return np.flatnonzero(~finite[:end]), np.arange(len(finite))[end : end + 1]


def _marks(name: str, symbol: str, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    marker = {"color": RED, "symbol": symbol, "size": 10}
    return {"type": "scatter", "mode": "markers", "name": name, "marker": marker, "x": x, "y": y}


def find_spikes(high: Floats, smoothed: Floats) -> np.ndarray:
    """Rows that rise out of the noise around them, the highest first. Around them, since early in a run the loss is
    larger, and so is its scatter. Rise, since a loss that falls steeply begins above its smoothed curve."""
    above = high - smoothed
    known = above[np.isfinite(above)]
    least = noise(known) or float(np.abs(known).mean() if len(known) else 0.0)
    above = np.where(np.isfinite(above), above, 0.0)
    unit = np.maximum(least, MAD_TO_SIGMA * smooth(np.abs(above), len(above) // NEAR | 1))
    before = np.append(np.inf, high[:-1])
    found = np.flatnonzero((above > SPIKE * unit) & (high > before)) if least > 0 else np.zeros(0, int)
    return np.sort(found[np.argsort(-above[found])][:SPIKES_SHOWN])


def _width(rows: int) -> int:
    return max(1, rows // SMOOTHED) | 1


def _is_wide(values: Floats) -> bool:
    finite = values[np.isfinite(values)]
    return bool(len(finite)) and finite.min() > 0 and finite.max() > WIDE_RANGE * finite.min()


def _title(traces: dict[str, Trace], validation: Trace) -> str:
    parts = [_course(f"loss {key}".strip(), trace) for key, trace in list(traces.items())[:TOLD]]
    if parts:
        parts[0] = f"Training {parts[0]}"
    if len(traces) > TOLD:
        parts.append(f"{len(traces) - TOLD} losses more")
    if len(validation):
        said = _validation(validation)
        parts.append(said if parts else said[0].upper() + said[1:])
    return "; ".join(parts)


def _course(name: str, trace: Trace) -> str:
    """Where it goes, and where it is no number."""
    finite = trace.values[np.isfinite(trace.values)]
    if not len(finite):
        return f"{name} was never a finite number"
    between, end = _broken_rows(np.isfinite(trace.values))
    said, when = trend(trace), tell_when(trace, ~np.isfinite(trace.values))
    if said == "not finite" and len(end):
        about = "about " if trace.merged > 1 else ""
        before = f", and was so at {len(between)} steps before" if len(between) else ""
        return f"{name} breaks at {about}step {trace.steps[end[0]]} (NaN or Inf){before}"
    level = smooth(finite, _width(len(finite)))
    course = f"{name}: {said}, from {figure(float(finite[0]))} to {figure(float(level[-1]))}"
    return f"{course}, NaN or Inf {when}" if when else course


def _validation(trace: Trace) -> str:
    finite = np.isfinite(trace.values)
    if not finite.any():
        return "validation loss was never a finite number"
    steps, values = trace.steps[finite], trace.values[finite]
    best, last = int(np.argmin(values)), figure(float(values[-1]))
    least = figure(float(values[best]))
    when = tell_when(trace, ~finite)
    broken = f", NaN or Inf {when}" if when else ""
    if len(values) == 1:
        return f"validation loss {least} at step {steps[0]}{broken}"
    if least == last:
        return f"validation best at the end ({least}){broken}"
    return f"validation best at step {steps[best]} ({least}), then {last}{broken}"
