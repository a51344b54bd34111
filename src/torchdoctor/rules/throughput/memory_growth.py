"""Memory rises by the step.

## What it means
What the process (or the device) holds grows all through the training, at a rate that does not slow down. Sooner or
later it ends in an out-of-memory error, often many hours in.

## Why it happens
- Tensors, outputs, batches or logs are appended to a list or a dictionary that is never emptied.
- A cache of samples or results has no limit.
- Losses or hidden states are kept with their graph: that has a name of its own, graph-kept-alive.

## How it is detected
Resident memory of the process and allocated memory of the device are read now and then. The first part of the run is
left out, and where the length of an epoch is known its first epoch, in which data sets fill their caches. What follows
must rise by at least 15 % and 48 MB (on a device 10 % and 16 MB), at nearly every look, and in its second half at least
half as fast as in its first.

## How to fix it
Keep numbers (`loss.item()`), not tensors; give caches a limit (`collections.deque(maxlen=...)`,
`lru_cache(maxsize=...)`) or write to disk what must be kept.

## Known false alarms
A replay buffer that fills up, or a data set that is read into memory in the course of one long epoch, grow on purpose
until they are full. Inside the first epoch the finding is an info only.

## References
PyTorch documentation, "Frequently Asked Questions" (my model reports out of memory).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import TRAIN, LoaderFact
from torchdoctor.findings import Evidence, Finding, Fix, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import MEMORY_DEVICE, MEMORY_HOST, Signal

RULE = Rule(code="P004", name="memory-growth", family="throughput", needs=(MEMORY_HOST,), fallback=True)

MEGABYTE = 1024.0**2
LIMITS: dict[str, tuple[float, float]] = {
    MEMORY_HOST.name: (48 * MEGABYTE, 0.15),
    MEMORY_DEVICE.name: (16 * MEGABYTE, 0.10),
}
"""Least growth, in bytes and as a share: resident memory moves by some 20 MB by itself (allocator, imports)."""
SKIPPED = 0.15
"""Of the run at its beginning: libraries, moments, workspaces and caches come to their size there."""
SKIPPED_STEPS = 20
LEAST_LOOKS = 6
AGREEMENT = 0.8
"""Share of all pairs of looks of which the later is the higher, less those of which it is the lower (Kendall)."""
LASTING = 0.5
"""Speed of the second half over that of the first; a cache that fills slows down."""


@dataclass(frozen=True)
class Growth:
    signal: Signal
    first: float
    rise: float
    a_step: float
    start: int
    end: int
    looks: int
    spark: tuple[float, ...]
    within_first_epoch: bool


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    readings = [(signal, run.scalar(signal)) for signal in (MEMORY_DEVICE, MEMORY_HOST)]
    growths = [g for signal, trace in readings if (g := _growth(run, signal, curves.read(trace))) is not None]
    if growths:
        yield _finding(growths[0])
        return
    host = curves.read(run.scalar(MEMORY_HOST))
    if len(host) >= LEAST_LOOKS and host.values[-1] < 1.05 * host.values[len(host) // 3]:
        text = f"resident memory stays at {host.values[-1] / MEGABYTE:.0f} MB"
        yield RuledOut(RULE.name, text, MEMORY_HOST.name, float(host.values[-1]))


def _growth(run: Run, signal: Signal, curve: curves.Curve) -> Growth | None:
    epoch = min((f.batches for f in run.facts(LoaderFact) if f.phase == TRAIN and f.batches), default=0)
    inside = bool(epoch) and run.steps < 1.5 * epoch
    begin = max(SKIPPED_STEPS, SKIPPED * run.steps, 0 if inside else epoch)
    keep = curve.steps >= begin
    steps, values = curve.steps[keep].astype(np.float64), curve.values[keep]
    if len(values) < LEAST_LOOKS:
        return None
    slope = _slope(steps, values)
    rise = slope * (steps[-1] - steps[0])
    least, share = LIMITS[signal.name]
    if rise < least or rise < share * values[0] or _agreement(values) < AGREEMENT:
        return None
    middle = int(np.searchsorted(steps, (steps[0] + steps[-1]) / 2))
    if middle < 2 or len(values) - middle < 2:
        return None
    before, after = _slope(steps[: middle + 1], values[: middle + 1]), _slope(steps[middle:], values[middle:])
    if after < LASTING * before or after <= 0:
        return None
    return Growth(
        signal,
        float(values[0]),
        float(rise),
        slope,
        int(steps[0]),
        int(steps[-1]),
        len(values),
        curves.spark(curve.values),
        inside,
    )


def _slope(steps: curves.Floats, values: curves.Floats) -> float:
    """The median slope over all pairs (Theil and Sen)."""
    first, second = np.triu_indices(len(steps), 1)
    if len(first) > 100_000:
        return float(np.polyfit(steps, values, 1)[0])
    apart = steps[second] - steps[first]
    return (
        float(np.median((values[second] - values[first])[apart > 0] / apart[apart > 0])) if np.any(apart > 0) else 0.0
    )


def _agreement(values: curves.Floats) -> float:
    few = values[:: max(1, len(values) // 200)]
    first, second = np.triu_indices(len(few), 1)
    return float(np.mean(np.sign(few[second] - few[first])))


def _finding(growth: Growth) -> Finding:
    where = "device" if growth.signal is MEMORY_DEVICE else "process"
    rise, speed = growth.rise / MEGABYTE, growth.a_step / MEGABYTE
    return RULE.finding(
        severity=Severity.INFO if growth.within_first_epoch else Severity.WARNING,
        confidence=0.8,
        title=f"memory of the {where} grows by {1000 * speed:.3g} MB in 1,000 steps and does not level off",
        summary=f"It rose by {rise:.0f} MB ({growth.rise / growth.first:.0%}) between steps {growth.start} and "
        f"{growth.end}, all the time and at the same pace: something is kept from every step.",
        first_step=growth.start,
        last_step=growth.end,
        evidence=[
            Evidence(
                f"{growth.first / MEGABYTE:.0f} MB at step {growth.start}, {rise:.0f} MB more at step {growth.end} "
                f"({growth.looks} looks)",
                growth.signal.name,
                growth.rise / growth.first,
                LIMITS[growth.signal.name][1],
                spark=growth.spark,
            )
        ],
        fix=Fix(
            "Look for lists, dictionaries and caches that are filled in every step; keep numbers instead of tensors, "
            "or give them a limit.",
            "history = collections.deque(maxlen=1000)  # instead of a list that is appended to in every step",
        ),
        symptoms=("growing-memory",),
    )
