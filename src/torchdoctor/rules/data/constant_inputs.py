"""The pipeline yields constant or identical samples, or features that never change.

## What it means
What the model gets does not tell one sample from another, although their targets differ. It can learn no more than
the mean target: the loss stops at chance, whatever the model or the learning rate. Where only a part of the features
is constant, the model learns from the rest.

## Why it happens
- Integer division or a cast that cuts everything to zero: `images // 255`, `(x / 255).long()`, `astype(int)`.
- A dataset that ignores its index, or keeps a reference to a buffer that is overwritten.
- Normalising twice, clamping to the wrong range, multiplying by an empty mask.
- A join that found no partner, so that columns hold only the fill value.

## How it is detected
Every sample of a looked-at batch gets a fingerprint of its bytes. If all samples of a batch are equal, batch after
batch, while their targets differ, that is the proof. Samples that differ by next to nothing (standard deviation over
samples under 1e-4 of their size, or under 2 % with a loss that stays at chance) count, too. For tables, columns that
held one value in every batch are counted; half of all columns or more are reported, unless the data is sparse.

## How to fix it
Look at what the model gets: `x.std(0)`, and two samples side by side. Then follow the pipeline back to the step after
which they are equal. Divide by a float, use the index, check joins for matches.

## Known false alarms
Sparse inputs (counts of words, one-hot columns, image borders) have columns that are zero for long: not reported.
Constant inputs without differing targets (fixed queries, a network that fits one picture) are not judged.

## References
Karpathy, "A Recipe for Training Neural Networks" (2019): visualise the data right before it goes into the net.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchdoctor.facts import TRAIN, InputsFact
from torchdoctor.findings import Evidence, Finding, Fix, Proof, RuledOut, Severity
from torchdoctor.rules import baseline, curves
from torchdoctor.rules.curves import figure
from torchdoctor.rules.data.columns import is_constant
from torchdoctor.rules.data.finite_batches import finite_batches
from torchdoctor.rules.places import call_places
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import BATCH_DISTINCT, BATCH_SIZE, BATCH_SPREAD, LABEL_CLASSES, LOSS_TRAIN, TARGET_STD

RULE = Rule(
    code="D005",
    name="constant-inputs",
    family="data",
    needs=(BATCH_DISTINCT,),
    explains=(
        "inputs-and-labels-unrelated",
        "representation-collapse",
        "majority-class-collapse",
        "dead-relu",
        "vanishing-gradients",
        "disconnected-parameters",
        "no-parameter-update",
        "learning-rate-too-low",
        "learning-rate-oscillation",
        "attention-collapse",
        "plateau-or-saddle",
        "capacity-too-low",
        "underfitting",
        "stale-evaluation",
        "weak-slice",
        "abnormal-distribution",
        "repeated-batch",
        "metric-disagrees-with-loss",
    ),
)

LEAST_LOOKS = 4
LEAST_SAMPLES = 4
NOTHING = 1e-4
"""Spread over size below which float32 inputs differ by little more than rounding."""
LITTLE = 0.02
"""Pictures and standardised tables have 0.3 to 1; a noisy copy of one sample has as much as its noise."""
AT_CHANCE = 0.9
"""Final loss over the loss of a constant guess above which nothing was learned."""
DEAD_SHARE = 0.5
DEAD_SAMPLES = 200
"""Samples after which a column of the rarest usual kind (1 in 50) has been seen to change."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    distinct = finite_batches(run, BATCH_DISTINCT)
    size = curves.median(run.scalar(BATCH_SIZE, TRAIN).values)
    if len(distinct) < LEAST_LOOKS or not size >= LEAST_SAMPLES or not targets_differ(run):
        return
    spread = finite_batches(run, BATCH_SPREAD)
    if float((distinct * min(size, 256) < 1.5).mean()) > 0.9:
        yield _identical(run, int(size), len(distinct))
    elif len(spread) >= LEAST_LOOKS and is_too_little(run, float(np.median(spread))):
        yield _alike(run, float(np.median(spread)))
    elif (dead := dead_features(run)) is not None:
        yield _dead(run, *dead)
    elif float(distinct.min()) > 0.99:
        text = f"samples differ within each of {len(distinct)} batches that were looked at"
        yield RuledOut(RULE.name, text, BATCH_DISTINCT.name, float(distinct.min()))


def targets_differ(run: Run) -> bool:
    classes, stds = run.scalar(LABEL_CLASSES, TRAIN).values, run.scalar(TARGET_STD, TRAIN).values
    return bool(curves.median(classes) > 1 or curves.median(stds) > 0)


