from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, detect, findings
from torchdoctor.facts import FeaturesFact, InputsFact, LoaderFact
from torchdoctor.findings import RuledOut, Severity
from torchdoctor.signals import INPUT_MEAN, LOSS_TRAIN, LOSS_VALIDATION

NAME = "train-validation-mismatch"
FEATURES = 10


def record(mean: np.ndarray | float, std: np.ndarray | float, *, gap: float = 1.0, group: str = "val") -> RunBuilder:
    """Training inputs are standardised; validation has this mean and standard deviation."""
    run = (
        RunBuilder(200)
        .scalar(INPUT_MEAN, 0.0, "train", range(20))
        .scalar(LOSS_TRAIN, 0.5)
        .scalar(LOSS_VALIDATION, 0.5 * gap, steps=[49, 99, 149, 199])
    )
    for step in range(10):
        fact = InputsFact(
            "train", "input", [32, FEATURES], "float32", feature_mean=[0.0] * FEATURES, feature_std=[1.0] * FEATURES
        )
        run.fact(fact, step)
    means, stds = np.broadcast_to(mean, FEATURES).tolist(), np.broadcast_to(std, FEATURES).tolist()
    return run.fact(FeaturesFact("validation", group, 200, [100, FEATURES], means, stds))


@pytest.mark.parametrize(("mean", "std"), [(5.0, 6.0), (0.0, 0.05), (130.0, 60.0)])
def test_another_scale(mean: float, std: float) -> None:
    (found,) = findings(record(mean, std).build(), NAME)
    assert found.severity in (Severity.ERROR, Severity.WARNING)


def test_a_mean_that_is_off_alone_is_a_warning() -> None:
    assert [f.severity for f in findings(record(5.0, 1.0).build(), NAME)] == [Severity.WARNING]
    assert [f.severity for f in findings(record(5.0, 6.0).build(), NAME)] == [Severity.ERROR]


@pytest.mark.parametrize(("mean", "std"), [(0.1, 1.1), (0.0, 1.2), (0.0, 0.85)])
def test_sampling_and_augmentation(mean: float, std: float) -> None:
    assert [type(s) for s in detect(record(mean, std).build(), NAME)] == [RuledOut]


def test_a_smaller_difference_counts_where_validation_is_bad_from_the_start() -> None:
    assert findings(record(0.3, 0.7).build(), NAME) == []
    assert len(findings(record(0.3, 0.7, gap=4.0).build(), NAME)) == 1


def test_one_column_of_many() -> None:
    mean = np.zeros(FEATURES)
    mean[3] = 40.0
    (found,) = findings(record(mean, 1.0).build(), NAME)
    assert "feature 3" in found.evidence[1].text
    wide = np.ones(FEATURES)
    wide[3] = 6.0
    assert findings(record(0.0, wide).build(), NAME) == []


def test_a_training_loader_is_no_validation_set() -> None:
    run = record(5.0, 6.0, group="loader").fact(LoaderFact("loader", "train", 3, 96, 32, 0, True, "Subset"))
    assert detect(run.build(), NAME) == []
