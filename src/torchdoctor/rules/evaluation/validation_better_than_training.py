"""Validation is better than training by more than dropout and timing explain.

## What it means
A model does not do better on data it has never seen. Some of it is natural: dropout, augmentation and label smoothing
disturb training only, and the training loss of an epoch is an average over a model that was still worse. Where none of
this can account for the gap, the two numbers do not measure the same thing: validation is an easier sample, was seen in
training, or is computed in another way.

## Why it happens
- The split was not random: the easy part (sorted, filtered, one source) went into validation.
- Validation samples, or copies of them, are in the training set.
- The two losses differ: another reduction, class weights or a penalty in one of them only, an average over batches of
  unequal size, padding that counts in one.
- Labels of the training set are noisy and those of validation were cleaned.

## How it is detected
The validation loss is compared with the training loss around the same steps, in the last half of the passes. The
finding needs five passes, the same loss function with the same settings in both and no other term in the training loss
(a penalty, a divergence; backward's loss is what the function gave), no dropout at work in training, no label
smoothing, and a validation loss under 70 % of the training loss in most late passes and in every one of the last,
beyond four times the scatter. The training inputs must come again unchanged (no augmentation on the fly) and have the
spread of the validation inputs. A training loss that still falls fast is compared with what it falls to, not with the
epoch's average.

## How to fix it
Evaluate on the training set with the validation code: if the gap closes, the two computations differ; if it stays, look
at how the split was made, and for samples that are in both.

## Known false alarms
Augmentation, mixup or noise on the training inputs raises the training loss on purpose; where it shows in the inputs
nothing is reported. A curated validation set may be easier by design.

## References
Geron, "Hands-On Machine Learning" (2022), on reading learning curves. Karpathy, "A Recipe for Training Neural Networks"
(2019).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.facts import TRAIN, VALIDATION, DropoutFact, GraphFact, InputsFact, LossCallFact, ModesFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import baseline, curves
from torchdoctor.rules.curves import figure
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.rules.loss_graph import LossGraph
from torchdoctor.rules.places import call_places
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION

RULE = Rule(
    code="E006",
    name="validation-better-than-training",
    family="evaluation",
    needs=(LOSS_TRAIN, LOSS_VALIDATION, LossCallFact),
)

BETTER = 0.7
"""Validation over training loss. A random split of a few hundred samples stays within 0.85 to 1.2."""
BEYOND_SCATTER = 4.0
LEAST_PASSES = 5
WORTH_TELLING = 0.02
"""Loss below which the gap is between two numbers that are both next to nothing, as a share of the start."""
OTHER_SPREAD = 1.25
"""Ratio of the inputs' standard deviations from which on training is augmented or drawn from elsewhere."""
LEAST_REPEATS = 3
SAME = 0.05
"""Difference between the loss that is trained and what the loss function gave (both measured), relative: beyond it
terms or factors of the script's own are in the one and not in the other."""


