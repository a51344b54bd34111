"""The gradient scaler halves its scale again and again.

## What it means
The scaler multiplies the loss so that small gradients survive in float16, and halves its scale whenever a gradient is
not finite; that update is skipped. A few halvings at the start are how it finds its scale. A scale that keeps
falling, or that ends under one, means that gradients overflow whatever the scale: most updates were skipped, or the
scaler now makes small gradients smaller still, which is the opposite of its purpose.

## Why it happens
- NaN or Inf in the forward pass or in the data: no scale can cure it.
- A loss that is huge by itself: summed over a data set, multiplied by a large weight, in tiny units.
- Exploding gradients, or a learning rate that makes the training diverge.

## How it is detected
The scale is recorded at every step. It is a collapse where the last scale is under 1, or where it fell by 2^8 or more
from its first value and half of the last updates were skipped.

## How to fix it
Find what is not finite first (other findings name it). Bring the loss to the order of one: mean instead of sum, other
units. Use bfloat16, which needs no scaler.

## Known false alarms
Halvings in the first steps are usual and not told. A user's own initial scale under 1 counts from there.

## References
Micikevicius et al., "Mixed precision training", 2018. PyTorch documentation, "torch.amp.GradScaler".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Proof, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.nonfinite import loss_broke_at
from torchdoctor.rules.numerics import headroom
from torchdoctor.rules.places import call_places
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import SCALE, STEP_SKIPPED

RULE = Rule(
    code="N007",
    name="loss-scale-collapse",
    family="numerics",
    needs=(SCALE,),
    explains=("no-parameter-update", "learning-rate-too-low", "underfitting", "half-precision-underflow"),
)
FALLEN = 2.0**8
"""Halvings that a search for the first scale does not need: 65536 to 256."""
SKIPPED = 0.5
LEAST_STEPS = 20
UNDER = 1.0
"""Under one the scaler makes gradients smaller."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    scale = run.scalar(SCALE)
    values = scale.values[np.isfinite(scale.values)]
    if len(values) < LEAST_STEPS:
        return
    first, last = float(scale.first(1).values[0]), float(values[-1])
    skipped = run.scalar(STEP_SKIPPED).values
    late = skipped[-max(len(skipped) // 4, 10) :]
    share = float(np.mean(late[np.isfinite(late)])) if np.isfinite(late).any() else 0.0
    under = last < UNDER <= first
    falling = last > 0 and first / last >= FALLEN and share >= SKIPPED
    if not (under or falling or last == 0):
        yield RuledOut(RULE.name, f"the gradient scaler stands at {last:g}", SCALE.name, last)
        return
    broke = loss_broke_at(run)
    fell = np.flatnonzero(scale.values <= first / FALLEN)
    yield RULE.finding(
        severity=Severity.ERROR if share >= SKIPPED else Severity.WARNING,
        confidence=0.95 if share >= SKIPPED or last < UNDER / FALLEN else 0.85,
        title=f"the gradient scaler fell from {first:g} to {last:.3g}",
        summary="Gradients are not finite at any scale that the scaler tried, so it halved on. "
        + ("Most of the last updates were skipped." if share >= SKIPPED else "It now makes gradients smaller."),
        evidence=[
            Evidence(
                f"scale {first:g} at the start, {last:.3g} at the end",
                SCALE.name,
                last,
                UNDER,
                curves.spark(scale.values),
            ),
            Evidence(f"{share:.0%} of the last updates were skipped", STEP_SKIPPED.name, share, SKIPPED),
            *_history(run),
            *headroom.flushed(run),
            *([Evidence(f"the loss is not finite from step {broke} on")] if broke is not None else []),
        ],
        fix=Fix(
            "Bring the loss to the order of one (mean instead of sum, other units), repair what is not finite, or use "
            "bfloat16, which needs no scaler.",
            "with torch.autocast(device_type, dtype=torch.bfloat16):",
        ),
        proof=Proof.STRUCTURE,
        where=call_places(run, "step"),
        first_step=int(scale.steps[fell[0]]) if len(fell) else int(scale.steps[-1]),
        symptoms=("nan-later",) if broke is not None else (),
    )


def _history(run: Run) -> list[Evidence]:
    """How the scale came to where it is, told where every step is known."""
    scale, skipped = run.scalar(SCALE), run.scalar(STEP_SKIPPED)
    if scale.merged > 1 or len(scale) < 2 or not len(skipped):
        return []
    ratio = scale.values[1:] / scale.values[:-1]
    lowered, raised = int((ratio < 1).sum()), int((ratio > 1).sum())
    at = skipped.steps[skipped.values > 0]
    when = f", from step {at[0]} to {at[-1]}" if len(at) else ""
    text = f"lowered {lowered} times, raised {raised} times; {len(at)} of {len(skipped)} updates skipped{when}"
    return [Evidence(text, STEP_SKIPPED.name, float(len(at)))]
