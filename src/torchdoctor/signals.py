"""What is measured: every signal by name, with its unit, its shape and what taking it costs.

A signal has a scope, which says how it is stored and read back:

    STEP       one number a step and key              Run.scalar(signal, key)   (S,)
    PARAMETER  one number a step and parameter        Run.matrix(signal)        (S, T)
    MODULE     one number a step and module           Run.matrix(signal)        (S, T)

Keys of STEP signals: losses and rates are kept apart by what they belong to. An optimizer's groups have the
keys "0.0", "0.1", "1.0" (optimizer, group); batches "train", "validation" (the phase); the rest use "".
What is not a number a step (wiring, call order, shapes) is a fact: see facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise


class Scope(str, Enum):
    STEP = "step"
    PARAMETER = "parameter"
    MODULE = "module"


class Cadence(str, Enum):
    """When a signal is taken."""

    EVERY = "every step"
    GOVERNED = "as often as the overhead budget allows"
    EARLY = "on the first steps, then rarely"
    PHASE = "once a validation pass"


@dataclass(frozen=True)
class Signal:
    name: str
    unit: str
    scope: Scope
    cadence: Cadence
    about: str


ALL: dict[str, Signal] = {}


def _signal(name: str, unit: str, scope: Scope, cadence: Cadence, about: str) -> Signal:
    signal = Signal(name, unit, scope, cadence, about)
    ALL[name] = signal
    return signal


def _step(name: str, unit: str, cadence: Cadence, about: str) -> Signal:
    return _signal(name, unit, Scope.STEP, cadence, about)


_EVERY, _GOVERNED, _EARLY, _PHASE = Cadence.EVERY, Cadence.GOVERNED, Cadence.EARLY, Cadence.PHASE

LOSS_TRAIN = _step(
    "loss.train",
    "loss",
    _EVERY,
    "loss of the step, before any scaler and before it is divided for accumulation; the mean over its backward passes; "
    "key: the optimizer whose parameters it moves, '' for all losses of a one-optimizer loop",
)
LOSS_VALIDATION = _step("loss.validation", "loss", _PHASE, "mean loss of a validation pass, by samples")
ACCURACY_TRAIN = _step("accuracy.train", "share", _GOVERNED, "share of the batch classified right")
ACCURACY_VALIDATION = _step("accuracy.validation", "share", _PHASE, "share of a validation pass right")
CONFIDENCE_TRAIN = _step("confidence.train", "share", _GOVERNED, "mean probability of the predicted class")
CONFIDENCE_VALIDATION = _step("confidence.validation", "share", _PHASE, "the same in validation")
LOSS_EVENTS = _step("loss.backwards", "count", _EVERY, "number of backward calls in the step")
LOSS_CALLED = _step(
    "loss.called",
    "loss",
    _GOVERNED,
    "mean over elements that torch's loss functions gave in the step, before the script scaled, negated or summed it",
)
GRAPH_NODES = _step("graph.nodes", "count", _EARLY, "operators in the graph behind the loss")
GRAPH_REACH = _step("graph.reach", "steps", _EARLY, "how many steps the graph behind the loss reaches back")
GRAPHS_KEPT = _step("graph.kept", "count", _EARLY, "earlier looks whose loss still holds its graph")
GRAPHS_MARKED = _step("graph.marked", "count", _EARLY, "earlier looks that were marked to see whether they are kept")

LEARNING_RATE = _step("group.lr", "1", _EVERY, "learning rate; key: optimizer.group")
WEIGHT_DECAY = _step("group.weight_decay", "1", _EVERY, "weight decay; key: optimizer.group")
MOMENTUM = _step("group.momentum", "1", _EVERY, "momentum or beta1; key: optimizer.group")

GRADIENT_GLOBAL_L2 = _step(
    "gradient.global_l2",
    "norm",
    _GOVERNED,
    "norm of all gradients as applied (after clipping); key: optimizer",
)
WEIGHT_GLOBAL_L2 = _step("weight.global_l2", "norm", _GOVERNED, "norm of all weights; key: optimizer")
GRADIENTS_CLEARED = _step(
    "gradients.cleared",
    "0 or 1",
    _EVERY,
    "at the first backward after a step: 1 if gradients were None or zero, 0 if the last ones were still there; "
    "key: optimizer",
)
GRADIENT_COSINE = _step(
    "gradient.cosine",
    "cosine",
    _GOVERNED,
    "between the gradients of this step and the one before it; key: optimizer",
)
CLIP_NORM = _step("clip.norm", "norm", _EVERY, "gradient norm before clipping by norm")
CLIP_THRESHOLD = _step("clip.threshold", "norm", _EVERY, "the threshold it was clipped to")
SCALE = _step("scaler.scale", "1", _EVERY, "the gradient scaler's scale")
STEP_SKIPPED = _step("scaler.skipped", "0 or 1", _EVERY, "1 where the scaler skipped the update")

TIME_STEP = _step("time.step", "s", _EVERY, "wall time from one update to the next, validation left out")
TIME_DATA = _step("time.data", "s", _EVERY, "waiting for the loader")
TIME_FORWARD = _step("time.forward", "s", _EVERY, "from the batch to backward's start")
TIME_BACKWARD = _step("time.backward", "s", _EVERY, "inside backward")
TIME_OPTIMIZER = _step("time.optimizer", "s", _EVERY, "inside optimizer.step")
TIME_OWN = _step("time.torchdoctor", "s", _EVERY, "inside our own hooks")
SAMPLES_PER_SECOND = _step("rate.samples", "1/s", _EVERY, "samples a second")
MEMORY_HOST = _step("memory.host", "bytes", _GOVERNED, "resident memory of the process")
MEMORY_DEVICE = _step("memory.device", "bytes", _GOVERNED, "memory allocated on the device")

INPUT_MEAN = _step("input.mean", "1", _GOVERNED, "mean of the inputs; key: phase")
INPUT_STD = _step("input.std", "1", _GOVERNED, "standard deviation of the inputs; key: phase")
INPUT_MIN = _step("input.min", "1", _GOVERNED, "smallest input; key: phase")
INPUT_MAX = _step("input.max", "1", _GOVERNED, "largest input; key: phase")
INPUT_NONFINITE = _step("input.nonfinite", "count", _GOVERNED, "NaN or Inf in the inputs; key: phase")
TARGET_MEAN = _step("target.mean", "1", _GOVERNED, "mean of the targets; key: phase")
TARGET_STD = _step("target.std", "1", _GOVERNED, "standard deviation of the targets; key: phase")
TARGET_NONFINITE = _step("target.nonfinite", "count", _GOVERNED, "NaN or Inf in the targets; key: phase")
LABEL_ENTROPY = _step("label.entropy", "nats", _GOVERNED, "entropy of the labels in one batch; key: phase")
LABEL_CLASSES = _step("label.classes", "count", _GOVERNED, "distinct labels in one batch; key: phase")
BATCH_SIZE = _step("batch.size", "count", _GOVERNED, "samples in the batch; key: phase")
BATCH_DISTINCT = _step("batch.distinct", "share", _GOVERNED, "distinct samples over samples of the batch; key: phase")
BATCH_REPEATED = _step(
    "batch.repeated", "share", _GOVERNED, "share of the samples that the batch looked at before held, too; key: phase"
)
BATCH_PART = _step(
    "batch.part",
    "share",
    _GOVERNED,
    "samples of the batch over those in the memory it was cut from: 1 for a tensor of its own; 2 for the very object "
    "that the look before saw; key: phase",
)
BATCH_BITS = _step(
    "batch.bits",
    "bits",
    _GOVERNED,
    "sum over a few elements of log2 of their different values in the batch: how improbable equal samples are; "
    "floating-point inputs only; key: phase",
)
BATCH_SPREAD = _step(
    "batch.spread",
    "1",
    _GOVERNED,
    "standard deviation over samples, element by element, over the root mean square of all: 0 for equal samples; "
    "key: phase",
)

USER = _step("user", "as logged", _GOVERNED, "what doctor.log(...) was given; key: the name")
PRINTED = _step("printed", "as printed", _PHASE, "metrics that the script printed or logged as text; key: the name")


def _parameter(role: str, name: str, unit: str, cadence: Cadence, about: str) -> Signal:
    return _signal(f"{role}.{name}", unit, Scope.PARAMETER, cadence, about)


STATISTICS: tuple[str, ...] = ("l2", "mean", "std", "absmax", "absmean", "zeros", "tiny", "nonfinite")
"""The columns of a tensor's statistics, in this order.

