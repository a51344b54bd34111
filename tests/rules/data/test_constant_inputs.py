from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, detect, findings
from torchdoctor.facts import InputsFact, LossCallFact
from torchdoctor.findings import Proof, RuledOut, Severity
from torchdoctor.signals import BATCH_DISTINCT, BATCH_SIZE, BATCH_SPREAD, LABEL_CLASSES, LOSS_TRAIN

NAME = "constant-inputs"
LOOKS = list(range(10))


def record(distinct: float, spread: float = 0.9, classes: float = 10.0, loss: float = 0.5) -> RunBuilder:
    return (
        RunBuilder(100)
        .scalar(BATCH_DISTINCT, distinct, "train", LOOKS)
        .scalar(BATCH_SPREAD, spread, "train", LOOKS)
        .scalar(BATCH_SIZE, 32.0, "train", LOOKS)
        .scalar(LABEL_CLASSES, classes, "train", LOOKS)
        .scalar(LOSS_TRAIN, loss)
        .fact(LossCallFact("cross_entropy", "train", [32, 10], "float32", [32], "int64", "mean", classes=10))
    )


def table(low: np.ndarray, high: np.ndarray, mean: np.ndarray) -> InputsFact:
    return InputsFact(
        "train",
        "input",
        [256, len(low)],
        "float32",
        feature_dim=1,
        feature_mean=mean.tolist(),
        feature_std=((high - low) / 4).tolist(),
        feature_low=low.tolist(),
        feature_high=high.tolist(),
    )


def test_all_samples_of_every_batch_are_equal() -> None:
    (found,) = findings(record(1 / 32, spread=0.0).build(), NAME)
    assert found.severity is Severity.ERROR and found.proof is Proof.STRUCTURE


def test_equal_samples_with_equal_targets_are_not_judged() -> None:
    assert detect(record(1 / 32, classes=1.0).build(), NAME) == []


@pytest.mark.parametrize(("spread", "loss", "count"), [(1e-5, 0.5, 1), (0.01, 2.3, 1), (0.01, 0.5, 0), (0.3, 2.3, 0)])
def test_samples_that_hardly_differ(spread: float, loss: float, count: int) -> None:
    assert len(findings(record(1.0, spread, loss=loss).build(), NAME)) == count


def test_most_columns_are_constant() -> None:
    low, high = np.full(16, -2.0), np.full(16, 2.0)
    low[6:], high[6:] = -1.0, -1.0
    (found,) = findings(record(1.0).fact(table(low, high, (low + high) / 2)).build(), NAME)
    assert found.title.startswith("10 of 16")


def test_sparse_columns_are_zero_for_long() -> None:
    low, high = np.zeros(16), np.zeros(16)
    high[:4] = 3.0
    said = detect(record(1.0).fact(table(low, high, 0.01 * high)).build(), NAME)
    assert [type(s) for s in said] == [RuledOut]
