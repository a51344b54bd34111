"""Inputs or regression targets are far from zero mean and unit scale.

## What it means
Layers are initialised, and learning rates are chosen, for inputs of roughly zero mean and unit size. Inputs of size
100 make the first layer's outputs and its gradients about 100 times larger than that. The loss starts far above
chance, units saturate or die, the rate that suits the first layer does not suit the others, and a feature measured
in thousands drowns one measured in fractions. Regression targets in the thousands do the same from the other end:
the output layer has to grow a thousandfold before it can predict anything, and the squared error is in the millions.

## Why it happens
- Images read as bytes and turned into floats without dividing by 255 (`torch.tensor(array).float()` instead of
  `ToTensor()`).
- A table used as it came: age beside income beside a fraction, years such as 2019, sums of money, counts.
- A target in euros, pixels or milliseconds.
- Normalisation that is done for one split or one code path and forgotten in the other.

## How it is detected
From the first batches as the model gets them: mean and standard deviation of the whole input and of each feature or
channel. Extreme means a root mean square of 100 or more, overall or in one feature (raw tables), or pixels up to 255.
Between 10 and 100 the finding needs proof of harm that no learning rate can cause: a classification loss that is
several times chance before the first update. Targets count as harmful when they are larger than 30 and the model,
after training, still does not beat the best constant prediction. A model
that normalises its input itself (a normalisation layer in front, or a first layer whose outputs are small) is told
of by an info at most; token ids, one-hot vectors and integer inputs are never examined.

## How to fix it
Take mean and standard deviation over the training set, once, and apply the same numbers to training, validation and
use: `X = (X - mean) / std`. For images divide by 255 and normalise by channel. For targets standardise in the same
way and undo it on the predictions; for values over several orders of magnitude take the logarithm first. A
`BatchNorm1d` as the first layer does nearly the same with one line.

## Known false alarms
Models that are invariant to the scale of their input (batch-norm right behind a first layer without bias) train well
on raw pixels. Inputs normalised by hand in `forward`, in a way the first layer's outputs do not show, can be taken
for raw ones when they are extreme.

## References
LeCun, Bottou, Orr and Mueller, "Efficient BackProp" (1998), section 4.3. Ioffe and Szegedy, "Batch Normalization"
(2015). Karpathy, "A Recipe for Training Neural Networks" (2019).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from torchdoctor.distributions.gaps import nanmedian
from torchdoctor.facts import TRAIN, UNKNOWN, InputsFact, ModesFact
from torchdoctor.findings import Evidence, Finding, Fix, Severity
from torchdoctor.rules import baseline, curves
from torchdoctor.rules.curves import Floats, figure
from torchdoctor.rules.data.columns import is_constant
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACTIVATION, LOSS_TRAIN

RULE = Rule(
    code="D003",
    name="unnormalized-inputs",
    family="data",
    needs=(InputsFact,),
    explains=(
        "bad-initialization-scale",
        "exploding-gradients",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "clipping-too-tight",
        "dead-relu",
        "saturated-activations",
        "nonfinite-parameters",
    ),
)

EXTREME = 100.0
"""Root mean square from which inputs are raw: photographs in bytes have about 130, standardised data 1."""

LARGE = 10.0
"""Below this, unscaled inputs train well in practice (4-bit pixels 0..16 have about 8)."""

SPREAD = 1e3
"""Ratio of the largest to the smallest feature spread that no common learning rate serves."""

FAR_FROM_CHANCE = 3.0
"""First loss over the loss of a constant guess; a network at its usual initialisation is within 1.2 of it."""

LARGE_TARGET = 30.0
"""Root mean square of regression targets from which an output layer (weights of about 1) has far to go."""

SHRUNK = 0.05
"""The first layer's outputs over the inputs' size: 1/sqrt(3) under torch's default initialisation. Far less means
that the model rescaled the inputs before that layer."""

USUAL_GAIN = 3.0
"""More than this (sqrt(2) is the largest in common use) means that the weights, not the inputs, are too large."""

NORMS = ("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm", "Normalize", "Standard", "SyncBatchNorm")
PLAIN = ("Linear", "Conv", "LazyLinear", "LazyConv")
"""Layers whose outputs are as large as their inputs make them."""
FIRST_MODULES = 3
"""A normalisation among so many first modules undoes the inputs' scale."""

