from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import LossCallFact, PredictionsFact, SamplesFact
from torchdoctor.findings import Severity
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION, PRINTED

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


def tagging(f1: float, level: float, rate: float = 0.035) -> RunBuilder:
    run = RunBuilder(300).scalar(LOSS_TRAIN, np.linspace(0.7, level, 300)).optimizer("Adam", lr=1e-3)
    for step in range(50, 300, 50):
        metrics = {"positives": rate, "named": f1 * rate, "micro_f1": f1}
        run.fact(SamplesFact("validation", "multilabel", 400, level, metrics=metrics), step)
    return run


@pytest.mark.parametrize(("f1", "level", "count"), [(0.0, 0.15, 1), (0.3, 0.15, 0), (0.0, 0.08, 0)])
def test_of_rare_labels_none_is_named(f1: float, level: float, count: int) -> None:
    assert len(tagging(f1, level).detect("metric-disagrees-with-loss")) == count


@pytest.mark.parametrize(("naive", "count"), [(0.05, 1), (0.07, 0), (0.9, 0)])
def test_a_forecast_against_the_last_value(naive: float, count: int) -> None:
    run = RunBuilder(300).scalar(LOSS_TRAIN, np.linspace(1.0, 0.05, 300)).optimizer("Adam", lr=1e-3)
    for step in range(50, 300, 25):
        metrics = {"mse": 0.052, "variance": 1.0, "last_value_mse": naive}
        run.fact(SamplesFact("validation", "regression", 400, 0.052, metrics=metrics), step)
    assert len(run.detect("metric-disagrees-with-loss")) == count


@pytest.mark.parametrize(("power", "count"), [(0.3, 1), (2.0, 0)])
def test_a_forecast_that_still_gets_better(power: float, count: int) -> None:
    run = RunBuilder(300).scalar(LOSS_TRAIN, np.linspace(1.0, 0.05, 300)).optimizer("Adam", lr=1e-3)
    for step in range(25, 301, 25):
        mse = 0.1 * (300 / step) ** power
        metrics = {"mse": mse, "variance": 1.0, "last_value_mse": 0.05}
        run.fact(SamplesFact("train", "regression", 160, mse, metrics=metrics), step)
    assert len(run.detect("metric-disagrees-with-loss")) == count


@pytest.mark.parametrize(("name", "f1", "count"), [("val f1", 0.4, 1), ("subset acc", 0.4, 0), ("train f1", 0.4, 0)])
def test_what_the_script_prints_of_many_labels(name: str, f1: float, count: int) -> None:
    run = tagging(f1, 0.15).scalar(PRINTED, 0.01, name, range(50, 300, 50))
    run.scalar(LOSS_VALIDATION, np.linspace(0.6, 0.2, 5), "", range(50, 300, 50))
    assert len(run.detect("metric-disagrees-with-loss")) == count
