"""What predictions are judged by, for any task: the parts of an Evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from torchdoctor.instruments.evaluating.calibration import Calibration
from torchdoctor.instruments.evaluating.metrics import Estimate, Ints
from torchdoctor.instruments.evaluating.residuals import Residuals

DENSE_CLASSES = 1000
"""Above it there is no confusion matrix (a million cells) and no AUROC by class."""


def call(name: str) -> str:
    """A bare number is no name."""
    return f"class {name}" if name.isdigit() else name


@dataclass(frozen=True)
class Choices:
    """What the user may set."""

    k: tuple[int, ...]
    top: tuple[int, ...]
    level: float
    bins: int
    binning: str


@dataclass(frozen=True)
class ClassScore:
    """One class, or one label of several."""

    name: str
    support: int
    predicted: int
    precision: Estimate
    recall: Estimate
    f1: Estimate
    auroc: Estimate | None = None
    average_precision: float | None = None
    worse: bool = False
    """found less often than the others, beyond chance"""


@dataclass(frozen=True)
class NumberScore:
    """One of several predicted numbers."""

    name: str
    r2: Estimate
    rmse: Estimate
    mae: Estimate


@dataclass(frozen=True)
class Confused:
    """Samples of one class that were taken for another."""

    true: str
    predicted: str
    count: int
    support: int


@dataclass(frozen=True)
class Judged:
    """All of it, for any task."""

    metrics: dict[str, Estimate]
    elements: int
    baseline: float
    baseline_text: str
    class_names: tuple[str, ...] = ()
    confusion: Ints | None = None
    confused: tuple[Confused, ...] = ()
    classes: tuple[ClassScore, ...] = ()
    numbers: tuple[NumberScore, ...] = ()
    calibration: Calibration | None = None
    residuals: Residuals | None = None
    notes: tuple[str, ...] = ()