l2, mean, std, absmax, absmean are over the finite elements; zeros is the share of exact zeros; tiny the share
of non-zero elements with |x| < TINY; nonfinite the count of NaN and Inf.
"""

TINY = 1e-8
"""Below this an element is near zero: Adam's default eps, under which its update shrinks."""

_STATISTIC_ABOUT = {
    "l2": ("norm", "Euclidean norm"),
    "mean": ("1", "mean"),
    "std": ("1", "standard deviation"),
    "absmax": ("1", "largest absolute value"),
    "absmean": ("1", "mean absolute value"),
    "zeros": ("share", "share of exact zeros"),
    "tiny": ("share", f"share of non-zero elements under {TINY:g}"),
    "nonfinite": ("count", "number of NaN and Inf"),
}
GRADIENT = {
    k: _parameter("gradient", k, u, _GOVERNED, f"{a} of the gradient as applied")
    for k, (u, a) in _STATISTIC_ABOUT.items()
}
WEIGHT = {k: _parameter("weight", k, u, _GOVERNED, f"{a} of the weight") for k, (u, a) in _STATISTIC_ABOUT.items()}
GRADIENT_L2, WEIGHT_L2 = GRADIENT["l2"], WEIGHT["l2"]
UPDATE_RATIO = _parameter(
    "update", "ratio", "1", _GOVERNED, "norm of the step's change over norm of the weight before it"
)
UPDATE_LOST = _parameter(
    "update",
    "lost",
    "share",
    _GOVERNED,
    "of the elements with a gradient the share that the step left bit for bit as they were; 16-bit weights only, NaN "
    "for others",
)
WEIGHT_UNIT_SPREAD = _parameter(
    "weight",
    "unit_spread",
    "1",
    _EARLY,
    "largest difference between output units over the largest weight: 0 if all units are equal; "
    "NaN for vectors and single units",
)
GRADIENT_UNIT_SPREAD = _parameter(
    "gradient", "unit_spread", "1", _EARLY, "the same for the gradient; NaN where the gradient is all zero"
)