LOOKS = 5


@dataclass(frozen=True)
class Scale:
    """The inputs' size over the first looks."""

    size: float
    low: float
    high: float
    image: bool
    means: Floats
    stds: Floats
    """0 for columns that are constant"""
    index: NDArray[np.int64]
    """the columns' places in the input: those between 0 and 1 are left out"""

    @property
    def feature_sizes(self) -> Floats:
        return np.sqrt(np.square(self.means) + np.square(self.stds))

    @property
    def largest(self) -> float:
        return max(self.size, float(self.feature_sizes.max(initial=0.0)))

    @property
    def spread(self) -> float:
        """Largest over smallest spread of the features that vary."""
        std_F = self.stds[self.stds > 0]
        return float(std_F.max() / std_F.min()) if len(std_F) > 1 else 1.0

    @property
    def is_raw_image(self) -> bool:
        return self.image and self.low >= 0 and 128 < self.high <= 255 and self.size >= LARGE


def detect(run: Run) -> Iterator[Finding]:
    """One finding: the worse of inputs and targets, with the other's evidence."""
    said = sorted([*detect_inputs(run), *detect_targets(run)], key=lambda f: f.severity.rank)
    if said:
        yield replace(said[0], evidence=tuple(e for f in said for e in f.evidence))


def detect_inputs(run: Run) -> Iterator[Finding]:
    scale = look(run)
    if scale is None or _starts_with(run, ("Embedding",)):
        return
    extreme = scale.largest >= EXTREME or scale.is_raw_image
    gain = first_layer_gain(run, scale.size)
    start = first_loss_over_chance(run)
    harmed = start is not None and start >= FAR_FROM_CHANCE and (gain is None or gain < USUAL_GAIN)
    if not extreme and not (harmed and scale.size >= LARGE):
        return
    handled = _starts_with(run, acting_norms(run)) or (gain is not None and gain < SHRUNK)
    if handled and not extreme:
        return
    severity = Severity.INFO if handled else Severity.WARNING
    yield RULE.finding(
        severity=severity,
        confidence=0.5 if handled else 0.9 if harmed else 0.75,
        title=_title(scale),
        summary=_summary(scale, handled),
        fix=_fix(scale),
        evidence=[*_evidence(scale), *_harm(run, start)],
        first_step=0,
        symptoms=() if handled else _symptoms(run),
    )


def look(run: Run) -> Scale | None:
    """The size of the training inputs, from the first looks; None for token ids, one-hot vectors, nothing seen."""
    facts = [f for f in run.facts(InputsFact) if f.role == "input" and f.phase in (TRAIN, UNKNOWN)]
    facts = [f for f in facts if f.dtype.startswith(("float", "bfloat")) and f.mean is not None and f.std is not None]
    facts = [f for f in facts if f.low is not None and f.high is not None and f.shape == facts[0].shape][:LOOKS]
    if not facts:
        return None
    first = facts[0]
    size = float(np.median([math.hypot(f.mean or 0.0, f.std or 0.0) for f in facts]))
    mean_F, std_F = _columns([f.feature_mean for f in facts]), _columns([f.feature_std for f in facts])
    low_F, high_F = _columns([f.feature_low for f in facts]), _columns([f.feature_high for f in facts])
    if len(low_F) and len(mean_F) == len(std_F) == len(low_F) == len(high_F):
        keep = np.isfinite(mean_F) & np.isfinite(std_F) & ~((low_F >= 0) & (high_F <= 1))
        std_F = np.where(is_constant(low_F, high_F, first.dtype), 0.0, std_F)
        index_F, mean_F, std_F = np.flatnonzero(keep), mean_F[keep], std_F[keep]
    else:
        index_F, mean_F, std_F = np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    image = len(first.shape) >= 4 or (len(first.shape) == 2 and first.shape[1] >= 16)
    low, high = min(f.low or 0.0 for f in facts), max(f.high or 0.0 for f in facts)
    return Scale(size, low, high, image, mean_F, std_F, index_F)


