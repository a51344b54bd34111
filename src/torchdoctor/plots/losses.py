"""The loss over the training: raw and smoothed, validation, spikes, and where findings begin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from torchdoctor.distributions.gaps import nanmedian
from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, between, line, mark_findings, tell_when
from torchdoctor.plots.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from torchdoctor.rules.curves import MAD_TO_SIGMA, figure, smooth
from torchdoctor.run import Floats, Run, Trace
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION
from torchdoctor.summary import loss_ends, trend

WIDE_RANGE = 30.0
"""Greatest over least loss from which on a linear axis would hide the small ones."""
SMOOTHED = 40
"""Stretches that a smoothed curve shows."""
SPIKE = 8.0
"""Heights above the rows around, in units of their noise, that a person would ask about."""
VISIBLE = 0.05
"""Share of the height of the picture below which nobody sees a spike."""
SIDE, LEAST_ROWS = 5, 16
"""Rows on each side of a spike that it is compared with, at least, and rows of the shortest curve that has spikes."""
SPIKES_SHOWN = 20
TOLD = 3
"""Losses whose course the title tells: a GAN has two or three."""
NEAR = 8
"""Part of the run whose scatter a spike has to stand out of."""
RISEN = 0.1
"""Share above its best from which on a validation loss has risen: that of single passes scatters by less."""
OVERFITTING = "train-down-validation-up"
"""The symptom of findings that speak of such a rise."""
PEAK, PEAK_START = 3.0, 2.0
"""Times the median and the end, and times the first looks, from which on a title names the peak."""
FAR_OFF = 0.25
"""Share by which the first looks of a flat loss lie off its level, and which a title then tells."""
SCATTERED = 2.0
"""Ratio of what 95 and 5 % of a flat loss lie below, from which on a title tells both."""


def draw_loss(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    keys = run.keys(LOSS_TRAIN) or [""]
    traces = {key: run.scalar(LOSS_TRAIN, key) for key in keys}
    traces = {key: trace for key, trace in traces.items() if len(trace)}
    validation = run.scalar(LOSS_VALIDATION)
    if not traces and not len(validation):
        return None
    chart = Chart("loss", _title(traces, validation))
    colours = (BLUE, SKY, PURPLE, GREY)
    for number, (key, trace) in enumerate(traces.items()):
        _add_training(chart, trace, f"training {key}".strip() if len(traces) > 1 else "training", colours[number % 4])
    every = np.concatenate([t.values for t in (*traces.values(), validation) if len(t)])
    if len(validation):
        markers = {"mode": "lines+markers", "marker": {"size": 6, "symbol": "diamond"}}
        chart.data.append(line("validation", validation.steps, validation.values, ORANGE, **markers))
        chart.data += _best(validation)
    log = is_wide(every) and not _hides_rise(validation, every, any(OVERFITTING in f.symptoms for f in findings))
    chart.layout = axes("step", "loss", log=log)
    last = max(int(t.steps[-1]) for t in (*traces.values(), validation) if len(t))
    mark_findings(chart, findings, last)
    return chart


def _best(validation: Trace) -> list[dict[str, Any]]:
    """Its mark, where there is more than one pass to choose from."""
    finite = np.flatnonzero(np.isfinite(validation.values))
    if len(finite) < 2:
        return []
    at = finite[[int(np.argmin(validation.values[finite]))]]
    mark = _marks("best validation", "star", validation.steps[at], validation.values[at])
    return [{**mark, "marker": {"color": GREEN, "symbol": "star", "size": 15}}]


def _hides_rise(validation: Trace, every: Floats, expected: bool) -> bool:
    """Whether a logarithmic axis shows the rise of the validation loss lower than a linear one would. A rise that is
    `expected`, since a finding speaks of it, may be small."""
    finite, known = validation.values[np.isfinite(validation.values)], every[np.isfinite(every)]
    if len(finite) < 2:
        return False
    best, last, least, most = float(finite.min()), float(finite[-1]), float(known.min()), float(known.max())
    if last <= (best if expected else (1 + RISEN) * best):
        return False
    return (last - best) / (most - least) > np.log(last / best) / np.log(most / least)


def _add_training(chart: Chart, trace: Trace, name: str, colour: str) -> None:
    if trace.merged > 1:
        chart.data += between(trace.low, trace.high, trace.steps, colour, f"{name}, extremes")
    finite, smoothed = np.isfinite(trace.values), _smoothed(trace)
    raw = {"opacity": 0.7, "width": 1, "hoverinfo": "skip"}
    chart.data.append(line(name, trace.steps, trace.values, colour, **raw))
    chart.data.append(line(f"{name}, smoothed", trace.steps, smoothed, colour, width=2.5))
    at = _spikes(trace)
    if len(at):
        chart.data.append(_marks("spike", "triangle-up", trace.steps[at], trace.high[at]))
    height = float(trace.values[finite].max()) if finite.any() else 1.0
    for said, rows in zip(("NaN or Inf", "NaN or Inf from here"), _broken_rows(finite), strict=True):
        if len(rows):
            rows = rows[:SPIKES_SHOWN]
            chart.data.append(_marks(said, "x", trace.steps[rows], np.full(len(rows), height)))


def _smoothed(trace: Trace) -> Floats:
    finite, smoothed = np.isfinite(trace.values), np.full(len(trace), np.nan)
    smoothed[finite] = smooth(trace.values[finite], _width(int(finite.sum())))
    return smoothed


def _spikes(trace: Trace) -> np.ndarray:
    return find_spikes(_scaled(trace.high))


def _scaled(high: Floats) -> Floats:
    """As the axis shows them: a loss that falls by decades has its scatter in proportion."""
    if not is_wide(high):
        return high
    with np.errstate(invalid="ignore"):
        return np.log(high)


def _broken_rows(finite: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those between finite ones, and the first of those up to the end."""
    end = len(finite) - int(np.argmax(finite[::-1])) if finite.any() else 0
    return np.flatnonzero(~finite[:end]), np.arange(len(finite))[end : end + 1]