def _module(name: str, unit: str, about: str) -> Signal:
    return _signal(f"activation.{name}", unit, Scope.MODULE, _GOVERNED, about)


ACTIVATION = {
    "mean": _module("mean", "1", "mean of the output"),
    "std": _module("std", "1", "standard deviation of the output"),
    "absmax": _module("absmax", "1", "largest absolute value of the output"),
    "zeros": _module("zeros", "share", "share of exact zeros in the output"),
    "saturated": _module(
        "saturated",
        "share",
        "share of a sigmoid's, tanh's or softmax's outputs within 1 % of its range from a limit; NaN for others",
    ),
    "dead": _module(
        "dead",
        "share",
        "share of units (channels) whose output was zero for every sample of every batch in the recent window "
        "of looks; NaN for what is not a ReLU-like activation",
    ),
    "nonfinite": _module("nonfinite", "count", "number of NaN and Inf in the output"),
}

RESIDUAL_AGREEMENT = _step(
    "residual.agreement",
    "share",
    _GOVERNED,
    "how far the residuals of nearest neighbours in a training batch agree (of a model that reconstructs its input: "
    "those of its outputs): 0 for noise, towards 1 for structure",
)
NORM_SAMPLES = _signal(
    "norm.samples",
    "count",
    Scope.MODULE,
    _GOVERNED,
    "samples over which a batch normalisation in train mode took its statistics",
)
NORM_NOISE = _signal(
    "norm.noise",
    "1",
    Scope.MODULE,
    _GOVERNED,
    "how far a batch's statistics stray from the running ones, mean over channels: squared distance of the mean over "
    "the variance, or half the squared relative error of the variance, whichever is larger; about 1/n for n values",
)
REPRESENTATION_SPREAD = _signal(
    "representation.spread",
    "1",
    Scope.MODULE,
    _GOVERNED,
    "standard deviation over samples over root mean square: 0 if all samples give the same; of outputs: of their "
    "directions",
)
REPRESENTATION_RANK = _signal(
    "representation.rank",
    "count",
    Scope.MODULE,
    _GOVERNED,
    "effective number of directions over samples (participation ratio of the covariance's eigenvalues)",
)
ATTENTION = {
    name: _signal(f"attention.{name}", unit, Scope.MODULE, _GOVERNED, about)
    for name, unit, about in (
        ("entropy", "share", "entropy of the attention weights over that of uniform ones, mean over heads and queries"),
        ("entropy_low", "share", "the same for the head with the lowest"),
        ("entropy_high", "share", "the same for the head with the highest"),
        ("logit", "1", "largest absolute attention logit, where queries and keys are known; else NaN"),
        ("empty", "share", "share of queries from which a mask hides every key; NaN where no mask is seen"),
        ("padded", "share", "share of keys that are padding; NaN where none is found in the inputs"),
        ("on_padding", "share", "attention weight that real queries give to padding; NaN where there is none"),
        ("causal", "0 or 1", "1 where no query attends to a later key"),
    )
}

HISTOGRAM_EXPONENTS = (-36, 12)
"""Histograms count |x| in powers of two: one bin below 2**low, one for each power, one from 2**high on,
first for negative values (largest magnitude first), then exact zeros, then positive ones."""

HISTOGRAM_BINS = 2 * (HISTOGRAM_EXPONENTS[1] - HISTOGRAM_EXPONENTS[0] + 2) + 1


def histogram_edges() -> list[tuple[float, float]]:
    """(low, high) of each histogram bin, in order; the bin of exact zeros is (0.0, 0.0).

    A bin holds the magnitudes from its smaller edge (included) to its larger one (left out), so a negative bin is
    low < x <= high and a positive one low <= x < high; the two at zero leave zero itself out.
    """
    low, high = HISTOGRAM_EXPONENTS
    magnitudes = [0.0, *(2.0**e for e in range(low, high + 1)), float("inf")]
    positive = list(pairwise(magnitudes))
    return [(-b, -a or 0.0) for a, b in reversed(positive)] + [(0.0, 0.0)] + positive


def lookup(name: str) -> Signal:
    """The signal of that name; KeyError if there is none."""
    return ALL[name]