def _columns(rows: list[list[float] | None]) -> Floats:
    """Median of each column over the batches in which it holds a finite number; NaN where none does."""
    known = [[math.nan if v is None else v for v in row] for row in rows if row]
    same = [row for row in known if len(row) == len(known[0])]
    return np.asarray(nanmedian(np.asarray(same, np.float64), axis=0)) if same else np.zeros(0)


def first_loss_over_chance(run: Run) -> float | None:
    """The loss of the first step over that of a constant guess: known before any update, so no rate is to blame."""
    call, guess, keys = baseline.only_call(run), baseline.chance(run), run.keys(LOSS_TRAIN)
    if call is None or not guess or len(keys) != 1 or call.function in baseline.SQUARED + baseline.ABSOLUTE:
        return None
    trace = run.scalar(LOSS_TRAIN, keys[0]).first(1)
    if not len(trace) or trace.steps[0] > 1 or not np.isfinite(trace.values[0]):
        return None
    return float(trace.values[0]) / guess


def acting_norms(run: Run) -> tuple[str, ...]:
    """Return the kinds of normalisation that act: batch norm that is kept in eval mode as it was made does not."""
    modes = [f for f in run.facts(ModesFact) if f.phase == TRAIN]
    idle = any(f.norm_idle and not f.norm_training for f in modes)
    return tuple(n for n in NORMS if not idle or "BatchNorm" not in n)


def _starts_with(run: Run, kinds: tuple[str, ...]) -> bool:
    first = [m for m in run.modules.values() if m.order is not None][:FIRST_MODULES]
    return any(kind in m.type for m in first for kind in kinds)


def first_layer_gain(run: Run, size: float) -> float | None:
    """Size of the first layer's outputs over that of the inputs, at the first look; None where it squashes them."""
    layers = [p.module for p in run.parameters.values() if p.order is not None and len(p.shape) >= 2][:1]
    layers = [
        m for m in layers if any(p.module == m and p.module_type.startswith(PLAIN) for p in run.parameters.values())
    ]
    mean, std = run.matrix(ACTIVATION["mean"]).first(1), run.matrix(ACTIVATION["std"]).first(1)
    if not layers or not len(std) or not len(mean) or layers[0] not in std.columns or not size:
        return None
    outputs = math.hypot(mean.column(layers[0]).values[0], std.column(layers[0]).values[0])
    return outputs / size if math.isfinite(outputs) else None


def _title(scale: Scale) -> str:
    if scale.is_raw_image:
        return f"The inputs are raw values up to {figure(scale.high)} (root mean square {figure(scale.size)})"
    if len(scale.stds) and scale.spread > SPREAD:
        return f"Input features differ {figure(scale.spread)}-fold in scale, the largest is {figure(scale.largest)}"
    return f"The inputs are of size {figure(scale.largest)}, not about 1"


def _summary(scale: Scale, handled: bool) -> str:
    if handled:
        return (
            f"The inputs run from {figure(scale.low)} to {figure(scale.high)}. The model seems to normalise them "
            "itself, so this may be as you want it."
        )
    return (
        f"The inputs run from {figure(scale.low)} to {figure(scale.high)} instead of having zero mean and unit scale. "
        "Initialisation and learning rate are made for the latter: gradients of the first layer are too large, and "
        "training becomes slow or unstable."
    )


