from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import LoaderFact, LossCallFact, PredictionsFact, SamplesFact
from torchdoctor.findings import Severity
from torchdoctor.signals import ACCURACY_TRAIN, PRINTED, USER

NAME = "metric-implementation-wrong"
REAL = [0.6, 0.8, 0.9, 0.93, 0.95]
STEPS = [50 * i + 49 for i in range(5)]


def course(reported: list[float], name: str = "val acc", signal: object = PRINTED) -> RunBuilder:
    builder = RunBuilder(300).scalar(signal, reported, key=name, steps=STEPS)
    builder.fact(LossCallFact("cross_entropy", "train", [32, 4], "float32", [32], "int64", classes=4))
    for step, accuracy in zip(STEPS, REAL, strict=True):
        metrics = {"accuracy": accuracy, "balanced_accuracy": accuracy - 0.02, "macro_f1": accuracy - 0.03}
        builder.fact(SamplesFact("validation", "classes", 400, 0.4, 4, round(400 * accuracy), metrics=metrics), step)
    return builder


@pytest.mark.parametrize("signal", [PRINTED, USER])
def test_a_wrong_divisor_shows_as_one_ratio(signal: object) -> None:
    (found,) = findings(course([r / 32 for r in REAL], signal=signal).build(), NAME)
    assert found.severity is Severity.ERROR
    assert "0.0312 times" in found.summary


def test_a_number_of_its_own_is_a_warning() -> None:
    (found,) = findings(course([0.25, 0.27, 0.24, 0.26, 0.25]).build(), NAME)
    assert found.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("reported", "name"),
    [
        (REAL, "val acc"),
        ([100 * r for r in REAL], "val acc"),
        ([r - 0.021 for r in REAL], "validation accuracy"),
        ([r / 2 for r in REAL], "train acc"),
        ([r / 2 for r in REAL], "val top5 acc"),
        ([r / 2 for r in REAL], "val loss"),
        ([0.6, 0.4, 0.9, 0.4, 0.5], "val acc"),
    ],
    ids=["equal", "percent", "balanced", "training", "top-5", "no metric we know", "not in every pass"],
)
def test_what_fits_or_cannot_be_compared_is_silent(reported: list[float], name: str) -> None:
    assert findings(course(reported, name).build(), NAME) == []


@pytest.mark.parametrize("name", ["val acc5", "val_acc_5", "val acc@5", "val top-5 accuracy"])
def test_a_rank_in_the_name_is_another_metric(name: str) -> None:
    assert findings(course([r / 2 for r in REAL], name).build(), NAME) == []


def test_two_evaluation_loaders_cannot_be_told_apart() -> None:
    builder = course([r / 32 for r in REAL])
    for name in ("validation", "test"):
        builder.fact(LoaderFact(name, "validation", 10, 400, 40, 0, False, "Dataset"))
    assert findings(builder.build(), NAME) == []


def test_precision_may_be_the_mean_over_classes() -> None:
    builder = course([0.625] * 5, "val precision")
    for step in STEPS:
        builder.fact(PredictionsFact("validation", 2, 400, [200, 200], [100, 150], [200, 200]), step)
    assert findings(builder.build(), NAME) == []


def test_a_name_without_phase_may_be_the_training_accuracy() -> None:
    reported = [0.3, 0.4, 0.5, 0.6, 0.7]
    builder = course(reported, "accuracy").scalar(ACCURACY_TRAIN, np.linspace(0.25, 0.75, 300))
    assert findings(builder.build(), NAME) == []
