"""Gradients pile up from step to step because nothing clears them.

## What it means
`backward()` adds to the gradients that are already there. If they are not cleared between two updates, every step
follows the sum of all gradients so far instead of the current one. That is momentum without friction: the steps grow,
the model overshoots and comes back, and with most learning rates the loss sooner or later climbs.

## Why it happens
`optimizer.zero_grad()` was forgotten, lost in a refactoring, called on another optimizer or model than the one that
is stepped, called once before the loop, or guarded by an `if` that was meant for gradient accumulation while `step()`
is called every time.

## How it is detected
By state, not by the order of calls: when the first backward after an update begins, the parameters' gradients are
looked at. If they are neither None nor zero, the last update's gradients are still in there. The finding stands if
that is so on at least half of the updates. Accumulating over several backwards before one step is not affected, since
only the moment after an update counts.

## How to fix it
Call `optimizer.zero_grad()` once per update: before `backward()`, or right after `step()`. With accumulation, clear
when you step, not when you don't.

## Known false alarms
Code that deliberately keeps a decayed sum in `.grad` as its own momentum. In adversarial training one model's backward
may leave gradients in another model's parameters; that is fine as long as the other optimizer clears them before its
own backward, and is not reported.

## References
PyTorch documentation, torch.optim.Optimizer.zero_grad; tutorial "Zeroing out gradients in PyTorch".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from torchdoctor.facts import OrderFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.places import call_places, call_site, known, receiver
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import GRADIENT_GLOBAL_L2, GRADIENTS_CLEARED

RULE = Rule(
    code="T004",
    name="missing-zero-grad",
    family="procedure",
    needs=(GRADIENTS_CLEARED,),
    explains=(
        "exploding-gradients",
        "vanishing-gradients",
        "dead-relu",
        "saturated-activations",
        "nonfinite-parameters",
        "learning-rate-too-high",
        "learning-rate-oscillation",
        "learning-rate-too-low",
        "clipping-too-tight",
        "weight-norm-growth",
        "unintended-gradient-scale",
        "loss-sign-flipped",
        "overfitting",
        "underfitting",
        "majority-class-collapse",
    ),
)

ACCUMULATES = 1.5
"""Backward passes per optimizer step above which a loop accumulates gradients."""
SHARE = 0.5
"""No loop clears on fewer than half of its updates on purpose; one that clears every k-th has (k-1)/k."""
MIN_UPDATES = 5
"""Fewer could be a warm-up by hand or a broken-off run."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    fine = True
    for key in run.keys(GRADIENTS_CLEARED):
        trace = run.scalar(GRADIENTS_CLEARED, key)
        looked = trace.values[np.isfinite(trace.values)]
        if len(looked) * trace.merged < MIN_UPDATES:
            fine = False
            continue
        kept = 1.0 - float(looked.mean())
        if kept >= SHARE and not _clears_before_backward(run, key):
            yield _finding(run, key, trace, kept)
        fine = fine and kept < 0.01
    if fine:
        yield RuledOut(RULE.name, "gradients were cleared before every update", GRADIENTS_CLEARED.name, 1.0)


def _clears_before_backward(run: Run, key: str) -> bool:
    """In most seen orders of calls this optimizer's zero_grad comes before the step's last backward.

    Another model's backward may have run through these parameters in between; what counts is what is stepped.
    """
    orders = [f.calls for f in run.facts(OrderFact) if f.optimizer == key and not f.closure]
    clearing = [_is_cleared(calls) for calls in orders]
    return bool(clearing) and sum(clearing) > len(clearing) / 2


def _is_cleared(calls: Sequence[str]) -> bool:
    if "zero_grad" not in calls or "backward" not in calls:
        return False
    last_backward = len(calls) - 1 - list(reversed(calls)).index("backward")
    return "zero_grad" in calls[:last_backward]


def _finding(run: Run, key: str, trace: Trace, kept: float) -> Finding:
    optimizer = run.optimizers.get(key)
    share = f"{kept:.0%}" if kept < 0.995 else "all"
    name = receiver(run, "step", "optimizer")
    evidence = [
        Evidence(
            f"on {share} of the {len(trace) * trace.merged} updates looked at, the previous gradients were still there "
            "when backward began",
            GRADIENTS_CLEARED.name,
            1.0 - kept,
            1.0 - SHARE,
        )
    ]
    norm = curves.read(run.scalar(GRADIENT_GLOBAL_L2, key if key in run.keys(GRADIENT_GLOBAL_L2) else ""))
    if len(norm) >= 3:
        first, peak = float(norm.values[0]), float(norm.values.max())
        text = f"the gradient norm went from {curves.figure(first)} at the start to as much as {curves.figure(peak)}"
        evidence.append(Evidence(text, GRADIENT_GLOBAL_L2.name, peak, spark=curves.spark(norm.values)))
    built = [Place(file=optimizer.file, line=optimizer.line)] if optimizer else []
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.99 if kept > 0.95 else 0.9,
        proof=Proof.STRUCTURE,
        title=f"gradients are not cleared between updates ({share} of them)"
        + (f", optimizer {key} ({optimizer.type})" if optimizer and len(run.optimizers) > 1 else ""),
        summary="Each backward adds to the gradients of all updates before it, so every step follows their sum instead "
        "of the current batch.",
        where=known(*call_places(run, "backward", "step"), *built),
        first_step=int(trace.steps[0]),
        last_step=int(trace.steps[-1]),
        evidence=evidence,
        fix=_fix(run, name),
        symptoms=("diverging",),
    )


def _fix(run: Run, name: str) -> Fix:
    """Where gradients are accumulated, clearing before each backward pass would lose all but the last of them."""
    phase, clear = run.phase, f"{name}.zero_grad()"
    if phase is not None and phase.backwards > ACCUMULATES * phase.updates:
        step = call_site(run, "step")
        lines = [step.code, clear] if step and step.code else [clear]
        return Fix(
            "Clear the gradients once per optimizer step, right after it: they are accumulated.", "\n".join(lines)
        )
    backward = call_site(run, "backward")
    lines = [clear, backward.code] if backward and backward.code else [clear]
    return Fix("Clear the gradients once per update, before backward.", "\n".join(lines))
