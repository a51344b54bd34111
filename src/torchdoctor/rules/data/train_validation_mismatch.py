"""Validation inputs are scaled, encoded or drawn differently from training inputs.

## What it means
What the model gets in validation does not look like what it was trained on: another scale, another mean, other token
ids. It answers for data that it has never seen the like of, so validation says little about what was learned; its
loss is far above the training loss from the start, and stays there.

## Why it happens
- Normalisation is applied in one code path only, or twice, or with other constants (0..255 against 0..1).
- A scaler is fitted on raw training data, and the validation part is passed by; or columns are in another order.
- Validation is encoded with another vocabulary or another category mapping.
- The split is not random: other sensors, other years, other sources.

## How it is detected
Mean and standard deviation of each feature (column of a table, channel of an image) are taken over training batches
and over whole validations. The distance of a feature is the Kullback-Leibler divergence of the two normal
distributions, in nats: 0.5 for a mean that is off by one standard deviation, 0.8 for a standard deviation off by a
factor of two and more for larger ones. The median over features must reach 0.35; or 0.12 if validation loss is twice
the training loss from the first validation on; or a few features must be off by more than 3 nats and two standard
deviations. Token ids are counted in 64 classes; the two distributions must differ by 0.15 in total variation beyond
chance, the class that differs most (padding) left out.

## How to fix it
Use one function for the deterministic part of preprocessing and call it for both splits; fit scalers and vocabularies
on the training part and apply them to the other. Keep the order of columns with the scaler.

## Known false alarms
Augmentation of the training data widens its distribution: mixing, noise and crops stay below 0.1 nats. A validation set
that is meant to be different (another domain, later years of a series with a trend) is reported as what it is.
Where a loader that trains is also evaluated, that is not a validation set and is left out.

## References
Quinonero-Candela et al., "Dataset Shift in Machine Learning" (2009). Breck et al., "Data Validation for Machine
Learning" (2019): training-serving skew by comparing statistics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.distributions.gaps import nanmedian
from torchdoctor.facts import TRAIN, VALIDATION, FeaturesFact, InputsFact, ModesFact, TokensFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.curves import Floats, figure
from torchdoctor.rules.data.columns import varies
from torchdoctor.rules.data.membership import is_acting, loader_phases
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import INPUT_MEAN, INPUT_STD, LOSS_TRAIN, LOSS_VALIDATION

RULE = Rule(
    code="D011",
    name="train-validation-mismatch",
    family="data",
    needs=(FeaturesFact, InputsFact),
    explains=(
        "overfitting",
        "miscalibrated",
        "weak-slice",
        "majority-class-collapse",
        "noisy-validation",
        "train-mode-in-evaluation",
        "metric-disagrees-with-loss",
        "inputs-and-labels-unrelated",
        "batchnorm-small-batch",
    ),
)

FAR = 0.35
"""Median divergence in nats that no usual augmentation reaches: mixup gives 0.05, unit noise 0.1."""
APART = 0.12
"""Enough where validation is bad from the start."""
WORSE = 2.0
"""Validation over training loss at the first validations."""
CERTAIN = 3.0
"""A factor of four in scale, or two and a half standard deviations: preprocessing rather than sampling."""
MOVED = 2.0
"""Standard deviations by which the mean of a single feature must be off; outliers alone widen, but do not move it."""
SCALED = (0.55, 1.8)
"""Validation over training spread outside of which the scale is off: about a factor of two. A mean that is off alone
may come from another season or site, so it is a warning only."""
LEAST_SAMPLES, LEAST_TRAINED = 30, 100
LEAST_TOKENS = 1000
OTHER_TOKENS = 0.15
"""Total variation between counts of ids in 64 classes; texts of other topics, one vocabulary, differ by about 0.1."""
TOKENS_A_SAMPLE = 8
"""Words of a text depend on each other: a sample counts for so many independent ones."""
CAP = 100.0


@dataclass(frozen=True)
class Distance:
    """How far validation is from training, feature by feature."""

    group: str
    samples: int
    nats: Floats
    moved: Floats
    """difference of means in training standard deviations"""
    ratio: Floats
    """validation over training standard deviation"""
    trained: tuple[Floats, Floats]
    validated: tuple[Floats, Floats]

    @property
    def middle(self) -> float:
        return float(np.median(self.nats))

    @property
    def scale(self) -> float:
        return float(np.median(self.ratio))

    @property
    def is_scaled(self) -> bool:
        return not SCALED[0] <= self.scale <= SCALED[1]

    @property
    def few(self) -> int:
        """Single features that are certainly off."""
        return int(((self.nats >= CERTAIN) & (self.moved >= MOVED)).sum())

    @property
    def worst(self) -> int:
        return int(np.argmax(self.nats))


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    if is_acting(run):
        return
    tokens = token_distance(run)
    if tokens is not None and tokens > OTHER_TOKENS:
        yield _other_tokens(run, tokens)
        return
    distances = [d for d in (measure(run, f) for f in last_features(run)) if d is not None]
    if not distances:
        return
    distance = max(distances, key=lambda d: (d.middle, d.few))
    worse = starting_gap(run)
    bad = worse is not None and worse >= WORSE
    if distance.middle >= FAR or distance.few >= max(1, 0.02 * len(distance.nats)):
        yield _finding(run, distance, worse, certain=distance.middle >= CERTAIN and distance.is_scaled)
    elif distance.middle >= APART and bad:
        yield _finding(run, distance, worse, certain=False)
    elif distance.middle < 0.05:
        text = "validation inputs have the mean and spread of training inputs"
        yield RuledOut(RULE.name, text, FeaturesFact.kind, distance.middle)


def token_distance(run: Run) -> float | None:
    """Total variation between the token ids of both phases beyond chance, less what differs most (padding)."""
    phases, found = loader_phases(run), {(f.phase, f.group): f for f in run.facts(TokensFact)}
    trained = found.get((TRAIN, ""))
    held = [
        f
        for (phase, group), f in found.items()
        if phase == VALIDATION and (group not in phases or phases[group].phase != TRAIN)
    ]
    if trained is None or not held or trained.samples < LEAST_TRAINED:
        return None
    return max(variation(trained, f) for f in held)


def variation(trained: TokensFact, held: TokensFact) -> float:
    if held.samples < LEAST_SAMPLES or sum(held.counts) < LEAST_TOKENS:
        return 0.0
    a, b = np.array(trained.counts, np.float64), np.array(held.counts, np.float64)
    keep = np.arange(len(a)) != int(np.argmax(np.abs(a / a.sum() - b / b.sum())))
    a, b = a[keep], b[keep]
    if not a.sum() or not b.sum():
        return 0.0
    chance = 0.4 * math.sqrt(len(a) / (TOKENS_A_SAMPLE * held.samples))
    return float(0.5 * np.abs(a / a.sum() - b / b.sum()).sum()) - chance


def last_features(run: Run) -> list[FeaturesFact]:
    phases = loader_phases(run)
    found = {f.group: f for f in run.facts(FeaturesFact)}
    return [f for f in found.values() if f.group not in phases or phases[f.group].phase != TRAIN]


def measure(run: Run, held: FeaturesFact) -> Distance | None:
    looks = [f for f in run.facts(InputsFact) if f.phase == TRAIN and f.role == "input" and f.shape]
    floats = [f for f in looks if f.feature_mean is not None and len(f.feature_mean) == len(held.mean)]
    whole = not floats and len(held.mean) == 1
    if held.samples < LEAST_SAMPLES or not (floats or (whole and looks)):
        return None
    if whole:
        mean_t, std_t = pooled(
            run.scalar(INPUT_MEAN, TRAIN).values[:, None], run.scalar(INPUT_STD, TRAIN).values[:, None]
        )
        samples = len(looks) * looks[0].shape[0]
    else:
        mean_t, std_t = pooled(_array([f.feature_mean for f in floats]), _array([f.feature_std for f in floats]))
        samples = sum(f.shape[0] for f in floats)
    samples = max(samples, len(run.scalar(INPUT_MEAN, TRAIN)) * looks[0].shape[0])
    if samples < LEAST_TRAINED or len(mean_t) != len(held.mean):
        return None
    mean_v, std_v = np.array(held.mean), np.array(held.std)
    alive = varies(mean_t, std_t)
    if not alive.any():
        return None
    moved = np.abs(mean_v - mean_t)[alive] / std_t[alive]
    ratio = np.maximum(std_v[alive] / std_t[alive], 1e-6)
    nats = np.minimum(divergence(moved, ratio), CAP)
    trained, validated = (mean_t[alive], std_t[alive]), (mean_v[alive], std_v[alive])
    return Distance(held.group, held.samples, nats, moved, ratio, trained, validated)


def divergence(moved: Floats, ratio: Floats) -> Floats:
    """Of a normal distribution from a standard one."""
    return 0.5 * (np.square(ratio) + np.square(moved) - 1 - 2 * np.log(ratio))


def pooled(mean_LF: Floats, std_LF: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation over all looks together, whatever a few outliers among them."""
    mean = nanmedian(mean_LF, axis=0)
    between = curves.MAD_TO_SIGMA * nanmedian(np.abs(mean_LF - mean), axis=0)
    return mean, np.sqrt(nanmedian(np.square(std_LF), axis=0) + np.square(between))


