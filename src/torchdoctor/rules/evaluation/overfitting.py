"""Training improves while validation gets worse: the model overfits.

## What it means
Up to some point what the model learns from the training samples also holds for others. From the onset on it learns
what is particular to the training samples: their loss goes on falling, the loss on validation data turns and rises.
What is kept from the run's end is worse than what it had at the onset.

## Why it happens
- Too little data for the size of the model, or samples that are nearly copies of each other.
- Training goes on long after the useful part is learned.
- No regularisation: no augmentation, weight decay, dropout.
- Wrong labels in the training set: in the end they are learned by heart.
- The validation loss alone can rise because the model becomes over-confident while its accuracy holds.

## How it is detected
The validation loss of every pass is smoothed and its lowest point taken as the onset. The finding needs five passes,
at least three of them after the onset, a rise beyond three times the scatter from pass to pass, and a training loss
that went on falling. How much of the whole gain was given back decides: a quarter of it (or 15 %, if the loss is
also half again its best) is a warning, and so is a rise by a fifth where nearly all training samples are right and
validation accuracy lies 25 points below; less is an info, since mild overfitting after the best checkpoint harms nobody
who keeps that checkpoint. What is told as the best, and as the checkpoint to keep, is the lowest recorded loss at the
onset; a single lower one elsewhere is taken for luck. Of numbers, a training loss under 5 % of validation's is a
warning too, turn or no turn, where validation has stopped above 30 % of a constant guess.

## How to fix it
In this order: more data, or more of it by augmentation; weight decay; dropout; a smaller model. And keep the best
checkpoint instead of the last, or stop a few passes after the onset. Check the labels of samples whose training loss
fell last.

## Known false alarms
Runs that overfit on purpose (memorising one batch as a test), and very large models for which validation loss falls a
second time later.

## References
Prechelt, "Early Stopping - But When?" (1998). Goodfellow, Bengio and Courville, "Deep Learning" (2016), chapter 7.
Guo et al., "On Calibration of Modern Neural Networks" (2017). Nakkiran et al., "Deep Double Descent" (2020).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import baseline, curves, movement, outcomes
from torchdoctor.rules.curves import Curve, figure
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACCURACY_VALIDATION, LOSS_TRAIN, LOSS_VALIDATION, WEIGHT_DECAY

RULE = Rule(
    code="E001",
    name="overfitting",
    family="evaluation",
    needs=(LOSS_TRAIN, LOSS_VALIDATION),
    explains=("miscalibrated", "sharp-minimum"),
    fallback=True,
)

SMOOTHED = 3
"""Passes that decide together where validation is lowest."""
LEAST_PASSES = 5
LEAST_AFTER_ONSET = 3
BEYOND_SCATTER = 3.0
"""A rise of so many standard deviations of the scatter from pass to pass."""
WORTH_TELLING = 0.03
"""Rise over the best that anybody would care for."""
GIVEN_BACK = 0.25
"""Share of the whole gain on validation that was lost again after the onset."""
GIVEN_BACK_LESS, RISEN = 0.15, 1.5
"""A smaller share counts where the loss is also half again its best."""
RISEN_AT_LEAST = 1.2
BY_HEART, APART, LEAST_SAMPLES = 0.97, 0.25, 50
"""Training accuracy, how far that of validation lies below it, and samples that tell: a loss that rose by a fifth is
no trifle then, however much was gained over guessing before."""
KEPT = 0.8
"""Share of the highest rise that must still be there in the end: less is a hump that was crossed."""
NEXT_TO_NOTHING, POOR = 0.05, 0.3
"""Training over validation loss, and validation over a constant guess, for numbers that were learned by heart although
validation never turned. Of the zoo's healthy regressions none comes near both. Chosen."""
STILL_FALLING = 0.1
"""Fall of validation over the last half, relative, that is still progress."""
FELL_ON = 0.9
"""Training loss at the end over that at the onset."""
AROUND = 5
"""Training losses whose median is told as the loss at a step: more would tell of another stretch of a steep curve."""


