"""A fraction of the training labels is wrong.

## What it means
For part of the samples the label contradicts what all the others teach. At first the model does not believe them: its
errors on training samples are as frequent where it is sure as where it is not. Later it learns them by heart, and
validation gets worse.

## Why it happens
- Annotators disagree or were careless, or labels come from a rule, a keyword or another model.
- A merge, a default value or a bug replaced part of the labels.
- What is predicted is partly chance: then the noise is not a fault, but the best score is known.

## How it is detected
Training looks are added up over the stretch in which the model had already learned (at least 40 % of the way from
guessing to perfect, on the training samples or in the validation before them). Where a task is just hard, errors lie
where the model is unsure. Where labels are wrong at random they are spread over all degrees of confidence: the most
confident third errs at least 40 % as often as all together, which a binomial test must put above 4 % at an error rate
of 1e-3. One more sign is needed. With four classes or more: the given label of an error scored anywhere, in the lower
half at least 60 % as often as random labels would, where in a hard task the true class scores second. Or: validation,
whose labels are right, is right at least ten points more often than training at the same time (four standard errors),
without dropout and with training samples that come again unchanged, so that neither explains it (with four classes or
more, 30 % in the lower half must bear it out; with fewer, where validation may be the easier part of the data, the most
confident third must err 70 % as often as all). Or, where labels are wrong in validation alike: its samples are new to
the model, and in the middle pass its most confident third errs 75 % as often as all, or 60 % with labels that scored
anywhere (where with four classes or more it scored second, training has to bear it out as below). With two or three
classes and none of these, the most confident third of training must err 70 % as often as all, and 40 % less two
standard errors. The error rate of the most confident third estimates the share of wrong labels.

## How to fix it
Train a few epochs, or in folds, and look at the training samples of the largest loss: repair or drop them. If that
cannot be done: label smoothing, a loss that forgives (generalised cross-entropy), and early stopping before they are
learned by heart.

## Known false alarms
Outcomes that are partly chance look the same. Errors that gather in one slice of the inputs are
weak-slice. Imbalanced labels whose rare class is missed do not count: the model
must be far better than naming the largest class. Mixed targets (mixup) are left out. Training labels confused between
two similar classes only are seen where validation shows it.

## References
Arpit et al., "A Closer Look at Memorization in Deep Networks" (2017). Pleiss et al., "Identifying Mislabeled Data using
the Area Under the Margin Ranking" (2020). Northcutt, Jiang and Chuang, "Confident Learning" (2021).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.distributions.binomial import at_least
from torchdoctor.facts import TRAIN, VALIDATION, InputsFact, ModesFact, SamplesFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import baseline, outcomes
from torchdoctor.rules.evaluation.weak_slice import weak_slices
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACCURACY_TRAIN, ACCURACY_VALIDATION

RULE = Rule(
    code="D015",
    name="noisy-labels",
    family="data",
    needs=(SamplesFact,),
    explains=(
        "overfitting",
        "miscalibrated",
        "underfitting",
        "capacity-too-low",
        "weak-slice",
        "validation-better-than-training",
        "over-regularized",
        "batch-too-small",
    ),
)

TENTHS = 10
LEARNED = 0.4
"""Share of the way from the best constant guess to perfect."""
BETTER_THAN_GUESSING = 0.2
"""The same for training where validation shows that the model has learned: with two classes a quarter of wrong labels
leaves half of the way."""
SURE = 3
"""The most confident tenths that are looked at."""
EVEN, EVEN_ALONE = 0.4, 0.7
"""Error rate of the most confident over that of all; a calibrated model on a hard task shows a tenth or less."""
FEW_CLASSES = 3
UNLIKELY = 0.6
"""Errors whose label scored in the lower half, over what random labels give."""
NOT_SECOND = 0.3
"""The same beside a validation that is far better, or that errs alike: in a hard task, where the given label scores
second, it is less."""
SURELY_WRONG = 0.04
ERROR_RATE = 1e-3
BETTER = 0.1
SIGMAS = 4.0
"""Validation accuracy above that of training, and in standard errors. Chosen: a smaller gap
may come from dropout or augmentation in training."""
EVEN_NEW, EVEN_SCATTERED = 0.75, 0.6
"""The same on validation samples, which cannot be known by heart: alone, and with labels that scored anywhere. Hard
tasks of the zoo show 0.66 at most and labels at a quarter of chance; wrong labels 0.84 or more."""
LEAST_PASSES, LEAST_ERRORS = 3, 30
REPEATS = 5
"""Training samples seen twice with the same bytes: they are not augmented."""
HARMFUL = 0.08
"""Share of wrong labels from which on it is a warning."""
LEAST_SAMPLES = 150


@dataclass(frozen=True)
class Doubt:
    """Training looks added up over the stretch in which the model had learned."""

    first: int
    step: int
    samples: int
    wrong: int
    sure: int
    sure_wrong: int
    unlikely: int
    classes: int
    tenths: tuple[float, ...]
    looks: tuple[tuple[int, int, int], ...]
    """of each: the step, samples, and how many were right"""

    @property
    def accuracy(self) -> float:
        return 1 - self.wrong / self.samples

    @property
    def sure_error(self) -> float:
        return self.sure_wrong / max(1, self.sure)

    @property
    def evenness(self) -> float:
        """Error rate of the most confident over that of all."""
        return self.sure_error / max(1e-12, 1 - self.accuracy)

    @property
    def surely_even(self) -> float:
        """The same, less two standard errors of a count."""
        return self.evenness * max(0.0, 1 - 2 / math.sqrt(max(1, self.sure_wrong)))

    @property
    def anywhere(self) -> float:
        """Errors whose label scored in the lower half, over what random labels give."""
        lower = sum(rank > self.classes / 2 for rank in range(1, self.classes)) / (self.classes - 1)
        return self.unlikely / max(1, self.wrong) / max(lower, 1e-12)


def detect(run: Run) -> Iterator[Finding]:
    if any((c.target_dtype or "").startswith("float") and c.classes for c in baseline.loss_calls(run)):
        return
    counts = outcomes.training(run, 1000)
    if counts is None or not outcomes.is_by_sample(run):
        return
    seen = outcomes.looks(run, TRAIN, "classes")
    found = add_up(seen, counts.majority) or add_up(seen, counts.majority, outcomes.passes(run))
    if found is None or not is_even(found):
        return
    passes = outcomes.looks(run, VALIDATION, "classes")
    if passes and weak_slices(passes[-1][1]):
        return
    gap = gap_to_validation(run, found)
    alike = wrong_in_validation(passes, counts.majority)
    learned = found.accuracy >= _least(counts.majority)
    alone = learned and found.evenness >= EVEN_ALONE and found.surely_even >= EVEN
    if alike is not None and alike.scores_second and not alone:
        alike = None
    many = found.anywhere >= (UNLIKELY if gap is None else NOT_SECOND) and (learned or gap is not None)
    few = (gap is not None and found.evenness >= EVEN_ALONE) or alone
    if (many if found.classes > FEW_CLASSES else few) or alike is not None:
        yield _finding(found, gap, alike)


def add_up(
    seen: list[tuple[int, SamplesFact]], majority: float, passes: list[outcomes.Outcome] | None = None
) -> Doubt | None:
    """The windows in which the model had learned, as one. Where many of few classes' labels are wrong, accuracy on them
    cannot tell; with `passes` validation does, once it has been as good for as long as it took to get there."""
    least = _least(majority)
    known = next((o.step for o in passes or [] if o.accuracy >= max(least, _least(o.majority))), math.inf)
    better = majority + BETTER_THAN_GUESSING * (1 - majority)
    kept = [
        (step, f)
        for step, f in seen
        if f.correct is not None
        and f.classes
        and len(f.tenths) == TENTHS
        and f.correct >= (better if step >= 2 * known else least) * f.samples
    ]
    samples = sum(f.samples for _, f in kept)
    if samples < LEAST_SAMPLES:
        return None
    tenths = np.sum([np.array(f.tenths)[:, :2] for _, f in kept], axis=0)
    return Doubt(
        first=kept[0][0],
        step=kept[-1][0],
        samples=samples,
        wrong=sum(f.samples - (f.correct or 0) for _, f in kept),
        sure=int(tenths[-SURE:, 0].sum()),
        sure_wrong=int(tenths[-SURE:, 1].sum()),
        unlikely=sum(f.unlikely for _, f in kept),
        classes=kept[-1][1].classes or 2,
        tenths=tuple(float(v) for v in tenths[:, 1] / np.maximum(1, tenths[:, 0])),
        looks=tuple((step, f.samples, f.correct or 0) for step, f in kept),
    )


def is_even(found: Doubt) -> bool:
    """The most confident err nearly as often as all, beyond what chance gives."""
    surely = at_least(found.sure_wrong, found.sure, SURELY_WRONG)
    return found.wrong > 0 and surely < ERROR_RATE and found.evenness >= EVEN


def _least(majority: float) -> float:
    """Accuracy of a model that has learned."""
    return majority + LEARNED * (1 - majority)


@dataclass(frozen=True)
class Alike:
    """The middle validation pass of those in which the model had learned."""

    evenness: float
    anywhere: float
    sure_error: float
    samples: int
    classes: int

    @property
    def scores_second(self) -> bool:
        """As the true class does in a hard task, and a label that is confused with the next one."""
        return self.classes > FEW_CLASSES and self.anywhere < NOT_SECOND


def wrong_in_validation(passes: list[tuple[int, SamplesFact]], majority: float) -> Alike | None:
    """Errors on new samples lie where the model is sure as well: the labels of validation are wrong alike."""
    judged = [
        _as_alike(f)
        for _, f in passes
        if f.correct is not None
        and f.classes
        and len(f.tenths) == TENTHS
        and f.correct >= _least(majority) * f.samples
        and f.samples - f.correct >= LEAST_ERRORS
    ]
    if len(judged) < max(LEAST_PASSES, len(passes) / 2):
        return None
    found = Alike(
        *(float(np.median([getattr(j, k) for j in judged])) for k in ("evenness", "anywhere", "sure_error")),
        judged[-1].samples,
        judged[-1].classes,
    )
    scattered = found.evenness >= EVEN_SCATTERED and found.anywhere >= UNLIKELY
    return found if found.evenness >= EVEN_NEW or scattered else None


def _as_alike(fact: SamplesFact) -> Alike:
    whole = add_up([(0, fact)], 0.0)
    if whole is None:
        return Alike(0.0, 0.0, 0.0, fact.samples, fact.classes or 2)
    anywhere = whole.anywhere if whole.classes > FEW_CLASSES else 0.0
    return Alike(whole.evenness, anywhere, whole.sure_error, fact.samples, whole.classes)


@dataclass(frozen=True)
class Gap:
    """Accuracies at the same time."""

    validation: float
    training: float

    @property
    def size(self) -> float:
        return self.validation - self.training


def gap_to_validation(run: Run, found: Doubt) -> Gap | None:
    """How much more often validation is right at the same time, where nothing but the labels can explain it. Looks are
    closer together in the beginning, when both are worse: each is compared with the passes around it."""
    passes = outcomes.passes(run)
    modes = [m for m in run.facts(ModesFact) if m.phase == TRAIN]
    looks = [look for look in found.looks if passes and look[0] >= passes[0].step]
    samples = sum(n for _, n, _ in looks)
    if samples < LEAST_SAMPLES or any(m.dropout_training for m in modes) or _repeats(run) < REPEATS:
        return None
    at = sorted({o.step for o in passes})
    accuracies = [float(np.mean([o.accuracy for o in passes if o.step == step])) for step in at]
    meanwhile = np.interp([step for step, _, _ in looks], at, accuracies)
    right = float(np.average(meanwhile, weights=[n for _, n, _ in looks]))
    trained = sum(correct for _, _, correct in looks) / samples
    variance = trained * (1 - trained) / samples + right * (1 - right) / passes[-1].samples
    gap = Gap(right, trained)
    return gap if gap.size >= max(BETTER, SIGMAS * math.sqrt(variance)) else None


def _repeats(run: Run) -> int:
    """How often a training sample came again with the same bytes, in another look."""
    looks = [set(f.fingerprints) for f in run.facts(InputsFact) if f.phase == TRAIN and f.role == "input"]
    return sum(len(look) for look in looks) - len(set().union(*looks)) if looks else 0


def _finding(found: Doubt, gap: Gap | None, alike: Alike | None) -> Finding:
    share = min(1.0, found.sure_error * found.classes / max(1, found.classes - 1))
    unsure = float(np.mean(found.tenths[:SURE]))
    return RULE.finding(
        severity=Severity.WARNING if share >= HARMFUL else Severity.INFO,
        confidence=0.85 if gap is not None or alike is not None or found.classes > FEW_CLASSES else 0.65,
        title=f"About {share:.0%} of the {'training and validation' if alike else 'training'} labels seem to be wrong",
        summary=(
            f"The model has learned the task and gets {found.accuracy:.0%} of the training samples right, but where it "
            f"is most confident it is still wrong {found.sure_error:.0%} of the time, as labels at random make it. "
            "Trained on, it learns these labels by heart."
        ),
        fix=Fix(
            "Look at the training samples of the largest loss after the first epochs, and repair or drop their labels; "
            "else smooth the labels and stop early.",
            "losses = F.cross_entropy(model(x_train), y_train, reduction='none'); suspects = losses.topk(50).indices",
        ),
        evidence=_evidence(found, gap, alike, unsure),
        first_step=found.first,
        last_step=found.step,
        symptoms=("train-down-validation-up",),
    )


def _evidence(found: Doubt, gap: Gap | None, alike: Alike | None, unsure: float) -> Iterator[Evidence]:
    yield Evidence(
        f"error rate of the most confident third {found.sure_error:.1%}, of the least confident third {unsure:.1%}, of "
        f"all {1 - found.accuracy:.1%} ({found.samples} training samples, steps {found.first} to {found.step})",
        ACCURACY_TRAIN.name,
        found.evenness,
        EVEN,
        found.tenths,
    )
    if gap is not None:
        yield Evidence(
            f"validation is right {gap.validation:.1%} of the time, training {gap.training:.1%} meanwhile, without "
            "dropout or augmentation: the labels of training are worse than those of validation",
            ACCURACY_VALIDATION.name,
            gap.size,
            BETTER,
        )
    if alike is not None:
        yield Evidence(
            f"in validation the most confident third errs {alike.sure_error:.1%} of the time, {alike.evenness:.0%} of "
            f"all ({alike.samples} samples that are not trained on)",
            ACCURACY_VALIDATION.name,
            alike.evenness,
            EVEN_SCATTERED if alike.evenness < EVEN_NEW else EVEN_NEW,
        )
    if found.classes > FEW_CLASSES:
        yield Evidence(
            f"in {found.unlikely / max(1, found.wrong):.0%} of the errors the given label scored in the lower half of "
            f"{found.classes} classes, {found.anywhere:.0%} of what random labels give",
            None,
            found.anywhere,
            UNLIKELY,
        )
