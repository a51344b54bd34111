"""A run at a glance: what a line of the list shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torchdoctor.findings import Verdict
from torchdoctor.report.headlines import HEALTHY, headline_of
from torchdoctor.report.text import count, number, on_log_scale
from torchdoctor.run import Floats, Run, Trace
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION

SIZE = (120, 28)
EDGE = 2


@dataclass(frozen=True)
class Glance:
    severity: str
    badge: str
    title: str
    whole: str
    """all that the verdict says"""
    steps: int
    last_loss: str
    spark: tuple[str, ...]
    """points of lines, as SVG has them; several where values in between were not finite"""


def take_glance(run: Run, verdict: Verdict) -> Glance:
    loss = find_loss(run)
    top, last = headline_of(verdict, run.steps), loss.last().values
    return Glance(
        top.severity,
        top.name or top.badge,
        top.title if top.severity != HEALTHY else f"{count(len(verdict.examined), 'diagnosis', 'diagnoses')} examined",
        f"{top.title}. {top.summary}" if top.summary else top.title,
        run.steps,
        number(float(last[-1])) if len(last) else "",
        draw_spark(loss),
    )


def draw_spark(trace: Trace, size: tuple[int, int] = SIZE) -> tuple[str, ...]:
    """The curve in a small box; of each stretch the value farthest from the middle, so that a spike stays."""
    width, height = size
    values = _thin(trace.values, width // 2)
    if on_log_scale(values.tolist()):
        values = np.log(values)
    known = values[np.isfinite(values)]
    if not len(known):
        return ()
    low, high = float(known.min()), float(known.max())
    span = high - low if math.isfinite(high - low) and high > low else 1.0
    x = np.linspace(EDGE, width - EDGE, len(values)) if len(values) > 1 else np.array([width / 2])
    y = height - EDGE - (values - low) / span * (height - 2 * EDGE)
    lines: list[list[str]] = [[]]
    for across, down in zip(x, y, strict=True):
        if math.isfinite(down):
            lines[-1].append(f"{across:.1f},{down:.1f}")
        elif lines[-1]:
            lines.append([])
    return tuple(" ".join(points) for points in lines if points)


def find_loss(run: Run) -> Trace:
    """In training, else in validation; of several the longest."""
    for signal in (LOSS_TRAIN, LOSS_VALIDATION):
        found = max((run.scalar(signal, key) for key in run.keys(signal)), key=len, default=Trace.empty())
        if len(found):
            return found
    return Trace.empty()


def _thin(values: Floats, most: int) -> Floats:
    values = np.asarray(values, np.float64)
    if len(values) <= most:
        return values
    known = values[np.isfinite(values)]
    middle = float(np.median(known)) if len(known) else 0.0
    parts = np.array_split(values, most)
    far = [np.where(np.isfinite(p), np.abs(p - middle), np.inf) for p in parts]
    return np.array([p[int(np.argmax(f))] for p, f in zip(parts, far, strict=True)])