def _fix(scale: Scale) -> Fix:
    if scale.is_raw_image:
        return Fix(
            "Scale the pixels to 0..1 (and best to zero mean), for training and validation alike.", "X = X / 255.0"
        )
    return Fix(
        "Standardise every feature with the training set's mean and standard deviation, and use the same two for "
        "validation.",
        "mean, std = X_train.mean(0), X_train.std(0).clamp_min(1e-6); X_train = (X_train - mean) / std",
    )


def _evidence(scale: Scale) -> Iterator[Evidence]:
    yield Evidence(
        f"inputs from {figure(scale.low)} to {figure(scale.high)}, root mean square {figure(scale.size)}",
        "inputs",
        scale.largest,
        EXTREME if scale.largest >= EXTREME else LARGE,
    )
    if (scale.stds > 0).sum() > 1:
        large, small = (
            int(np.argmax(scale.feature_sizes)),
            int(np.argmin(np.where(scale.stds > 0, scale.stds, np.inf))),
        )
        yield Evidence(
            f"feature {scale.index[large]}: mean {figure(scale.means[large])}, std {figure(scale.stds[large])}; "
            f"feature {scale.index[small]}: mean {figure(scale.means[small])}, std {figure(scale.stds[small])}",
            "inputs",
            scale.spread,
            SPREAD,
        )


def _harm(run: Run, start: float | None) -> Iterator[Evidence]:
    if start is not None and start >= FAR_FROM_CHANCE:
        loss = run.scalar(LOSS_TRAIN, run.keys(LOSS_TRAIN)[0])
        yield Evidence(
            f"the first loss is {figure(start)} times that of a constant guess",
            LOSS_TRAIN.name,
            start,
            FAR_FROM_CHANCE,
            curves.spark(loss.values),
        )


def _symptoms(run: Run) -> tuple[str, ...]:
    keys = run.keys(LOSS_TRAIN)
    curve = curves.read(run.scalar(LOSS_TRAIN, keys[0])) if len(keys) == 1 else None
    if curve is None or len(curve) < 2:
        return ()
    if curve.broke_at is not None or curves.level(curve.values) > curve.values[0]:
        return ("diverging",)
    return ("slow-descent",)


def detect_targets(run: Run) -> Iterator[Finding]:
    call, spread = baseline.only_call(run), baseline.targets(run)
    if call is None or call.function not in baseline.SQUARED or spread is None:
        return
    size, keys = math.hypot(spread.mean, spread.std), run.keys(LOSS_TRAIN)
    if size < LARGE_TARGET or spread.std == 0 or len(keys) != 1:
        return
    curve = curves.read(run.scalar(LOSS_TRAIN, keys[0]))
    if len(curve) < 20:
        return
    left = curves.level(curve.values) / spread.std**2
    learned = left < 0.9 and curve.broke_at is None
    if learned and size < 1000:
        return
    yield RULE.finding(
        severity=Severity.INFO if learned else Severity.WARNING,
        confidence=0.5 if learned else 0.85,
        title=f"The regression targets are of size {figure(size)}, not about 1",
        summary=(
            f"The targets have mean {figure(spread.mean)} and standard deviation {figure(spread.std)}. The output "
            "layer starts near 0 and its updates are made for targets of unit scale, so most of the training goes into "
            "reaching that level."
        ),
        fix=Fix(
            "Standardise the targets with the training set's mean and standard deviation, and undo it on predictions.",
            "mean, std = y_train.mean(), y_train.std(); y_train = (y_train - mean) / std",
        ),
        evidence=[
            Evidence(
                f"targets: mean {figure(spread.mean)}, std {figure(spread.std)}", "target.mean", size, LARGE_TARGET
            ),
            Evidence(
                f"the last loss is {figure(left)} times that of always predicting the mean",
                LOSS_TRAIN.name,
                left,
                0.9,
                curves.spark(curve.values),
            ),
        ],
        first_step=0,
        symptoms=() if learned else ("diverging",) if curve.broke_at is not None else ("slow-descent",),
    )
