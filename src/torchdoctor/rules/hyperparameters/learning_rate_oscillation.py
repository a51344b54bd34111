"""The learning rate is too high to settle: the loss bounces and gets no lower.

## What it means
The run does not diverge and it has learned something, but its steps are too long for the valley it is in: it jumps from
wall to wall. A good part of the loss that is left is not what the model cannot learn, it is the height at which the
steps hold it. Lower the rate and the loss drops within a few hundred steps.

## Why it happens
- A constant rate, chosen for the first epochs and kept to the end.
- Momentum raised without lowering the rate: 0.9 makes steps ten times as long, 0.99 a hundred times.
- A rate at the edge of what the curvature allows, where each step lands about as high on the other side.
- The loss became steeper late in the run: weights grew, batch normalisation was frozen, the model got confident.

## How it is detected
In the last half of the run, at a constant rate, the loss no longer falls (its fourth quarter is within a tenth of its
third) and stands far from its floor (above a tenth of a constant guess), or (still in the last eighth) at twice what it
had reached before. And the steps explain it: from rate, momentum and gradients the height follows at which steps of
that length hold the loss above the minimum, and it makes up a third of the loss and more. Or successive gradients point
in opposite directions, which is what jumping from wall to wall looks like, and that height is a tenth of the loss and
more: full batches with an optimizer that divides the gradient's size out always jump a little. Gradients that point the
same way lead somewhere, and nothing is reported, unless what is left after taking their common part out still explains
two thirds of a flat loss. The weights must change by 0.4 % and more of their size in a step. A loss that still falls by
less than half is reported where the steps explain far more than the whole of it; one nearer to its floor (above a
fiftieth of a constant guess) where both signs are plain.

## How to fix it
Lower the rate to a third or a tenth, or better, decay it: cosine to zero over the run, or divide by ten when the loss
levels off. The bounce goes with the rate.

## Known false alarms
Irreducible noise (labels, small batches) keeps a loss up as well; there the height that the steps explain is small, and
nothing is reported. A rate that is decayed, cycled or warmed up in the last half is not judged. Losses of several
optimizers that play against each other are not judged, nor those that can be negative.

## References
Yaida, "Fluctuation-dissipation relations for stochastic gradient descent" (2019). Chee and Toulis, "Convergence
diagnostics for stochastic gradient descent with constant learning rate" (2018). Cohen et al., "Gradient Descent on
Neural Networks Typically Occurs at the Edge of Stability" (2021).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import curves, movement, settling
from torchdoctor.rules.curves import figure
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.rules.settling import Settling
from torchdoctor.run import Run
from torchdoctor.signals import GRADIENT_COSINE, LEARNING_RATE, LOSS_TRAIN, UPDATE_RATIO

RULE = Rule(
    code="H002",
    name="learning-rate-oscillation",
    family="hyperparameters",
    needs=(LOSS_TRAIN, LEARNING_RATE, UPDATE_RATIO),
    explains=(
        *("underfitting", "noisy-validation", "dead-relu", "overfitting", "capacity-too-low", "weight-norm-growth"),
        *("missing-warmup", "saturated-activations"),
    ),
)

FALLS_FAST = -0.5
"""Change over the last half, as a share of the level, from which on nobody would complain."""
FAR_FROM_FLOOR = 0.1
"""Level over a constant guess; below, there is little left to gain."""
WORSE_THAN_BEFORE = 2.0
"""Late level, and still the last one, over the best stretch before: late oscillation, not a bump that is over."""
MORE_THAN_ALL = 1.6
"""The same for a loss that still falls: there the estimate is too high, since the gradient still leads somewhere."""
OPPOSED = -0.4
"""Cosine of successive gradients. At rest it is minus half of rate times curvature, seen through the batch's noise; at
-0.4 the rate is close to twice the inverse curvature, where descent ends."""
FELT = 0.1
"""Share of the level that jumping must explain to be worth a lower rate: a sign-like step on full batches opposes its
predecessor at any rate, and at a small one the loss hardly feels it."""
NEAR_FLOOR = 0.02
"""Level over a constant guess below which even a plain bounce costs nothing that a person would miss."""
SPIKES = 2.0
"""Scatter over the level of a loss that is next to nothing in most steps (a hinge): rare spikes, no bounce."""
AGREEING = 0.3
"""Successive gradients that point the same way lead somewhere: such a loss drifts, or recovers from a spike. Unless it
is flat, and the share of the gradients that does not agree would hold up most of it: successive batches agree on where
the last step went too far, too."""
LARGE_UPDATE = 4e-3
"""Four times the usual relative change of the weights in a step."""
SMALL_BATCH = 8
"""Below, the batch is to blame at least as much as the rate: batch-too-small says so."""


def detect(run: Run) -> Iterator[Finding]:
    state = settling.read(run)
    if state is not None and bounces(state):
        yield _finding(run, state)


def bounces(state: Settling) -> bool:
    """Flat, far from the floor or from what it had reached, with steps that explain it. Few samples a step are
    batch-too-small's."""
    if state.batch <= SMALL_BATCH or state.left < NEAR_FLOOR or state.scatter > SPIKES:
        return False
    if state.ratio < LARGE_UPDATE or (state.cosine > AGREEING and not _held_up(state)):
        return False
    if not state.flat:
        return (
            state.change > FALLS_FAST
            and state.left >= FAR_FROM_FLOOR
            and state.excess >= MORE_THAN_ALL
            and state.ratio >= 2 * LARGE_UPDATE
        )
    opposed = state.cosine <= OPPOSED and state.excess >= FELT
    if state.left < FAR_FROM_FLOOR and not min(state.level, state.ending) > WORSE_THAN_BEFORE * state.best:
        return opposed and state.excess >= MORE_THAN_ALL
    return state.excess >= settling.MOST_OF_LOSS or opposed


