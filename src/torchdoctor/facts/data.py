"""What is fed: loaders, batches, labels, splits, and what training and validation share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torchdoctor.facts.base import Fact


@dataclass(frozen=True)
class LoaderFact(Fact):
    kind: ClassVar[str] = "loader"
    name: str
    phase: str
    batches: int | None
    samples: int | None
    batch_size: int | None
    workers: int
    shuffled: bool | None
    """by its sampler's type; None for an iterable dataset or a sampler of the user's"""
    dataset: str
    pin_memory: bool = False


@dataclass(frozen=True)
class InputsFact(Fact):
    """One look at a batch as the model got it. Statistics over finite elements.

    `features` describes the columns of a 2-D input or the channels (dimension 1) of a 3-D to 5-D one, at most 256
    of them: lists of mean, std, low, high. None for token ids (integer inputs).
    """

    kind: ClassVar[str] = "inputs"
    phase: str
    role: str
    """"input" or "target" """
    shape: list[int]
    dtype: str
    mean: float | None = None
    std: float | None = None
    low: float | None = None
    high: float | None = None
    nonfinite: int = 0
    feature_dim: int | None = None
    feature_mean: list[float] | None = None
    feature_std: list[float] | None = None
    feature_low: list[float] | None = None
    feature_high: list[float] | None = None
    fingerprints: list[int] = field(default_factory=list)
    """a 64-bit hash of each sample's bytes, at most 256 samples"""
    tensors: int = 1
    """tensors that the model got in that call, of which this is the first; of the others only NaN is counted"""


@dataclass(frozen=True)
class LabelsFact(Fact):
    """Label counts of integer targets since the fact before it."""

    kind: ClassVar[str] = "labels"
    phase: str
    counts: dict[str, int]
    batches: int


@dataclass(frozen=True)
class MembershipFact(Fact):
    """Fingerprints of samples that were trained on or validated, those new since the fact before it."""

    kind: ClassVar[str] = "membership"
    phase: str
    group: str
    """the loader, or the position of the pass in its validation ("#0"); "" for all of training"""
    kept: list[int]
    """of all fingerprints those that, as unsigned numbers, lie below `rate` of their range"""
    rate: float
    seen: int
    """samples fingerprinted so far, in `batches` batches"""
    batches: int
    repeats: int
    """samples that occurred again in a batch (training) or in a validation that should hold each once"""
    pairs: int
    """pairs of samples among which `repeats` were found"""
    code: str = ""
    """the user's line that calls the model in this validation"""


@dataclass(frozen=True)
class FeaturesFact(Fact):
    """Mean and standard deviation of each feature over the first validations, all their watched batches together."""

    kind: ClassVar[str] = "features"
    phase: str
    group: str
    samples: int
    shape: list[int]
    """of a batch; integer inputs (token ids) count as one feature"""
    mean: list[float]
    std: list[float]


@dataclass(frozen=True)
class TokensFact(Fact):
    """How often token ids occurred so far, counted by their remainder."""

    kind: ClassVar[str] = "tokens"
    phase: str
    group: str
    samples: int
    counts: list[int]
    """of ids whose remainder by the length of this list is 0, 1, 2 ..."""


@dataclass(frozen=True)
class ValidationBatchFact(Fact):
    """The first samples of one of the first batches of a validation: fingerprints of inputs and targets, in order."""

    kind: ClassVar[str] = "validation_batch"
    group: str
    number: int
    """of the validation"""
    position: int
    inputs: list[int]
    targets: list[int] = field(default_factory=list)
    target_shape: list[int] | None = None


@dataclass(frozen=True)
class SplitFact(Fact):
    """What a loader draws from: its place in the stored data, and what its workers would draw alike."""

    kind: ClassVar[str] = "split"
    loader: str
    base: str
    """equal for loaders over the same stored data"""
    samples: int
    indices: list[int]
    """of the indices into the base those that are divisible by `every`"""
    every: int
    workers: int = 0
    generators: list[str] = field(default_factory=list)
    """random generators in the dataset, used after its creation, that every worker gets the same copy of"""
    seeded_alike: str | None = None
    """the worker_init_fn that seeds every worker with the same number"""
    iterable: bool = False
    sharded: bool | None = None
    """an iterable dataset that asks which worker it is in"""


@dataclass(frozen=True)
class LeakageFact(Fact):
    """How well single input features tell the target, over the training batches looked at so far."""

    kind: ClassVar[str] = "leakage"
    task: str
    """classes or regression"""
    samples: int
    shape: list[int]
    """of a sample; features count its elements"""
    features: list[int]
    """those that tell most, first the best"""
    told: list[float]
    """share of their variance between classes, or squared correlation with the target"""
    median: float
    """of all features"""
    beside: float | None = None
    """tokens only: how surely positions other than the best tell the class as well, in standard deviations"""