@dataclass(frozen=True)
class Turn:
    """Where validation turned, and how far it went, by smoothed losses; the best pass as it was recorded."""

    best: float
    end: float
    given_back: float
    best_step: int
    best_recorded: float
    train_at_best: float
    train_at_end: float

    @property
    def is_marked(self) -> bool:
        risen = self.end / self.best if self.best > 0 else np.inf
        if self.given_back >= GIVEN_BACK:
            return risen > RISEN_AT_LEAST
        return self.given_back >= GIVEN_BACK_LESS and risen >= RISEN


@dataclass(frozen=True)
class Gap:
    """Losses at the end, and that of a constant guess."""

    train: float
    validation: float
    guess: float


def detect(run: Run) -> Iterator[Finding]:
    losses = curves.read(run.scalar(LOSS_TRAIN), closely=False)
    validation = curves.read(run.scalar(LOSS_VALIDATION), closely=False)
    turn = find_turn(losses, validation, baseline.chance(run))
    gap = find_gap(run, losses, validation)
    if turn is None:
        if gap is not None:
            yield _gap_finding(run, gap, losses, validation)
        return
    accuracy = curves.read(run.scalar(ACCURACY_VALIDATION), closely=False)
    marked = turn.is_marked or gap is not None or (turn.end > RISEN_AT_LEAST * turn.best and _knows_by_heart(run))
    yield RULE.finding(
        severity=Severity.WARNING if marked else Severity.INFO,
        confidence=0.85 if marked else 0.7,
        title=(
            f"Validation loss has risen from {figure(turn.best_recorded)} to {figure(turn.end)} "
            f"since step {turn.best_step}"
        ),
        summary=(
            f"Training loss went on falling, from {figure(turn.train_at_best)} to {figure(turn.train_at_end)}, while "
            f"validation loss gave {turn.given_back:.0%} of its gain back. From step {turn.best_step} on the model "
            "learns the training samples by heart."
        ),
        fix=_fix(run, turn),
        evidence=_evidence(turn, losses, validation, accuracy),
        first_step=turn.best_step,
        last_step=int(validation.steps[-1]),
        symptoms=("train-down-validation-up",),
    )


