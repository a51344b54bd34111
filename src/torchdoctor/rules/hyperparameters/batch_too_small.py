"""The batch is too small: chance decides the direction of the steps.

## What it means
A gradient over a few samples points mostly where these few samples happen to pull. With a rate that suits a larger
batch each step undoes a part of the last ones: the loss jumps about and stops well above what the model could reach.

## Why it happens
- A batch of one or two, because more did not fit into memory, with the rate of a larger one.
- A loop over samples instead of batches.
- Accumulation that was meant and never done: a step after every small batch.

## How it is detected
Eight samples or fewer stand behind an update (accumulated batches counted together). In the last half of the run, at a
constant rate, the loss no longer falls and is far from its floor, above a tenth of a constant guess. From rate and
gradients the height follows at which the steps hold the loss above the minimum: it makes up a good part of the loss.
Since a gradient over few samples varies much and few are looked at, its ratio to the loss of its step is taken, from an
eighth of the run on, and put to the loss of all late steps.
And the gradients of successive steps have little in common (cosine under a half), so noise holds it up there; the noise
scale, the batch at which noise and signal are equal, is estimated from their cosine.

## How to fix it
Use a batch near the noise scale, often 16 to 128. If it does not fit into memory, add the gradients of several batches
up before each step. Or keep the batch and lower the rate in proportion.

## Known false alarms
Small batches with a small rate work, and are not reported while the loss falls. Reinforcement learning and losses of
several optimizers are not judged.

## References
McCandlish, Kaplan and Amodei, "An Empirical Model of Large-Batch Training" (2018). Smith and Le, "A Bayesian
Perspective on Generalization and Stochastic Gradient Descent" (2018). Yaida, "Fluctuation-dissipation relations for
stochastic gradient descent" (2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import curves, settling
from torchdoctor.rules.curves import figure
from torchdoctor.rules.places import call_places, receiver
from torchdoctor.rules.rule import Rule
from torchdoctor.rules.settling import Settling
from torchdoctor.run import Run
from torchdoctor.signals import BATCH_SIZE, GRADIENT_COSINE, LEARNING_RATE, LOSS_TRAIN, UPDATE_RATIO

RULE = Rule(
    code="H008",
    name="batch-too-small",
    family="hyperparameters",
    needs=(LOSS_TRAIN, LEARNING_RATE, UPDATE_RATIO, BATCH_SIZE),
    explains=("learning-rate-oscillation", "underfitting", "noisy-validation", "batchnorm-small-batch", "overfitting"),
)

SMALL_BATCH = 8
FAR_FROM_FLOOR = 0.1
PART_OF_LOSS = 0.2
"""Share of the level that the length of the steps explains. With so few samples the rest is noise as well."""
UNRELATED = 0.5
"""Cosine of successive gradients: below, noise is larger than the gradient itself."""
USUAL_BATCH = 32


def detect(run: Run) -> Iterator[Finding]:
    state = settling.read(run)
    if state is None or not state.batch <= SMALL_BATCH or not state.flat or state.left < FAR_FROM_FLOOR:
        return
    state = replace(state, excess=settling.steady_excess(run, state))
    if state.excess >= PART_OF_LOSS and not state.cosine > UNRELATED:
        yield _finding(run, state)


def noise_scale(state: Settling) -> float | None:
    """The batch at which the gradient's noise is as large as the gradient; None where no signal shows at all."""
    if math.isnan(state.cosine) or state.cosine <= 0.01:
        return None
    return state.batch * (1 - state.cosine) / state.cosine


def _finding(run: Run, state: Settling) -> Finding:
    batch, scale = int(state.batch), noise_scale(state)
    times = max(2, USUAL_BATCH // max(batch, 1))
    noise = f"about {scale:,.0f} samples" if scale is not None else "not measurable: successive gradients are unrelated"
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.85 if batch <= 4 else 0.75,
        title=f"{batch} sample{'s' * (batch != 1)} a step are too few: the loss jumps around {figure(state.level)}",
        summary=(
            f"Each update follows {batch} sample{'s' * (batch != 1)} at a rate of {figure(state.rate)}. Noise alone "
            f"holds the loss about {min(state.excess, 1.0):.0%} of its level above the minimum, and it has not fallen "
            "in the last half of the run."
        ),
        fix=Fix(
            f"Raise batch_size to {USUAL_BATCH}, or step after every {times}th batch; or divide the rate by {times}.",
            f"if (i + 1) % {times} == 0: {receiver(run, 'step', 'optimizer')}.step(); "
            f"{receiver(run, 'step', 'optimizer')}.zero_grad()  # with loss / {times}",
        ),
        evidence=[
            Evidence(f"{batch} samples behind an update", BATCH_SIZE.name, state.batch, SMALL_BATCH),
            Evidence(
                f"in the last half the loss stays at {figure(state.level)} ({state.change:+.0%}), "
                f"scattering by {state.scatter:.0%} from step to step",
                LOSS_TRAIN.name,
                state.change,
                settling.PROGRESS,
                curves.spark(curves.blocks(state.curve.values, 40)),
            ),
            Evidence(
                f"rate and gradients explain {figure(state.excess * state.level)} of that loss",
                LEARNING_RATE.name,
                state.excess,
                PART_OF_LOSS,
            ),
            Evidence(f"noise scale of the gradient: {noise}", GRADIENT_COSINE.name, scale),
        ],
        where=call_places(run, "step"),
        first_step=int(settling.LATE * state.curve.steps[-1]),
        last_step=int(state.curve.steps[-1]),
        symptoms=("oscillating",),
    )
