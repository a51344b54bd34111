"""The device is busy moving numbers, not computing.

## What it means
A device does some hundred operations in the time in which it fetches one number from its memory. Matrix products use
each number often; adding, scaling, activating and normalising use it once, so they run at the speed of the memory.
Where most of a step is of that kind, the device looks fully busy and does a small part of what it could.

## Why it happens
- Formulas written out in elementary operations: each reads its whole input from memory and writes a whole output.
- Very narrow layers on very many rows, or batches so small that reading weights and optimizer states is most of it.
- Normalisations, activations and casts in 32 bits around products in 16.

## How it is detected
Only where a CUDA device is used. The device's own time of a step is measured in up to five steps (see small-kernels).
FLOPs are counted from the matrix products, convolutions and attention in the graph, three times the forward pass; bytes
from the outputs of all its operations, five times each (written and read, and three times in backward), and from
weights, gradients and optimizer states: a lower estimate. What the device can do is measured after the training, with
one large product in the run's own number format and one large copy. The finding needs a device that is busy for 70 % of
the step, at least 40 % of its time explained by bytes at the speed of the copy, and at most half as much by FLOPs. It
is a warning only where element by element operations alone take 40 % of the device's time by that estimate, most of
which joining them would save, and that was a second of the run so far; else an info: normalised convolutions and small
batches are memory-bound by nature.

## How to fix it
`torch.compile` joins neighbouring element by element operations into one that reads and writes once; so do torch's own
`F.gelu`, `F.layer_norm`, `F.scaled_dot_product_attention` and fused optimizers (`fused=True`). 16-bit numbers halve the
bytes. For convolutions, `channels_last`.

## Known false alarms
The estimate counts tensors that stay in the device's cache as moved. It knows nothing of what a compiled part does, and
says nothing there.

## References
Williams et al., "Roofline: An Insightful Visual Performance Model" (2009). Ivanov et al., "Data Movement Is All You
Need" (2021).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import DeviceFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import device
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import TIME_STEP

RULE = Rule(code="P007", name="memory-bound-kernels", family="throughput", needs=(DeviceFact, TIME_STEP))

BUSY = 0.7
LEAST_MOVING = 0.4
"""Of the device's time, by the bytes at the speed of a plain copy."""
MOST_COMPUTING = 0.5
"""FLOPs' time over bytes' time: left of the ridge of the roofline, with room for the estimate's error."""
WARN_POINTWISE = 0.4
"""Of the device's time, by element by element operations alone, as far as they are counted. On an H200 two networks
with formulas written out come to 0.47 and 0.52, and save 0.65 and 0.52 of their time with torch's own functions, which
come to 0.19 and 0.27."""
WARN_SECONDS = 1.0
"""In them so far: less is not worth a change."""


def detect(run: Run) -> Iterator[Finding]:
    load = device.load(run)
    if load is None or load.busy < BUSY:
        return
    fact = load.fact
    if fact.bytes is None or fact.flops is None or not fact.copy_rate or not fact.matmul_rate:
        return
    moving = fact.bytes / fact.copy_rate / fact.device_seconds
    computing = fact.flops / fact.matmul_rate / fact.device_seconds
    if moving >= LEAST_MOVING and computing <= MOST_COMPUTING * moving:
        yield _finding(run, load, min(moving, 1.0), computing)


def _finding(run: Run, load: device.Load, moving: float, computing: float) -> Finding:
    fact = load.fact
    flops, octets = fact.flops or 0.0, fact.bytes or 1.0
    matmul_rate, copy_rate = fact.matmul_rate or 1.0, fact.copy_rate or 1.0
    pointwise = min((fact.pointwise_bytes or 0.0) / copy_rate / fact.device_seconds, 1.0)
    severe = pointwise >= WARN_POINTWISE and pointwise * fact.device_seconds * run.steps >= WARN_SECONDS
    return RULE.finding(
        severity=Severity.WARNING if severe else Severity.INFO,
        confidence=0.8 if severe else 0.65,
        title=f"The device moves bytes: its matrix units work at {computing:.0%} of what they can",
        summary=(
            f"A step does {flops / octets:.2g} FLOP for each byte it moves; this device would need "
            f"{matmul_rate / copy_rate:.2g} to be kept computing."
        ),
        first_step=0,
        last_step=run.steps,
        evidence=[
            load.evidence(),
            Evidence(
                f"at least {octets / 1e9:.3g} GB a step, at {copy_rate / 1e12:.2g} TB/s (measured) "
                f"{moving:.0%} of its time",
                value=moving,
                threshold=LEAST_MOVING,
            ),
            Evidence(
                f"{flops / 1e9:.3g} GFLOP a step, at {matmul_rate / 1e12:.3g} TFLOP/s (measured, {fact.dtype}) "
                f"{computing:.0%} of its time",
                value=computing,
                threshold=MOST_COMPUTING * moving,
            ),
            Evidence(
                f"element by element operations alone take {pointwise:.0%}", value=pointwise, threshold=WARN_POINTWISE
            ),
        ],
        fix=Fix(
            "Let the compiler join element by element operations, or use torch's own functions for them.",
            "model = torch.compile(model)",
        ),
        symptoms=("gpu-busy-but-slow",),
    )