def _array(rows: list[list[float] | None]) -> Floats:
    return np.array([[math.nan if v is None else v for v in row or ()] for row in rows], np.float64)


def starting_gap(run: Run) -> float | None:
    """Validation over training loss, the least of the first three validations."""
    train, held = curves.read(run.scalar(LOSS_TRAIN)), curves.read(run.scalar(LOSS_VALIDATION))
    ratios = []
    for step, value in zip(held.steps[:3], held.values[:3], strict=True):
        before = train.values[(train.steps <= step) & (train.steps >= step - max(5, 0.3 * step))]
        if len(before) >= 3 and np.median(before) > 0:
            ratios.append(float(value / np.median(before)))
    return min(ratios) if ratios else None


def _other_tokens(run: Run, distance: float) -> Finding:
    worse = starting_gap(run)
    modes = [f for f in run.facts(ModesFact) if f.phase == VALIDATION and f.file]
    text = f"{distance:.0%} of the token ids in validation, beyond chance, lie where training has fewer of them"
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.9 if distance > 2 * OTHER_TOKENS or (worse or 0) > WORSE else 0.8,
        title="Validation uses its token ids differently from training",
        summary="The ids that are frequent in validation are not those that are frequent in training: another "
        "vocabulary or encoding, or texts from elsewhere. To the model they are other words.",
        where=known(*(Place(file=f.file, line=f.line) for f in modes[:1])),
        evidence=[
            Evidence(text, TokensFact.kind, distance, OTHER_TOKENS),
            *_gap_evidence(run, worse),
        ],
        fix=Fix(
            "Build the vocabulary from the training texts once, save it, and encode both splits with it.",
            "vocabulary = build_vocabulary(train_texts)\n"
            "train, val = encode(train_texts, vocabulary), encode(val_texts, vocabulary)",
        ),
        symptoms=("train-down-validation-flat", "validation-flat"),
    )


