from __future__ import annotations

import numpy as np

from building import RunBuilder, findings
from torchdoctor.facts import LossCallFact, PredictionsFact, SamplesFact
from torchdoctor.findings import Severity
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION

NAME = "metric-disagrees-with-loss"
FALLING = np.linspace(5.0, 0.5, 300)


def course(correct: list[int], validation: list[float], parts: int = 1) -> RunBuilder:
    builder = RunBuilder(300).scalar(LOSS_TRAIN, FALLING)
    steps = [50 * i + 49 for i in range(len(correct))]
    builder.scalar(LOSS_VALIDATION, validation, steps=steps)
    for i in range(parts):
        name = "cross_entropy" if i == 0 else "mse_loss"
        classes = 4 if i == 0 else None
        shape = [32] if i == 0 else [32, 64]
        builder.fact(LossCallFact(name, "train", [32, 4], "float32", shape, "int64", classes=classes, line=i))
    for step, hits in zip(steps, correct, strict=True):
        counts = [hits // 4] * 4
        builder.fact(PredictionsFact("validation", 4, 400, [100] * 4, counts, [100] * 4), step)
        builder.fact(SamplesFact("validation", "classes", 400, 1.38, 4, hits), step)
    return builder


def test_a_part_of_the_loss_that_drowns() -> None:
    (found,) = findings(course([100] * 6, [2.2, 2.15, 2.12, 2.11, 2.1, 2.1], parts=2).build(), NAME)
    assert found.severity is Severity.WARNING
    assert "2 parts" in found.summary


def test_one_loss_that_falls_without_any_gain() -> None:
    assert findings(course([100] * 6, [2.2, 1.9, 1.7, 1.6, 1.5, 1.4]).build(), NAME)


def test_validation_that_does_not_fall_is_not_this() -> None:
    assert findings(course([100] * 6, [1.4, 1.5, 1.6, 1.8, 2.0, 2.2]).build(), NAME) == []


def test_accuracy_that_rises_is_silent() -> None:
    assert findings(course([120, 180, 240, 280, 300, 320], [2.2, 1.9, 1.7, 1.6, 1.5, 1.4]).build(), NAME) == []


def test_confidence_alone_is_an_info() -> None:
    found = findings(course([300] * 6, [2.2, 1.9, 1.7, 1.6, 1.5, 1.4]).build(), NAME)
    assert [f.severity for f in found] == [Severity.INFO]
