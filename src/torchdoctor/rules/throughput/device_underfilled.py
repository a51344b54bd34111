"""The batch or the model is too small for the device.

## What it means
A device computes as many results at once as it has room for threads (some hundred thousand on a large one). Layers that
give fewer numbers leave most of it empty, and finish before Python has asked for the next. The step takes as long as
Python needs, whatever the batch: a batch several times as large would take the same time.

## Why it happens
- The batch size was chosen for a smaller device, or for a CPU.
- The model is so small that a CPU would train it as fast.

## How it is detected
Only where a CUDA device is used. In up to five steps the device's own time for a forward pass, a backward pass and an
update is measured apart from Python's (see small-kernels). The idle share is Python's time less the device's, over the
usual time of a step. The finding needs 30 % idle, a median output of the layers with weights that is smaller than the
threads that the device can hold, and at most a quarter of its memory in use at any time. It is a warning where the
outputs are a quarter of that or less, 60 % of the step is lost, and three seconds of the run so far: tiny models on
large devices are common, and a demonstration that takes a second is not worth a change. Otherwise it is an info.

## How to fix it
Raise the batch size until the step takes longer, and the learning rate with it (linearly for SGD, by the square root
for Adam, with a warm-up), as far as the result stays as good. Several runs can share a device (seeds, a sweep). Where
neither is wanted, train on a CPU, or replay the step as a CUDA graph (`torch.compile(mode="reduce-overhead")`).

## Known false alarms
Batches that must be small: online learning, one environment's samples, a method that is being tested on them. Other
work on the same processor cores slows Python down for a while.

## References
NVIDIA, "Deep Learning Performance: GPU Performance Background" (waves and occupancy). Goyal et al., "Accurate, Large
Minibatch SGD" (2017). McCandlish et al., "An Empirical Model of Large-Batch Training" (2018).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.facts import TRAIN, DeviceFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import device
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import BATCH_SIZE, TIME_STEP

RULE = Rule(code="P008", name="device-underfilled", family="throughput", needs=(DeviceFact, TIME_STEP))

TELL_IDLE, WARN_IDLE = 0.3, 0.6
"""As for small-kernels."""
WARN_SECONDS = 3.0
"""Lost so far: less is not worth a change."""
WARN_FILL = 0.25
"""A layer's numbers over the threads that fit: four batches more would fit at once."""
MOST_MEMORY = 0.25
"""Used of the device's, at any time: a batch of twice the size fits."""
TIMES_LARGER = 64
"""The most that is proposed at once."""


def detect(run: Run) -> Iterator[Finding]:
    load = device.load(run)
    if load is None or load.idle < TELL_IDLE or load.fact.elements is None:
        return
    fact = load.fact
    fill = load.fact.elements / fact.slots
    if fill >= 1.0 or fact.memory_peak > MOST_MEMORY * fact.memory:
        return
    severe = load.idle >= WARN_IDLE and load.lost >= WARN_SECONDS and fill <= WARN_FILL
    yield RULE.finding(
        severity=Severity.WARNING if severe else Severity.INFO,
        confidence=0.8 if fact.piled else 0.7,
        title=f"The device could do {_more(load, fill)} times the batch in the time: it is idle for {load.idle:.0%}",
        summary=(
            f"A layer gives {fact.elements:,} numbers (median); the {fact.name} has room for {fact.slots:,} threads. "
            "Python needs longer to ask for the work than the device to do it."
        ),
        first_step=0,
        last_step=run.steps,
        evidence=[
            load.evidence(),
            Evidence(
                f"Python alone needs {1e3 * load.host:.3g} ms to queue that: {load.idle:.0%} of the step, "
                f"{load.lost:.2g} s so far",
                value=load.idle,
                threshold=WARN_IDLE,
            ),
            Evidence(f"the median layer fills {fill:.2%} of the device", value=fill, threshold=WARN_FILL),
            Evidence(
                f"{fact.memory_peak / 1e9:.2g} of {fact.memory / 1e9:.3g} GB were used at most",
                value=fact.memory_peak / max(fact.memory, 1),
                threshold=MOST_MEMORY,
            ),
        ],
        fix=_fix(run, load, fill),
        symptoms=("slow-steps", "gpu-busy-but-slow"),
    )


def _more(load: device.Load, fill: float) -> int:
    """How many batches the device could do in the time: those that fit at once, or its idle time."""
    possible = max(1 / max(load.busy, 1e-3), 1.0)
    return int(2 ** np.floor(np.log2(min(max(possible, 2.0), max(1 / fill, 2.0), TIMES_LARGER))))


def _fix(run: Run, load: device.Load, fill: float) -> Fix:
    sizes = run.scalar(BATCH_SIZE, TRAIN).values
    size = int(np.median(sizes)) if len(sizes) else None
    return Fix(
        "Raise the batch size, and the learning rate with it, as long as the result stays as good; or run several "
        "trainings on the device at once.",
        f"batch_size = {size * _more(load, fill)}  # was {size}" if size else None,
    )
