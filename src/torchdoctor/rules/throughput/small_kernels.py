"""The device idles between many tiny operations.

## What it means
Python, torch and the driver need some 5 to 20 microseconds to start an operation. Where the device finishes each of
them sooner than that, it waits for the next one, and the step takes as long as Python needs to ask for all of them: a
faster device, or fewer numbers to compute, change nothing. What helps is to ask for less, each time for more.

## Why it happens
- A loop in Python over time steps, heads, experts, samples or groups, with a few small operations for each.
- Formulas written out in elementary operations where torch has one call (a recurrent cell, attention, normalisation).
- An optimizer that goes through the parameters one by one (`foreach=False`).

## How it is detected
Only where a CUDA device is used. In up to five steps of a run the device sleeps while Python queues the forward pass,
then the backward pass, then the update; its own time for them is measured with events, and so is Python's. The idle
share is Python's time less the device's, over the usual time of a step: waiting for data, reading values and work
between the steps are not in it. The finding needs 30 % idle, and either 200 operations in the graph with six for each
parameter tensor (a network of layers has one to three; a loop goes through the same ones again and again), or 50 of
them in layers whose outputs fill the device, so that larger batches would not help. It is a warning where 60 % of the
step is lost (40 % where so much was queued that the device's time is only known to be no longer), and three seconds of
the run so far: on a large device every small model is like this, and a demonstration that takes a second is not worth a
change. Otherwise it is an info.

## How to fix it
Replace the loop by one operation over a further dimension (`nn.LSTM`, `scaled_dot_product_attention`, `bmm`, `einsum`,
`torch.func.vmap`). Where that cannot be done, `torch.compile(model, mode="reduce-overhead")` puts many operations into
one launch, and CUDA graphs replay the whole step.

## Known false alarms
Other work on the same processor cores slows Python down for a while. Measured where more than about a thousand
launches are queued at once, the device's time is too long and the idle share too small, so that it may be missed.

## References
PyTorch documentation, "Performance Tuning Guide" and "CUDA Graphs". Fernandez et al., "The Framework Tax" (2023).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import DeviceFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import device
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import TIME_STEP

RULE = Rule(
    code="P003",
    name="small-kernels",
    family="throughput",
    needs=(DeviceFact, TIME_STEP),
    explains=("device-underfilled",),
)

TELL_IDLE, WARN_IDLE = 0.3, 0.6
"""Share of the step: without it the run would be 1.4, or 2.5, times as fast."""
WARN_SECONDS = 3.0
"""Lost so far: less is not worth a change."""
MANY, EACH = 200, 6.0
"""Operations in the graph, and for each parameter tensor: layers have 1 to 3 (transformer blocks and residual networks,
without views), a recurrent cell written out over 50 steps has hundreds."""
SOME = 50
"""Operations with outputs that fill the device: with fewer, a larger batch is the answer all the same."""
OVERFLOWN = 300
"""Operations from which on more launches are queued at once than a stream holds (about a thousand): the device's time
is then an upper bound, the idle share a lower one, and WARN_LEAST of it suffices."""
WARN_LEAST = 0.4
DIRECTIONS = 3.0
"""Launches for an operation of the graph: one forward, two backward."""


def detect(run: Run) -> Iterator[Finding]:
    load = device.load(run)
    if load is None or load.idle < TELL_IDLE or not load.fact.operations or not load.fact.parameters:
        return
    fact = load.fact
    each = fact.operations / fact.parameters if fact.operations and fact.parameters else 0.0
    loops = (fact.operations or 0) >= MANY and each >= EACH
    filled = (fact.operations or 0) >= SOME and fact.elements is not None and fact.elements >= fact.slots
    if loops or filled:
        yield _finding(run, load, loops, each)


def _finding(run: Run, load: device.Load, loops: bool, each: float) -> Finding:
    fact = load.fact
    operations = fact.operations or 1
    microseconds = 1e6 * fact.device_seconds / (DIRECTIONS * operations)
    asked = 1e6 * load.host / (DIRECTIONS * operations)
    at_least = loops and operations >= OVERFLOWN and not fact.piled
    severe = load.idle >= (WARN_LEAST if at_least else WARN_IDLE) and load.lost >= WARN_SECONDS
    return RULE.finding(
        severity=Severity.WARNING if severe else Severity.INFO,
        confidence=0.85 if loops and fact.piled else 0.7,
        title=f"{operations} small operations a step leave the device idle {load.idle:.0%} of the time",
        summary=(
            f"The device needs about {microseconds:.2g} microseconds for an operation, "
            f"Python {asked:.2g} to ask for it."
        ),
        first_step=0,
        last_step=run.steps,
        evidence=[
            load.evidence(),
            Evidence(
                f"Python alone needs {1e3 * load.host:.3g} ms to queue them: {load.idle:.0%} of the step, "
                f"{load.lost:.2g} s so far",
                value=load.idle,
                threshold=WARN_IDLE,
            ),
            Evidence(
                f"{operations} operations in the graph, {each:.3g} for each of {fact.parameters} parameter tensors",
                value=each,
                threshold=EACH,
            ),
        ],
        fix=Fix(
            "Replace loops over time steps, heads or groups by one operation with a further dimension, or let the "
            "compiler join the operations.",
            'model = torch.compile(model, mode="reduce-overhead")',
        ),
        symptoms=("slow-steps", "gpu-busy-but-slow"),
    )