def find_gap(run: Run, losses: Curve, validation: Curve) -> Gap | None:
    """Numbers whose training error is next to nothing while validation's is not, and has stopped falling."""
    call, guess = baseline.only_call(run), baseline.chance(run)
    if call is None or guess is None or call.function not in (*baseline.SQUARED, *baseline.ABSOLUTE):
        return None
    if len(validation) < LEAST_PASSES or len(losses) < 2 * LEAST_PASSES or losses.broke_at is not None:
        return None
    gap = Gap(curves.level(losses.values), curves.level(validation.values), guess)
    late = curves.trend(validation.values[-max(3, len(validation) // 2) :])
    if gap.train > NEXT_TO_NOTHING * gap.validation or gap.validation < POOR * guess:
        return None
    return gap if late.change > -STILL_FALLING * gap.validation else None


def _gap_finding(run: Run, gap: Gap, losses: Curve, validation: Curve) -> Finding:
    times = gap.validation / max(gap.train, 1e-12)
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.8,
        title=f"Training loss {figure(gap.train)}, validation loss {figure(gap.validation)}: learned by heart",
        summary=(
            "The training samples are fitted to next to nothing, noise and all, while validation has stopped at "
            f"{gap.validation / gap.guess:.0%} of a constant guess."
        ),
        fix=_fix(run, None),
        evidence=[
            Evidence(
                f"validation loss {figure(gap.validation)}, {min(times, 9999):.0f} times that of training",
                LOSS_VALIDATION.name,
                gap.validation,
                gap.train / NEXT_TO_NOTHING,
                curves.spark(validation.values),
            ),
            Evidence(
                f"training loss {figure(gap.train)} at the end",
                LOSS_TRAIN.name,
                gap.train,
                None,
                curves.spark(curves.blocks(losses.values, 40)),
            ),
        ],
        first_step=int(validation.steps[0]),
        last_step=int(validation.steps[-1]),
        symptoms=("train-down-validation-up",),
    )


def _knows_by_heart(run: Run) -> bool:
    """Nearly all training samples are right, and of those of validation far fewer."""
    train, seen = outcomes.training(run, 1), outcomes.passes(run)
    if train is None or not seen or seen[-1].samples < LEAST_SAMPLES:
        return False
    return train.accuracy >= BY_HEART and train.accuracy - seen[-1].accuracy >= APART


def find_turn(losses: Curve, validation: Curve, guess: float | None) -> Turn | None:
    """The lowest point of the validation loss, if it rose for good after it while training went on falling."""
    if len(validation) < LEAST_PASSES or len(losses) < 2 * LEAST_PASSES:
        return None
    level_V = curves.smooth(validation.values, SMOOTHED)
    low = int(np.argmin(level_V))
    after = level_V[low + 1 :]
    if len(after) < LEAST_AFTER_ONSET:
        return None
    best, end = float(level_V[low]), float(np.median(after[-3:]))
    scatter = curves.noise(validation.values)
    if end - best <= max(BEYOND_SCATTER * scatter, WORTH_TELLING * abs(best)) or not _stays_up(after, best):
        return None
    after_onset = int((losses.steps > validation.steps[low]).sum())
    if len(losses) - after_onset < 3 or after_onset < 3:
        return None
    width = max(3, after_onset // LEAST_PASSES)
    at_onset, at_end = _level_at(losses, int(validation.steps[low]), width), float(np.median(losses.values[-width:]))
    if at_onset - at_end <= (1 - FELL_ON) * abs(at_onset):
        return None
    start = max(float(validation.values[0]), float(np.median(losses.values[:3])), guess or -np.inf)
    given_back = (end - best) / max(start - best, end - best)
    around = max(0, low - SMOOTHED // 2)  # one lucky pass elsewhere is no onset
    lowest = around + int(np.argmin(validation.values[around : low + SMOOTHED // 2 + 1]))
    step, recorded = int(validation.steps[lowest]), float(validation.values[lowest])
    fell = _level_at(losses, step, AROUND), float(np.median(losses.values[-AROUND:]))
    return Turn(best, end, given_back, step, recorded, *(fell if fell[0] > fell[1] else (at_onset, at_end)))


def _level_at(losses: Curve, step: int, width: int) -> float:
    """The median of so many losses up to a step; the first one where that has none before it."""
    until = max(1, int(np.searchsorted(losses.steps, step, side="right")))
    return float(np.median(losses.values[max(0, until - width) : until]))


def _stays_up(after: curves.Floats, best: float) -> bool:
    """It rises from pass to pass for the most part, or its last third keeps most of the highest rise."""
    third = max(1, len(after) // 3)
    highest = float(np.max(curves.smooth(after, 3)))
    return bool(np.median(after[-third:]) - best >= KEPT * (highest - best) or np.mean(np.diff(after) > 0) > 0.6)


def _evidence(turn: Turn, losses: Curve, validation: Curve, accuracy: Curve) -> Iterator[Evidence]:
    yield Evidence(
        f"validation loss {figure(turn.best_recorded)} at step {turn.best_step}, {figure(turn.end)} at the end",
        LOSS_VALIDATION.name,
        turn.end,
        turn.best_recorded,
        curves.spark(validation.values),
    )
    yield Evidence(
        f"training loss {figure(turn.train_at_best)} there, {figure(turn.train_at_end)} at the end",
        LOSS_TRAIN.name,
        turn.train_at_end,
        FELL_ON * turn.train_at_best,
        curves.spark(curves.blocks(losses.values, 40)),
    )
    if len(accuracy) >= LEAST_PASSES:
        best, end = float(accuracy.values.max()), curves.level(accuracy.values)
        yield Evidence(
            f"validation accuracy {best:.1%} at best, {end:.1%} at the end", ACCURACY_VALIDATION.name, end, best
        )


def _fix(run: Run, turn: Turn | None) -> Fix:
    decays = [float(run.scalar(WEIGHT_DECAY, k).values.max(initial=0.0)) for k in run.keys(WEIGHT_DECAY)]
    keep = f"; keep the checkpoint of step {turn.best_step}" if turn is not None else ""
    if max(decays, default=0.0) > 0:
        return Fix(
            f"More data or augmentation; stronger dropout{keep}.",
            'if val_loss < best: best = val_loss; torch.save(model.state_dict(), "best.pt")',
        )
    return Fix(
        f"More data or augmentation first; then weight decay and dropout{keep}.",
        movement.with_setting(run, weight_decay=1e-2),
    )