def is_too_little(run: Run, spread: float) -> bool:
    if spread < NOTHING:
        return True
    chance, loss = baseline.chance(run), run.scalar(LOSS_TRAIN)
    stuck = chance is not None and len(loss) >= 20 and curves.level(curves.read(loss).values) > AT_CHANCE * chance
    return spread < LITTLE and stuck


def dead_features(run: Run) -> tuple[int, int, float, int] | None:
    """(constant, all, constant value of the first, index of the first) columns of a table; None where few or sparse."""
    looks = [f for f in run.facts(InputsFact) if f.role == "input" and f.phase == TRAIN and f.feature_low]
    looks = [f for f in looks if len(f.shape) in (2, 4)]
    looks = [f for f in looks if f.feature_low and np.isfinite(f.feature_low).all()]
    if not looks:
        return None
    widths = {len(f.feature_low or ()) for f in looks}
    if len(widths) != 1 or len(looks) * looks[0].shape[0] < DEAD_SAMPLES:
        return None
    low_F = np.min([f.feature_low for f in looks], axis=0)
    high_F = np.max([f.feature_high for f in looks], axis=0)
    mean_F = np.mean([f.feature_mean for f in looks], axis=0)
    dead = is_constant(low_F, high_F, looks[0].dtype)
    if len(dead) < 3 or dead.mean() < DEAD_SHARE or dead.all():
        return None
    alive = ~dead
    middle = (mean_F[alive] - low_F[alive]) / (high_F[alive] - low_F[alive])
    sparse = float(np.median(np.minimum(middle, 1 - middle))) < 0.1
    if sparse:
        return None
    first = int(np.argmax(dead))
    return int(dead.sum()), len(dead), float(low_F[first]), first


def _loss_evidence(run: Run) -> list[Evidence]:
    loss, chance = curves.read(run.scalar(LOSS_TRAIN)), baseline.chance(run)
    if len(loss) < 5:
        return []
    text = f"the training loss ends at {figure(curves.level(loss.values))}"
    text += f"; a constant guess gives {figure(chance)}" if chance else ""
    return [Evidence(text, LOSS_TRAIN.name, curves.level(loss.values), chance, curves.spark(loss.values))]


def _fix() -> Fix:
    return Fix(
        "Find the step of the pipeline after which samples are equal: a cast, an integer division, an unused index.",
        "x, y = next(iter(loader)); print(x.float().std(0).max(), x[0], x[1])",
    )


def _identical(run: Run, size: int, looks: int) -> Finding:
    look = next((f for f in run.facts(InputsFact) if f.role == "input" and f.phase == TRAIN), None)
    constant = look is not None and look.low is not None and look.low == look.high
    what = f"every input is {figure(look.low or 0.0)}" if look is not None and constant else "all samples are equal"
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.98,
        proof=Proof.STRUCTURE,
        title=f"All {size} samples of a batch are the same" + (f": {what}" if constant else ""),
        summary="The inputs do not tell samples apart while their targets differ, so the model can learn the mean "
        "target and nothing else.",
        where=call_places(run, "backward"),
        first_step=0,
        last_step=run.steps,
        evidence=[
            Evidence(
                f"in {looks} batches that were looked at, {what}: one fingerprint for {size} samples",
                BATCH_DISTINCT.name,
                1 / size,
                1.5 / size,
            ),
            *_loss_evidence(run),
        ],
        fix=_fix(),
        symptoms=("stuck-at-chance", "flat-from-start"),
    )


def _alike(run: Run, spread: float) -> Finding:
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.9 if spread < NOTHING else 0.8,
        title=f"Samples differ by {spread:.1%} of their size" if spread >= 1e-3 else "Samples are next to identical",
        summary="The inputs hardly tell samples apart while their targets differ, and the loss stays where a constant "
        "guess would be.",
        where=call_places(run, "backward"),
        evidence=[
            Evidence(
                f"standard deviation over samples is {figure(spread)} of the inputs' size",
                BATCH_SPREAD.name,
                spread,
                LITTLE,
            ),
            *_loss_evidence(run),
        ],
        fix=_fix(),
        symptoms=("stuck-at-chance",),
    )


def _dead(run: Run, dead: int, features: int, value: float, first: int) -> Finding:
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.85,
        title=f"{dead} of {features} input features never change",
        summary=f"Most features hold one value in every batch (feature {first} is always {figure(value)}), so the "
        "model learns from the few others only.",
        where=call_places(run, "backward"),
        evidence=[
            Evidence(
                f"{dead} of {features} features had the same value in every sample that was looked at",
                "inputs",
                dead / features,
                DEAD_SHARE,
            ),
            *_loss_evidence(run),
        ],
        fix=Fix(
            "Check the join or the cast that fills these columns; drop them if they are constant by nature.",
            "print((x.amax(0) == x.amin(0)).nonzero())",
        ),
    )
