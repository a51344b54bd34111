from __future__ import annotations

import numpy as np

from building import RunBuilder, findings
from torchdoctor.facts import LoaderFact, LossCallFact, PredictionsFact, SamplesFact
from torchdoctor.findings import Severity
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION, UPDATE_RATIO

NAME = "inputs-and-labels-unrelated"
RANDOM = np.random.default_rng(0)
MEMORISED = np.concatenate([np.full(50, 2.31), np.linspace(2.3, 0.05, 450)])


def course(train: np.ndarray, correct: int, ratio: float = 1e-3, batches: int = 50) -> RunBuilder:
    builder = RunBuilder(500).scalar(LOSS_TRAIN, train + RANDOM.normal(0, 0.02, 500))
    builder.fact(LossCallFact("cross_entropy", "train", [32, 10], "float32", [32], "int64", classes=10))
    builder.fact(LoaderFact("loader", "train", batches, 1600, 32, 0, True, "TensorDataset"))
    builder.matrix(UPDATE_RATIO, {"fc.weight": ratio}).parameters({"fc.weight": (10, 64)})
    for step in (99, 199, 299, 399, 499):
        predicted = [60] * 10
        hits = [correct // 10] * 10
        builder.fact(PredictionsFact("validation", 10, 600, [60] * 10, hits, predicted), step)
        builder.fact(SamplesFact("validation", "classes", 600, 2.3, 10, correct), step)
    return builder


def test_learned_by_heart_with_validation_at_chance() -> None:
    (found,) = findings(course(MEMORISED, 60).build(), NAME)
    assert found.severity is Severity.ERROR


def test_never_better_than_a_guess_though_it_moves() -> None:
    (found,) = findings(course(np.full(500, 2.3), 60).build(), NAME)
    assert found.severity is Severity.WARNING


def test_a_model_that_stands_still_proves_nothing() -> None:
    assert findings(course(np.full(500, 2.3), 60, ratio=1e-7).build(), NAME) == []


def test_validation_above_chance_is_silent() -> None:
    assert findings(course(MEMORISED, 150).build(), NAME) == []


def test_a_first_walk_that_learns_speaks_against_it() -> None:
    learned = np.concatenate([np.linspace(2.3, 1.0, 50), np.linspace(1.0, 0.05, 450)])
    assert findings(course(learned, 60).build(), NAME) == []


def test_numbers_without_any_relation() -> None:
    builder = RunBuilder(500).scalar(LOSS_TRAIN, np.concatenate([np.full(50, 1.02), np.linspace(1, 0.05, 450)]))
    builder.fact(LossCallFact("mse_loss", "train", [32, 1], "float32", [32, 1], "float32"))
    from torchdoctor.signals import TARGET_MEAN, TARGET_STD

    builder.scalar(TARGET_MEAN, 0.0, "train").scalar(TARGET_STD, 1.0, "train")
    for step in (99, 199, 299, 399):
        metrics = {"r2": -0.1, "variance": 1.0, "prediction_variance": 0.1}
        builder.fact(SamplesFact("validation", "regression", 300, 1.1, metrics=metrics), step)
    (found,) = findings(builder.build(), NAME)
    assert found.severity is Severity.ERROR


def test_learning_by_heart_that_has_only_begun() -> None:
    slow = np.concatenate([np.full(50, 2.31), np.linspace(2.3, 2.15, 450)])
    rising = course(slow, 60).scalar(LOSS_VALIDATION, [2.31, 2.32, 2.34, 2.36, 2.4], steps=[99, 199, 299, 399, 499])
    (found,) = findings(rising.build(), NAME)
    assert found.severity is Severity.WARNING
    following = course(slow, 60).scalar(LOSS_VALIDATION, [2.3, 2.28, 2.25, 2.2, 2.17], steps=[99, 199, 299, 399, 499])
    assert findings(following.build(), NAME) == []


def test_numbers_learned_by_heart_slowly_against_a_rough_guess() -> None:
    from torchdoctor.signals import TARGET_MEAN, TARGET_STD

    losses = np.concatenate([np.full(50, 0.94), np.linspace(0.94, 0.75, 450)])
    losses = losses + 0.1 * np.sin(np.arange(500.0) * 2.4)
    builder = RunBuilder(500).scalar(LOSS_TRAIN, losses)
    builder.fact(LossCallFact("mse_loss", "train", [40, 1], "float32", [40, 1], "float32"))
    builder.fact(LoaderFact("loader", "train", 50, 2000, 40, 0, True, "TensorDataset"))
    builder.scalar(TARGET_MEAN, 0.0, "train").scalar(TARGET_STD, 1.0, "train")
    steps = [99, 199, 299, 399, 499]
    builder.scalar(LOSS_VALIDATION, [0.97, 0.97, 0.98, 1.0, 1.04], steps=steps)
    for step, r2 in zip(steps, (0.0, -0.002, -0.01, -0.03, -0.07), strict=True):
        metrics = {"r2": r2, "variance": 0.97, "prediction_variance": 0.1}
        builder.fact(SamplesFact("validation", "regression", 500, 1.0, metrics=metrics), step)
    (found,) = findings(builder.build(), NAME)
    assert found.severity is Severity.WARNING


def test_one_answer_for_all_of_validation_says_nothing_about_the_labels() -> None:
    run = course(MEMORISED, 60)
    for step in (99, 199, 299, 399, 499):
        run.fact(PredictionsFact("validation", 10, 600, [60] * 10, [60] + [0] * 9, [600] + [0] * 9), step)
    assert findings(run.build(), NAME) == []