def _gap_evidence(run: Run, worse: float | None) -> list[Evidence]:
    if worse is None or worse <= 1.2:
        return []
    held = run.scalar(LOSS_VALIDATION)
    text = f"validation loss is {figure(worse)} times the training loss from the first validations on"
    return [Evidence(text, LOSS_VALIDATION.name, worse, WORSE, curves.spark(held.values))]


def _finding(run: Run, distance: Distance, worse: float | None, *, certain: bool) -> Finding:
    many, worst = len(distance.nats), distance.worst
    t = [figure(float(part[worst])) for part in distance.trained]
    v = [figure(float(part[worst])) for part in distance.validated]
    name = f"feature {worst}" if many > 1 else "the inputs"
    off = int((distance.nats >= FAR).sum())
    evidence = [
        Evidence(
            f"{off} of {many} features differ, by {figure(distance.middle)} nats in the middle"
            if many > 1
            else f"inputs differ by {figure(distance.middle)} nats",
            FeaturesFact.kind,
            distance.middle,
            FAR,
        ),
        Evidence(f"{name}: mean {t[0]}, standard deviation {t[1]} in training; {v[0]} and {v[1]} in validation"),
    ]
    evidence += _gap_evidence(run, worse)
    modes = [f for f in run.facts(ModesFact) if f.phase == VALIDATION and f.file]
    summary = "Validation is preprocessed differently or drawn from elsewhere: "
    if distance.is_scaled:
        summary += f"its inputs vary {figure(distance.scale)} times as much as those the model was trained on."
    else:
        summary += f"its inputs are shifted by {figure(float(np.median(distance.moved)))} standard deviations."
    if distance.middle < APART:
        summary = f"{distance.few} of {many} features are on another scale in validation than in training."
    return RULE.finding(
        severity=Severity.ERROR if certain else Severity.WARNING,
        confidence=0.95 if certain else 0.85 if distance.middle >= 2 * FAR or (worse or 0) > WORSE else 0.75,
        title="Validation inputs are not like training inputs",
        summary=summary,
        where=known(*(Place(file=f.file, line=f.line) for f in modes[:1])),
        evidence=evidence,
        fix=Fix(
            "Apply the same deterministic preprocessing, with the constants fitted on the training part, to both.",
            "mean, std = X_train.mean(0), X_train.std(0)\n"
            "X_train, X_val = (X_train - mean) / std, (X_val - mean) / std",
        ),
        symptoms=("train-down-validation-flat", "validation-flat"),
    )
