"""What comes out: predictions and the fate of single samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from torchdoctor.facts.base import Fact

TEMPERATURES = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0)


@dataclass(frozen=True)
class PredictionsFact(Fact):
    """Predictions against labels over one validation pass, or over a window of training looks."""

    kind: ClassVar[str] = "predictions"
    phase: str
    classes: int
    samples: int
    support: list[int]
    correct: list[int]
    predicted: list[int]
    confidence: float | None = None


@dataclass(frozen=True)
class SamplesFact(Fact):
    """Predictions sample by sample over one validation pass, a window of training looks, or what the user logged."""

    kind: ClassVar[str] = "samples"
    phase: str
    task: str
    """classes, regression, multilabel"""
    samples: int
    loss: float
    classes: int | None = None
    correct: int | None = None
    logged: bool = False
    """given to doctor.log_predictions"""
    site: str = ""
    """the loss call it was seen at"""
    whole: bool = True
    """every row is a sample (not a token or pixel), and none was left out"""
    metrics: dict[str, float] = field(default_factory=dict)
    """the usual metrics: accuracy, balanced_accuracy, macro_f1, ... or mse, rmse, mae, r2"""
    ece: float | None = None
    """expected calibration error over `bins`"""
    bins: list[list[float]] = field(default_factory=list)
    """by confidence in equal steps from 0 to 1: [samples, mean confidence, share right]"""
    tenths: list[list[float]] = field(default_factory=list)
    """by confidence in groups of equal size, least first: [samples, wrong, mean confidence]"""
    ranks: list[int] = field(default_factory=list)
    """of the wrong ones: how many classes scored above the true one, 1 first; the last counts all beyond"""
    unlikely: int = 0
    """of the wrong ones: those whose true class scored in the lower half of all classes"""
    confused: list[list[int]] = field(default_factory=list)
    """[true class, predicted class, samples], most frequent first"""
    rescaled: list[float] = field(default_factory=list)
    """mean loss with the logits divided by each of TEMPERATURES"""
    worst: list[dict[str, Any]] = field(default_factory=list)
    """samples of the largest loss: {"index" in the order of the pass, "loss", "label", "predicted", "confidence"}"""
    slices: list[dict[str, Any]] = field(default_factory=list)
    """{"by", "low", "high", "samples", "loss", "correct", "spread"}: groups by an attribute of the input or target"""


@dataclass(frozen=True)
class FixedSamplesFact(Fact):
    """The model's outputs for the first few samples of a validation pass, by their fingerprints."""

    kind: ClassVar[str] = "fixed_samples"
    fingerprints: list[int]
    outputs: list[list[float]]


@dataclass(frozen=True)
class SharpnessFact(Fact):
    """Losses on one training batch with noise added to the weights, measured in a forked child."""

    kind: ClassVar[str] = "sharpness"
    loss: float
    """of the batch with the weights as they are, in eval mode"""
    sizes: list[float]
    """of the noise, as shares of the norm of each row of a weight matrix"""
    losses: list[list[float]]
    """for each size, one number a draw"""
    function: str
    samples: int
    weights: int
    """elements that got noise"""
    at_end: bool = False
    """measured when the training was over"""
