"""Validation has too few samples to be trusted: its numbers jump by chance.

## What it means
An accuracy over n samples is uncertain by about one over the root of n: 50 samples give plus or minus 14 points, 200
give 7. From pass to pass, and between two models, differences smaller than that mean nothing. Early stopping, plateau
schedules and the choice of the best checkpoint then follow chance, and the best number seen is better than the truth.

## Why it happens
- A small share of a small data set was set aside.
- Validation stops after one batch (`break`, `limit_val_batches`, a sampler that draws a few).
- Only a few samples of the class or language that counts are in it.

## How it is detected
The samples of a validation pass are counted. The finding needs at least five passes whose accuracy has a 95 %
confidence interval of plus or minus 8 points and more, and whose accuracy does jump from pass to pass in the last half
of the run; where only a loss is seen, fewer than 64 samples and a scatter from pass to pass above a fifth of the loss.
At most 20 samples, where ten times as many and more are trained on from one validation to the next, are reported once
their accuracy (also one that is only printed, if its values are whole numbers of so many samples) has moved at all, or
the loss of the single samples leaves their mean uncertain by a fifth.
It is a warning where there are at most 64 samples and the jumps are larger than the trend, and, for an accuracy, at
least half as large as its interval to one side; else an info.

## How to fix it
Set more samples aside, or use cross-validation; average over all of the validation set, not over a batch of it. Compare
models by intervals, and average the last passes before choosing a checkpoint.

## Known false alarms
Data sets that simply have no more samples; cross-validation over all folds is then the way. Accuracies near 100 % have
narrow intervals and are not reported.

## References
Wilson, "Probable Inference, the Law of Succession, and Statistical Inference" (1927). Bouthillier et al., "Accounting
for Variance in Machine Learning Benchmarks" (2021).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from torchdoctor.facts import TRAIN, VALIDATION, InputsFact, LoaderFact, PredictionsFact, SamplesFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.curves import Curve, figure
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACCURACY_VALIDATION, BATCH_SIZE, LOSS_TRAIN, LOSS_VALIDATION, PRINTED

RULE = Rule(code="E005", name="noisy-validation", family="evaluation", needs=(LOSS_TRAIN,))

LEAST_PASSES = 5
WIDE = 0.08
"""Half of a 95 % interval of an accuracy: differences that people act on are smaller."""
FEW = 64
"""Samples up to which the half of the interval exceeds 12 points at an accuracy of one half."""
FEW_ENOUGH = 200
"""Samples above which no accuracy has an interval of plus or minus 8 points."""
JUMPS = 0.5
"""Scatter from pass to pass in standard errors of one pass: the same samples each time vary less than fresh ones."""
SWINGS = 0.5
"""Jumps from pass to pass over the half of the interval: fresh samples give 0.7, the same ones less the more the models
agree on them. Below it a pass can be compared with the next, however few its samples."""
LOSS_SCATTER = 0.2
"""Of the loss; smaller differences are seldom acted on."""
NORMAL_95 = 1.96
LEAST_TINY, TINY = 3, 20
"""Samples: up to twenty one more or less right moves an accuracy by five points; one or two are a demonstration."""
PLENTY = 10.0
"""Samples trained on from one validation to the next, over those validated on: there were more to be had."""
ROUNDED = 0.06
"""Of a sample: what rounding a printed accuracy leaves."""
ACCURACY = re.compile(r"(?<![a-z])acc(uracy)?(?![a-z])", re.I)


def detect(run: Run) -> Iterator[Finding]:
    samples = samples_of(run)
    if samples is None or samples > FEW_ENOUGH:
        return
    tiny = _tiny(run, samples)
    if tiny is not None:
        yield tiny
        return
    accuracy = curves.read(run.scalar(ACCURACY_VALIDATION), closely=False)
    losses = curves.read(run.scalar(LOSS_VALIDATION), closely=False)
    late = accuracy.values[len(accuracy) // 2 :]
    if len(accuracy) >= LEAST_PASSES:
        share = min(max(float(late.mean()), 1 / (samples + 2)), 1 - 1 / (samples + 2))
        error = math.sqrt(share * (1 - share) / samples)
        jumps = scatter(late)
        if NORMAL_95 * error >= WIDE and jumps >= JUMPS * error:
            matters = samples <= FEW and swings(late) >= max(SWINGS * NORMAL_95 * error, trend(late))
            yield _finding(samples, share, NORMAL_95 * error, jumps, accuracy, matters)
        return
    late = losses.values[len(losses) // 2 :]
    if len(losses) >= 2 * LEAST_PASSES and samples <= FEW and late.min() > 0:
        jumps = scatter(late) / float(late.mean())
        if jumps >= LOSS_SCATTER:
            yield _by_loss(samples, jumps, losses, swings(late) >= trend(late))


def _tiny(run: Run, samples: int) -> Finding | None:
    """Next to nothing is validated on although there is plenty: no course of the metric can make up for that."""
    trained = trained_between(run)
    if not LEAST_TINY <= samples <= TINY or trained is None or trained < PLENTY * samples or len(run.optimizers) != 1:
        return None
    accuracy = curves.read(run.scalar(ACCURACY_VALIDATION), closely=False)
    if not len(accuracy):
        accuracy = printed_accuracy(run, samples)
    if len(accuracy) >= LEAST_PASSES:
        late = accuracy.values[len(accuracy) // 3 :]
        share = min(max(float(late.mean()), 1 / (samples + 2)), 1 - 1 / (samples + 2))
        half = NORMAL_95 * math.sqrt(share * (1 - share) / samples)
        moves = len(np.unique(np.round(late * samples))) > 1
        return _finding(samples, share, half, scatter(late), accuracy, matters=True) if half >= WIDE and moves else None
    losses = curves.read(run.scalar(LOSS_VALIDATION), closely=False)
    last = next((f for f in reversed(run.facts(SamplesFact)) if f.phase == VALIDATION and f.samples == samples), None)
    single = np.array([w["loss"] for w in last.worst]) if last is not None else np.zeros(0)
    if len(losses) < LEAST_PASSES or len(single) != samples or not single.mean() > 0:
        return None
    error = float(single.std(ddof=1)) / math.sqrt(samples) / float(single.mean())
    return _by_loss(samples, error, losses, matters=True, spread=True) if error >= LOSS_SCATTER else None


def trained_between(run: Run) -> float | None:
    """Samples that are trained on from one validation to the next."""
    sizes = run.scalar(BATCH_SIZE, TRAIN).values
    between = run.phase.updates_between_validations if run.phase is not None else None
    sizes = sizes[np.isfinite(sizes)]
    return float(np.median(sizes)) * between if between is not None and len(sizes) else None


def printed_accuracy(run: Run, samples: int) -> Curve:
    """A printed accuracy whose values are all whole numbers of these few samples, so that it was taken over them."""
    for key in run.keys(PRINTED):
        curve = curves.read(run.scalar(PRINTED, key), closely=False)
        values = curve.values / 100 if len(curve) and curve.values.max() > 1 else curve.values
        hits = values * samples
        if ACCURACY.search(key) and len(values) and values.max() <= 1 and np.abs(hits - np.round(hits)).max() < ROUNDED:
            return Curve(curve.steps, values)
    return Curve(np.zeros(0, np.int64), np.zeros(0))


def scatter(values: curves.Floats) -> float:
    """Standard deviation from pass to pass, a trend left out."""
    return float(np.std(np.diff(values)) / math.sqrt(2)) if len(values) > 2 else 0.0


def swings(values: curves.Floats) -> float:
    """Size of the difference between two passes, a trend left out."""
    return math.sqrt(2) * scatter(values)


def trend(values: curves.Floats) -> float:
    """Mean move from pass to pass, in either direction."""
    return abs(float(np.mean(np.diff(values)))) if len(values) > 1 else 0.0


def samples_of(run: Run) -> int | None:
    """Samples of one validation pass, as far as they were seen."""
    counted = [f.samples for f in run.facts(PredictionsFact) if f.phase == VALIDATION]
    counted = counted or [f.samples for f in run.facts(SamplesFact) if f.phase == VALIDATION and f.whole]
    if counted:
        return int(np.median(counted))
    loaded = [f.samples for f in run.facts(LoaderFact) if f.phase == VALIDATION and f.samples]
    if loaded:
        return min(loaded)
    if any(f.phase == VALIDATION for f in run.facts(LoaderFact)):
        return None
    seen = [f for f in run.facts(InputsFact) if f.phase == VALIDATION and f.shape]
    looks = [f.shape[0] for f in seen if f.role == "target"]
    if not looks and run.phase is not None and run.phase.passes_validation == run.phase.validations:
        looks = [f.shape[0] for f in seen if f.role == "input"]
    return max(looks, default=None)


def _fix(samples: int) -> Fix:
    return Fix(
        f"Validate on more than {samples} samples (1000 give plus or minus 3 points), or use cross-validation.",
        "train_set, val_set = torch.utils.data.random_split(dataset, [0.8, 0.2])",
    )


def _finding(samples: int, share: float, half: float, jumps: float, accuracy: Curve, matters: bool) -> Finding:
    return RULE.finding(
        severity=Severity.WARNING if matters else Severity.INFO,
        confidence=0.85 if samples <= FEW / 2 else 0.75,
        title=f"Validation on {samples} samples is accurate to {half:.0%} only",
        summary=(
            f"{share:.0%} right of {samples} samples means {share - half:.0%} to {min(share + half, 1.0):.0%}. "
            f"From pass to pass it jumps by {jumps:.0%}: choosing a checkpoint by it follows chance."
        ),
        fix=_fix(samples),
        evidence=[
            Evidence(f"95 % interval of plus or minus {half:.1%}", ACCURACY_VALIDATION.name, half, WIDE),
            Evidence(
                f"scatter of {jumps:.1%} from pass to pass in the last half",
                ACCURACY_VALIDATION.name,
                jumps,
                None,
                curves.spark(accuracy.values),
            ),
        ],
        first_step=int(accuracy.steps[0]),
        last_step=int(accuracy.steps[-1]),
        symptoms=("validation-jumps",),
    )


def _by_loss(samples: int, jumps: float, losses: Curve, matters: bool, *, spread: bool = False) -> Finding:
    told = "is uncertain by {:.0%}: its samples differ so much" if spread else "jumps by {:.0%} from pass to pass"
    return RULE.finding(
        severity=Severity.WARNING if matters else Severity.INFO,
        confidence=0.7,
        title=f"Validation on {samples} samples {told.format(jumps)}",
        summary=(
            f"The validation loss around {figure(curves.level(losses.values))} rests on {samples} samples; differences "
            f"below {2 * jumps:.0%} of it are chance."
        ),
        fix=_fix(samples),
        evidence=[
            Evidence(
                f"standard error of {jumps:.0%} of the loss over its samples"
                if spread
                else f"scatter of {jumps:.0%} of the loss from pass to pass",
                LOSS_VALIDATION.name,
                jumps,
                LOSS_SCATTER,
                curves.spark(losses.values),
            )
        ],
        first_step=int(losses.steps[0]),
        last_step=int(losses.steps[-1]),
        symptoms=("validation-jumps",),
    )