def _marks(name: str, symbol: str, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    marker = {"color": RED, "symbol": symbol, "size": 10}
    return {"type": "scatter", "mode": "markers", "name": name, "marker": marker, "x": x, "y": y}


def find_spikes(high: Floats) -> np.ndarray:
    """Rows that stand out of the rows before and after them, the highest `SPIKES_SHOWN`, in order.

    A spike is the highest of its neighbourhood, stands `SPIKE` standard deviations of the scatter around it above the
    medians on both sides, and can be seen: the scatter of a smooth curve may be nearly zero.
    """
    rows = np.flatnonzero(np.isfinite(high))
    values = high[rows].astype(np.float64)
    if len(values) < LEAST_ROWS:
        return np.zeros(0, int)
    reach = max(SIDE, len(values) // (2 * SMOOTHED))
    before, after = _medians(values, reach), _medians(values[::-1], reach)[::-1]
    above = values - np.fmax(before, after)
    scatter = _scatter(values, max(reach, len(values) // (2 * NEAR)))
    least = np.maximum(SPIKE * scatter, VISIBLE * np.ptp(values))
    around = sliding_window_view(np.pad(values, reach, constant_values=-np.inf), 2 * reach + 1)
    found = np.flatnonzero((above > least) & (values >= around.max(1)) & np.isfinite(before))
    return rows[np.sort(found[np.argsort(-above[found])][:SPIKES_SHOWN])]


def _medians(values: Floats, reach: int) -> Floats:
    """Median of the rows before each, at most `reach` of them; NaN for the first."""
    padded = sliding_window_view(np.pad(values, (reach, 0), constant_values=np.nan), reach)[:-1]
    medians = np.full(len(values), np.nan)
    medians[1:] = nanmedian(padded[1:], axis=1)
    return medians


def _scatter(values: Floats, reach: int) -> Floats:
    """Standard deviation of the noise around each row, by the differences of neighbours."""
    steps = np.diff(values)
    apart = np.abs(steps - np.median(steps))
    windows = sliding_window_view(np.pad(apart, reach, mode="reflect"), 2 * reach + 1)
    near = MAD_TO_SIGMA * np.median(windows, axis=1) / math.sqrt(2)
    return np.append(near, near[-1])


def _width(rows: int) -> int:
    return max(1, rows // SMOOTHED) | 1


def is_wide(values: Floats) -> bool:
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
    """Where it goes, how high it has been, and where it is no number."""
    finite = trace.values[np.isfinite(trace.values)].astype(np.float64)
    if not len(finite):
        return f"{name} was never a finite number"
    between, end = _broken_rows(np.isfinite(trace.values))
    said, when = trend(trace), tell_when(trace, ~np.isfinite(trace.values))
    ends = loss_ends(trace)
    broke = said == "not finite" and bool(len(end))
    heights = _heights(trace, ends[0], max(ends[1] if not broke else ends[0], float(np.median(finite))), broke)
    if broke:
        about = "about " if trace.merged > 1 else ""
        before = f", and was so at {len(between)} steps before" if len(between) else ""
        return f"{name} breaks at {about}step {trace.steps[end[0]]} (NaN or Inf){before}{heights}"
    course = _level(finite, ends[0]) if said == "flat" else f", from {figure(ends[0])} to {figure(ends[1])}"
    return f"{name}: {said}{course}{heights}" + (f", NaN or Inf {when}" if when else "")


def _level(finite: Floats, first: float) -> str:
    """Of a loss that is flat by and large: where it stands, how far it scatters, and whether it began elsewhere."""
    low, middle, high = (float(q) for q in np.quantile(finite, (0.05, 0.5, 0.95)))
    said = f", about {figure(middle)}"
    if low > 0 and high > SCATTERED * low:
        said += f" (mostly {figure(low)} to {figure(high)})"
    if abs(first - middle) > FAR_OFF * max(abs(first), abs(middle)):
        said += f", after {figure(first)} in the first steps"
    return said


def _heights(trace: Trace, first: float, later: float, broke: bool) -> str:
    """A peak that stands far above the first looks and those `later`, and the spikes that are marked; of a loss that
    breaks the peak alone, since it does not come back from it."""
    high = np.where(np.isfinite(trace.high), trace.high, -np.inf)
    spikes = _spikes(trace) if not broke else np.zeros(0, int)
    peak, said = int(high.argmax()), ""
    if peak not in spikes and _stands_above(high[peak], first, PEAK_START) and _stands_above(high[peak], later, PEAK):
        said = f", up to {_at(trace, peak)}"
    if not len(spikes):
        return said
    highest = _at(trace, int(spikes[int(high[spikes].argmax())]))
    count = f"at least {len(spikes)}" if len(spikes) == SPIKES_SHOWN else str(len(spikes))
    return f"{said}, {count} spikes (the highest {highest})" if len(spikes) > 1 else f"{said}, 1 spike ({highest})"


def _stands_above(value: float, base: float, times: float) -> bool:
    """For losses below zero, too."""
    return value - base > (times - 1) * abs(base)


def _at(trace: Trace, row: int) -> str:
    return f"{figure(float(trace.high[row]))} at {'about ' if trace.merged > 1 else ''}step {trace.steps[row]}"


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
