"""Reading values in every step stalls the device.

## What it means
Python runs ahead of the GPU and queues its work. Whoever reads a value (`.item()`, `.cpu()`, printing a tensor) makes
it wait until the queue is empty, and the GPU then waits for Python to fill it again. A few of these in a step cost
little; dozens leave the device idle for a good part of it.

## Why it happens
- A norm, a loss term or a metric is read for every layer or every head, in every step.
- Tensors are printed or formatted for a progress bar in every step.
- Whole outputs are moved to the CPU to compute a metric there.

## How it is detected
Only where a CUDA device is used. On some steps, calls that wait for the device are counted, with their line. Each is
taken to cost 30 microseconds of idle device (measured: 148 reads of norms in a 45 ms step cost 5.5 to 6.4 ms), and
what is copied 4 bytes an element at 6 GB/s. A warning is given where that comes to 5 % of the step and three calls.

## How to fix it
Add up on the device (`total += loss.detach()`) and read once in a while; stack what is to be read and read it at once;
compute metrics on the device.

## Known false alarms
One `loss.item()` in a step is common and cheap, and is not reported. Reads under `no_grad` are validation's and do not
count. Models that must decide on values (early exits, dynamic shapes) cannot avoid them.

## References
PyTorch documentation, "Performance Tuning Guide" (avoid unnecessary CPU-GPU synchronization).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.facts import SynchronisationFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import TIME_STEP

RULE = Rule(
    of_code=True,
    code="P002",
    name="host-sync-bound",
    family="throughput",
    needs=(SynchronisationFact, TIME_STEP),
    explains=("small-kernels", "device-underfilled"),
)

SECONDS = 30e-6
"""Idle device for each wait: 5.5 to 6.4 ms for 148 of them in a step of 45 ms on an H200, less the norms themselves."""
BYTES_A_SECOND = 6e9
"""Pageable copies over PCIe."""
ELEMENT = 4
LEAST_SHARE = 0.05
LEAST_CALLS = 3.0
"""A step: the loss, a metric and a norm are what everybody reads."""
LEAST_STEPS = 3


def detect(run: Run) -> Iterator[Finding]:
    last = {(f.call, f.file, f.line): f for f in run.facts(SynchronisationFact)}
    facts = [f for f in last.values() if f.steps >= LEAST_STEPS]
    times = run.scalar(TIME_STEP).values
    if not facts or not np.isfinite(times).any():
        return
    step = curves.median(times)
    calls = sum(f.count / f.steps for f in facts)
    share = sum(_cost(f) for f in facts) / max(step, 1e-9)
    if calls >= LEAST_CALLS and share >= LEAST_SHARE:
        yield _finding(run, sorted(facts, key=_cost, reverse=True), calls, min(share, 1.0), step)


def _cost(fact: SynchronisationFact) -> float:
    """Seconds of a step."""
    return fact.count / fact.steps * (SECONDS + fact.elements * ELEMENT / BYTES_A_SECOND)


def _finding(run: Run, facts: list[SynchronisationFact], calls: float, share: float, step: float) -> Finding:
    worst = facts[0]
    lines = [f"{f.count / f.steps:.3g} a step: {f.code or f.call}" for f in facts[:3]]
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.75,
        title=f"{calls:.0f} calls in every step make Python wait for the GPU, about {share:.0%} of the step",
        summary="Each read empties the device's queue, and the device is idle until Python has filled it again.",
        where=known(*(Place(file=f.file, line=f.line) for f in facts[:3])),
        first_step=0,
        last_step=run.steps,
        evidence=[
            Evidence(f"{calls:.3g} synchronising calls a step, in steps of {1e3 * step:.3g} ms", value=calls),
            *(Evidence(text) for text in lines),
            Evidence(
                f"at {1e6 * SECONDS:.0f} microseconds each, {share:.0%} of the step", value=share, threshold=LEAST_SHARE
            ),
        ],
        fix=Fix(
            f"Keep the values on the device and read them every hundred steps, all at once (now: {worst.call}).",
            "total += loss.detach()  # and total.item() once in a while",
        ),
        symptoms=("slow-steps", "gpu-busy-but-slow"),
    )
