"""How a CUDA device spends a step: its own time against Python's and against the whole step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import DeviceFact
from torchdoctor.findings import Evidence
from torchdoctor.rules import curves
from torchdoctor.run import Run
from torchdoctor.signals import TIME_BACKWARD, TIME_DATA, TIME_FORWARD, TIME_OPTIMIZER, TIME_STEP, Signal

SKIPPED = 20
"""The first steps are looked at closely, compile kernels and fill caches."""
LEAST_STEPS = 20
UNHURRIED = 0.25
"""Quantile of Python's times: steps that are timed in parts are those we look at, and the slow ones hold our looks."""


@dataclass(frozen=True)
class Load:
    fact: DeviceFact
    step: float
    """seconds of a usual step"""
    host: float
    """seconds that Python needs to queue it; on measured steps it may take longer, so at most what a usual step has"""
    busy: float
    """share of it in which the device computes"""
    idle: float
    """share of it in which the device waits for Python to queue the forward pass, the backward pass and the update"""
    lost: float
    """seconds of the run that are lost by that"""

    def evidence(self) -> Evidence:
        fact = self.fact
        return Evidence(
            f"a step takes {1e3 * self.step:.3g} ms; the {fact.name} needs {1e3 * fact.device_seconds:.3g} ms for "
            f"forward, backward and update with everything queued beforehand: it is busy for {self.busy:.0%}",
            TIME_STEP.name,
            self.busy,
        )


def load(run: Run) -> Load | None:
    """None where no step was measured or too few were made."""
    fact = run.last_fact(DeviceFact)
    step = step_seconds(run)
    if fact is None or step is None:
        return None
    host = fact.host_seconds
    parts = [_quantile(run, signal) for signal in (TIME_FORWARD, TIME_BACKWARD, TIME_OPTIMIZER)]
    known = [p for p in parts if p]
    if len(known) == len(parts):  # the forward pass of a loop without a loader is rarely timed
        host = min(host, sum(known))
    waits = run.scalar(TIME_DATA).values
    data = curves.median(waits) if np.isfinite(waits).any() else 0.0
    host = min(host, max(step - data, 0.0))
    idle = min(max(host - fact.device_seconds, 0.0) / step, 1.0)
    busy = min(fact.device_seconds / step, 1.0)
    return Load(fact, step, host, busy, idle, idle * step * run.steps)


def step_seconds(run: Run) -> float | None:
    """A usual step, without the first ones."""
    trace = run.scalar(TIME_STEP)
    values = trace.values[(trace.steps >= SKIPPED) & np.isfinite(trace.values)]
    return float(np.median(values)) if len(values) * trace.merged >= LEAST_STEPS and np.median(values) > 0 else None


def _quantile(run: Run, signal: Signal) -> float | None:
    trace = run.scalar(signal)
    values = trace.values[(trace.steps >= SKIPPED) & np.isfinite(trace.values)]
    return float(np.quantile(values, UNHURRIED)) if len(values) >= 3 else None