def _held_up(state: Settling) -> bool:
    return state.flat and state.excess * (1 - state.cosine) >= 2 * settling.MOST_OF_LOSS


def _finding(run: Run, state: Settling) -> Finding:
    optimizer = next(iter(run.optimizers.values()), None)
    lower = state.rate / (10 if state.excess >= MORE_THAN_ALL else 5)
    code, place = movement.rewritten(run, optimizer, lower)
    late = state.level > 1.3 * state.best
    share = min(state.excess, 1.0)
    why = (
        f"Steps of this length alone keep the loss up: they make about {share:.0%} of it"
        if state.excess >= settling.MOST_OF_LOSS
        else f"Successive gradients point against each other (cosine {state.cosine:.2f})"
    )
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.85 if state.excess >= 2 * settling.MOST_OF_LOSS else 0.75,
        title=f"Learning rate {figure(state.rate)} is too high to settle: the loss bounces at {figure(state.level)}",
        summary=(
            f"The loss {'has not fallen' if state.flat else 'hardly falls'} in the last half of the run. {why}; "
            "a lower rate lets it sink."
        ),
        fix=Fix(
            f"Lower the rate to about {figure(lower)}, or decay it over the run.",
            code,
        ),
        evidence=_evidence(state),
        where=known(place),
        first_step=int(settling.LATE * state.curve.steps[-1]),
        last_step=int(state.curve.steps[-1]),
        symptoms=("oscillating", "late-oscillation") if late else ("oscillating",),
    )


def _evidence(state: Settling) -> Iterator[Evidence]:
    yield Evidence(
        f"in the last half the loss stays at {figure(state.level)} ({state.change:+.0%}), "
        f"scattering by {state.scatter:.0%} from batch to batch",
        LOSS_TRAIN.name,
        state.change,
        settling.PROGRESS,
        curves.spark(state.curve.values),
    )
    yield Evidence(
        f"rate and gradients explain {figure(state.excess * state.level)} of that loss",
        LEARNING_RATE.name,
        state.excess,
        settling.MOST_OF_LOSS,
    )
    if state.cosine == state.cosine:
        yield Evidence(
            f"cosine between successive gradients {state.cosine:.2f}", GRADIENT_COSINE.name, state.cosine, OPPOSED
        )
    yield Evidence(
        f"a step changes the weight matrices by {figure(state.ratio)} of their size",
        UPDATE_RATIO.name,
        state.ratio,
        LARGE_UPDATE,
    )