def detect(run: Run) -> Iterator[Finding]:
    loss = loss_curve(run)
    validation = curves.read(run.scalar(LOSS_VALIDATION), closely=False)
    if loss is None or loss.broke_at is not None or len(run.optimizers) != 1 or len(validation) < LEAST_PASSES:
        return
    if loss.curve.values.min() < 0 or not has_same_loss(run) or is_disturbed(run):
        return
    train = curves.read(run.scalar(LOSS_TRAIN, run.keys(LOSS_TRAIN)[0]), closely=False)
    pairs = late_pairs(train, validation)
    if len(pairs) < 3:
        return
    ratios = pairs[:, 1] / pairs[:, 0]
    error = curves.noise(train.values) / max(float(np.median(pairs[:, 0])), 1e-12)
    gap = float(np.median(pairs[:, 0] - pairs[:, 1]))
    last = ratios[-max(3, len(ratios) // 2) :]
    if max(float(np.median(ratios)), float(last.max())) >= BETTER or gap < WORTH_TELLING * loss.begin:
        return
    per_pass = max(1, len(train) // len(validation))
    if 1 - float(np.median(ratios)) > BEYOND_SCATTER * error / np.sqrt(per_pass):
        yield _finding(run, train, validation, pairs)


def late_pairs(train: curves.Curve, validation: curves.Curve) -> curves.Floats:
    """(training, validation) for each pass of the last half; training is the lower of the stretches before and after
    the pass, so that a loss that falls fast is no gap."""
    rows: list[tuple[float, float]] = []
    steps = validation.steps
    for i in range(len(validation) // 2, len(validation)):
        width = max(1, int(steps[i] - steps[i - 1]))
        before = train.values[(train.steps > steps[i] - width / 2) & (train.steps <= steps[i])]
        after = train.values[(train.steps > steps[i]) & (train.steps <= steps[i] + width / 2)]
        levels = [float(part.mean()) for part in (before, after) if len(part)]
        if levels and min(levels) > 0:
            rows.append((min(levels), float(validation.values[i])))
    return np.array(rows).reshape(-1, 2)


def has_same_loss(run: Run) -> bool:
    """One and the same function in both phases, with the same settings and nothing that raises training only."""
    kinds = {
        phase: {
            (c.function, c.reduction, c.weighted, c.label_smoothing or 0.0)
            for c in run.facts(LossCallFact)
            if c.phase == phase
        }
        for phase in (TRAIN, VALIDATION)
    }
    if any(LossGraph(fact).has_several_terms for fact in run.facts(GraphFact)):
        return False
    called, trained = baseline.called_and_trained(run)
    if len(called) and float(np.median(np.abs(trained - called))) > SAME * float(np.median(np.abs(called))):
        return False
    return len(kinds[TRAIN]) == 1 and kinds[TRAIN] == kinds[VALIDATION] and next(iter(kinds[TRAIN]))[3] == 0


def is_disturbed(run: Run) -> bool:
    """Dropout at work in training, or inputs that are augmented: both raise the training loss on purpose."""
    if run.facts(DropoutFact) and any(f.dropout_training for f in run.facts(ModesFact) if f.phase == TRAIN):
        return True
    inputs = [f for f in run.facts(InputsFact) if f.role == "input"]
    spread = {phase: [f.std for f in inputs if f.phase == phase and f.std is not None] for phase in (TRAIN, VALIDATION)}
    if spread[TRAIN] and spread[VALIDATION]:
        train, validation = float(np.median(spread[TRAIN])), float(np.median(spread[VALIDATION]))
        if max(train, validation) > OTHER_SPREAD * max(min(train, validation), 1e-12):
            return True
    prints = [set(f.fingerprints) for f in inputs if f.phase == TRAIN and f.fingerprints]
    known: set[int] = set()
    repeats = 0
    for batch in prints:
        repeats += bool(batch & known)
        known |= batch
    return repeats < min(LEAST_REPEATS, len(prints) // 3)


def _finding(run: Run, train: curves.Curve, validation: curves.Curve, pairs: curves.Floats) -> Finding:
    at_train, at_validation = float(np.median(pairs[:, 0])), float(np.median(pairs[:, 1]))
    share = at_validation / at_train
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.75,
        title=f"Validation loss {figure(at_validation)} is far below the training loss of {figure(at_train)}",
        summary=(
            f"In all {len(pairs)} late passes validation stands at {share:.0%} of the training loss, without dropout, "
            "smoothing or augmentation to explain it. The two do not measure the same thing."
        ),
        fix=Fix(
            "Evaluate the training set with the validation code. If the gap closes, the losses are computed "
            "differently; if not, split anew at random and look for samples that are in both sets.",
            "train_set, val_set = torch.utils.data.random_split(dataset, [0.8, 0.2])",
        ),
        evidence=[
            Evidence(
                f"validation over training loss: {share:.2f} in the typical late pass",
                LOSS_VALIDATION.name,
                share,
                BETTER,
                curves.spark(validation.values),
            ),
            Evidence(
                f"training loss {figure(at_train)} around the same steps",
                LOSS_TRAIN.name,
                at_train,
                None,
                curves.spark(curves.blocks(train.values, 40)),
            ),
        ],
        where=call_places(run, "eval"),
        first_step=int(validation.steps[len(validation) // 2]),
        last_step=int(validation.steps[-1]),
        symptoms=("validation-above-training",),
    )
