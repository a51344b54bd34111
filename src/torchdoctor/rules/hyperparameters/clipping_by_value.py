"""Gradients are clipped element by element, which turns their direction.

## What it means
`clip_grad_value_` cuts every element of the gradient to a limit of its own. Large elements are cut and small ones are
not, so the step no longer points down the slope but towards a corner. Clipping by norm shortens the gradient and keeps
its direction. Often the difference is harmless; it is worth knowing when a run is slower than it should be.

## Why it happens
- `clip_grad_value_` taken for `clip_grad_norm_`, or copied from old code for recurrent networks.
- A framework's option for the algorithm ("value" instead of "norm").

## How it is detected
The call is seen, and on the looks that were taken the largest gradient of a tensor stood exactly at the limit: it acts.
Where it never acts nothing is said. The evidence tells how many of the looked-at tensors were cut.

## How to fix it
Clip by norm. The norm before clipping is what `clip_grad_norm_` returns: log it, and set the limit where only the
exceptional steps are cut.

## Known false alarms
Clipping by value on purpose, as a robust step by sign; therefore never more than an info.

## References
Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks" (2013). PyTorch documentation,
"torch.nn.utils.clip_grad_value_" and "clip_grad_norm_".
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.facts import ClipFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules.curves import figure
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import GRADIENT

RULE = Rule(code="H012", name="clipping-by-value", family="hyperparameters", needs=(ClipFact, GRADIENT["absmax"]))

ACTS = 0.05
"""Share of looked-at tensors that were cut; below, it is a net for rare events."""
AT_LIMIT = 1e-4
"""Relative distance from the limit within which a gradient was put there."""


def detect(run: Run) -> Iterator[Finding]:
    clip = next((f for f in reversed(run.facts(ClipFact)) if f.how == "value"), None)
    if clip is None or clip.threshold <= 0:
        return
    largest = run.matrix(GRADIENT["absmax"])
    values = largest.values[np.isfinite(largest.values) & (largest.values > 0)]
    share = float((np.abs(values / clip.threshold - 1) < AT_LIMIT).mean()) if len(values) else 0.0
    if share < ACTS:
        return
    yield RULE.finding(
        severity=Severity.INFO,
        confidence=0.95,
        proof=Proof.STRUCTURE,
        title=f"Gradients are clipped element by element to {figure(clip.threshold)}, which turns their direction",
        summary=(
            f"In {share:.0%} of the looks a tensor's gradient had elements cut to {figure(clip.threshold)}. The others "
            "keep their size, so the step points elsewhere than the gradient did."
        ),
        fix=Fix(
            "Clip by norm instead: it shortens the gradient and keeps its direction.",
            "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        ),
        evidence=[
            Evidence(
                f"largest element at the limit in {share:.0%} of {len(values)} looks at a gradient",
                GRADIENT["absmax"].name,
                share,
                ACTS,
            )
        ],
        where=[Place(file=clip.file, line=clip.line)] if clip.file else [],
        first_step=int(largest.steps[0]),
        last_step=int(largest.steps[-1]),
    )
