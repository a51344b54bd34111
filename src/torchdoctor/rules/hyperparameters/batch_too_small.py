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
eighth of the run on, and put to the loss of all late steps. And the gradients of successive steps have little in common
(a mean cosine under a half), so noise holds it up there; the noise scale, the batch at which noise and signal are
equal, is estimated from their cosine.

Or, with plain SGD and up to four samples a step: the loss is thrown off as by a rate that is too high, successive
gradients have little in common, and the updates are that long only for their noise: divided by the root of 32 over the
batch, which averaging would do to noise, they are of a length that the loss would have stood.

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
from dataclasses import dataclass, replace

from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import baseline, curves, movement, settling
from torchdoctor.rules.curves import Curve, figure
from torchdoctor.rules.hyperparameters.learning_rate_too_high import (
    Course,
    Updates,
    course_of,
    is_proved,
    start_of,
    updates_before,
)
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
    explains=(
        "learning-rate-oscillation",
        "learning-rate-too-high",
        "saturated-activations",
        "dead-relu",
        "majority-class-collapse",
        "underfitting",
        "noisy-validation",
        "batchnorm-small-batch",
        "overfitting",
    ),
)

SMALL_BATCH = 8
FAR_FROM_FLOOR = 0.1
PART_OF_LOSS = 0.2
"""Share of the level that the length of the steps explains. With so few samples the rest is noise as well."""
UNRELATED = 0.5
"""Cosine of successive gradients: below, noise is larger than the gradient itself."""
USUAL_BATCH = 32
VERY_SMALL_BATCH = 4
"""Up to here a run that is thrown off may owe it to single samples."""
THROWN = ("lost", "thrown", "grew", "stuck")
REFUTES = 0.93
"""Above what learning-rate-too-high is sure of: its own proof was tried here on the averaged steps, and failed."""


@dataclass(frozen=True)
class Thrown:
    """A run whose steps are too long only because they follow so few samples."""

    course: Course
    batch: float
    rate: float
    update: float
    """relative update while it went wrong"""
    curve: Curve


def detect(run: Run) -> Iterator[Finding]:
    state = settling.read(run)
    if state is None:
        return
    state = replace(state, cosine=settling.steady_cosine(run, state))
    thrown = _thrown(run, state)
    if thrown is not None:
        yield _of_thrown(run, thrown)
        return
    if not state.batch <= SMALL_BATCH or not state.flat or state.left < FAR_FROM_FLOOR:
        return
    state = replace(state, excess=settling.steady_excess(run, state))
    if state.excess >= PART_OF_LOSS and not state.cosine > UNRELATED:
        yield _finding(run, state)


def _thrown(run: Run, state: Settling) -> Thrown | None:
    """Noise falls with the root of the batch, and so does a step of SGD that is all noise. Where the steps are too long
    for the loss, and those over a usual batch would not be, the batch is the cause."""
    optimizer, moved, guess = next(iter(run.optimizers.values())), movement.read(run), baseline.chance(run)
    if optimizer.type != "SGD" or not state.batch <= VERY_SMALL_BATCH or not state.cosine <= UNRELATED:
        return None
    curve = curves.read(run.scalar(LOSS_TRAIN, run.keys(LOSS_TRAIN)[0]))
    start = start_of(curve, guess, moved)
    course = course_of(curve, start, min(start, guess) if guess is not None else start, adversarial=False)
    if course is None or course.how not in THROWN:
        return None
    updates = updates_before(moved, int(curve.steps[-1]) if course.how == "stuck" else course.onset)
    if updates is None or not is_proved(course, updates, known_start=guess is not None):
        return None
    share = math.sqrt(state.batch / USUAL_BATCH)
    averaged = Updates(updates.largest * share, updates.lasting * share)
    if is_proved(course, averaged, known_start=guess is not None):
        return None
    return Thrown(course, state.batch, state.rate, updates.lasting, curve)


def noise_scale(state: Settling) -> float | None:
    """The batch at which the gradient's noise is as large as the gradient; None where no signal shows at all."""
    if math.isnan(state.cosine) or state.cosine <= 0.01:
        return None
    return state.batch * (1 - state.cosine) / state.cosine


def _of_thrown(run: Run, thrown: Thrown) -> Finding:
    batch, course = int(thrown.batch), thrown.course
    samples = f"{batch} sample{'s' * (batch != 1)}"
    times = USUAL_BATCH // max(batch, 1)
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=REFUTES,
        title=f"{samples} a step are too few: single samples throw the loss to {figure(course.end)}",
        summary=(
            f"Each update follows {samples} at a rate of {figure(thrown.rate)}, and successive gradients have little "
            f"in common. Over {USUAL_BATCH} samples most of that noise would cancel, and the same rate would make "
            "steps of an ordinary length."
        ),
        fix=Fix(
            f"Raise batch_size to {USUAL_BATCH}, or step after every {times}th batch; or divide the rate by {times}.",
            f"if (i + 1) % {times} == 0: {receiver(run, 'step', 'optimizer')}.step(); "
            f"{receiver(run, 'step', 'optimizer')}.zero_grad()  # with loss / {times}",
        ),
        evidence=[
            Evidence(f"{samples} behind an update", BATCH_SIZE.name, thrown.batch, VERY_SMALL_BATCH),
            Evidence(
                f"the loss began at {figure(course.start)} and stands at {figure(course.end)}",
                LOSS_TRAIN.name,
                course.end,
                None,
                curves.spark(curves.blocks(thrown.curve.values, 40)),
            ),
            Evidence(
                f"an update changes the weights by {thrown.update:.1%} of their size; over {USUAL_BATCH} samples noise "
                f"would leave {thrown.update * math.sqrt(thrown.batch / USUAL_BATCH):.1%}",
                UPDATE_RATIO.name,
                thrown.update,
            ),
        ],
        where=call_places(run, "step"),
        first_step=course.onset,
        last_step=int(thrown.curve.steps[-1]),
        symptoms=("oscillating",),
    )


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
