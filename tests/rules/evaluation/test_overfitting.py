from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import TRAIN, LossCallFact, PredictionsFact
from torchdoctor.findings import Severity
from torchdoctor.signals import (
    ACCURACY_VALIDATION,
    LOSS_TRAIN,
    LOSS_VALIDATION,
    TARGET_MEAN,
    TARGET_STD,
    WEIGHT_DECAY,
)

NAME = "overfitting"
RANDOM = np.random.default_rng(0)


def course(validation: np.ndarray, train_end: float = 0.02, noise: float = 0.02, scale: float = 1.0) -> RunBuilder:
    steps = 50 * len(validation)
    train = np.geomspace(2.3, train_end, steps) * np.exp(RANDOM.normal(0, 0.1, steps))
    at = range(49, steps, 50)
    noisy = validation + RANDOM.normal(0, noise, len(validation))
    return RunBuilder(steps).scalar(LOSS_TRAIN, scale * train).scalar(LOSS_VALIDATION, scale * noisy, steps=at)


U_TURN = np.concatenate([np.geomspace(2.3, 0.8, 10), np.linspace(0.85, 1.8, 20)])


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_marked_turn_is_a_warning(scale: float) -> None:
    (found,) = findings(course(U_TURN, scale=scale).build(), NAME)
    assert found.severity is Severity.WARNING
    assert 350 <= found.first_step <= 700
    assert found.symptoms == ("train-down-validation-up",)


def test_what_is_told_as_the_best_was_recorded() -> None:
    steps, validation = range(50, 401, 50), np.array([1.856, 1.686, 1.83, 1.9, 2.0, 2.1, 2.12, 2.14])
    builder = RunBuilder(401).scalar(LOSS_TRAIN, np.geomspace(2.3, 0.001, 401))
    (found,) = findings(builder.scalar(LOSS_VALIDATION, validation, steps=steps).build(), NAME)
    assert found.title.startswith("Validation loss has risen from 1.69 to 2.1") and found.title.endswith("step 100")
    assert found.evidence[0].text.startswith("validation loss 1.69 at step 100")
    assert found.evidence[1].text.startswith("training loss 0.345 there, 0.00104 at the end"), "as in the chart"
    assert found.first_step == 100 and "keep the checkpoint of step 100" in found.fix.text


def test_a_lone_low_pass_at_the_end_is_no_best_to_rise_from() -> None:
    steps, validation = range(50, 1501, 50), U_TURN.copy()
    validation[-2] = 0.7
    builder = RunBuilder(1501).scalar(LOSS_TRAIN, np.geomspace(2.3, 0.001, 1501))
    (found,) = findings(builder.scalar(LOSS_VALIDATION, validation, steps=steps).build(), NAME)
    assert found.first_step == 500


def test_a_lone_low_pass_on_the_way_down_is_no_onset() -> None:
    steps, validation = range(50, 1501, 50), U_TURN.copy()
    validation[2] = 0.6
    builder = RunBuilder(1501).scalar(LOSS_TRAIN, np.geomspace(2.3, 0.001, 1501))
    (found,) = findings(builder.scalar(LOSS_VALIDATION, validation, steps=steps).build(), NAME)
    assert found.first_step == 500 and "keep the checkpoint of step 500" in found.fix.text


def test_a_mild_turn_is_an_info() -> None:
    mild = np.concatenate([np.geomspace(2.3, 0.30, 12), np.linspace(0.31, 0.38, 12)])
    assert [f.severity for f in findings(course(mild, noise=0.003).build(), NAME)] == [Severity.INFO]


@pytest.mark.parametrize(
    ("validation", "noise"),
    [
        (np.geomspace(2.3, 0.3, 30), 0.02),
        (np.concatenate([np.geomspace(2.3, 0.3, 15), np.full(15, 0.3)]), 0.03),
        (np.full(30, 0.69), 0.02),
        (np.array([2.0, 1.0, 1.2, 1.3]), 0.0),
    ],
    ids=["falls", "levels off", "flat", "four passes"],
)
def test_no_turn_is_silent(validation: np.ndarray, noise: float) -> None:
    assert findings(course(validation, noise=noise).build(), NAME) == []


def test_noise_does_not_make_a_turn() -> None:
    for seed in range(40):
        random = np.random.default_rng(seed)
        level = np.concatenate([np.geomspace(2.3, 0.5, 8), np.full(12, 0.5)]) + random.normal(0, 0.05, 20)
        assert all(f.severity is Severity.INFO for f in findings(course(level, noise=0).build(), NAME))


def test_a_run_that_diverges_is_not_overfitting() -> None:
    builder = course(U_TURN)
    rising = np.concatenate([np.geomspace(2.3, 0.8, 500), np.linspace(0.8, 9, 1000)])
    assert findings(builder.scalar(LOSS_TRAIN, rising).build(), NAME) == []


def test_fine_tuning_that_gives_little_back_is_at_most_an_info() -> None:
    validation = np.array([0.30, 0.285, 0.28, 0.29, 0.30, 0.31, 0.32, 0.33])
    found = findings(course(validation, train_end=0.05, noise=0.0).build(), NAME)
    assert all(f.severity is Severity.INFO for f in found)


def test_the_fix_depends_on_what_is_there() -> None:
    (plain,) = findings(course(U_TURN).build(), NAME)
    assert "weight_decay" in (plain.fix.code or "")
    (decayed,) = findings(course(U_TURN).scalar(WEIGHT_DECAY, 0.01, key="0.0").build(), NAME)
    assert "torch.save" in (decayed.fix.code or "")


def test_accuracy_is_told_where_known() -> None:
    run = course(U_TURN).scalar(ACCURACY_VALIDATION, np.linspace(0.5, 0.7, 30), steps=range(49, 1500, 50)).build()
    assert any("accuracy" in e.text for e in findings(run, NAME)[0].evidence)


@pytest.mark.parametrize(("right", "severity"), [(60, Severity.WARNING), (90, Severity.INFO)])
def test_a_small_rise_counts_where_training_is_known_by_heart(right: int, severity: Severity) -> None:
    rise = np.concatenate([np.geomspace(2.3, 1.0, 10), np.linspace(1.0, 1.25, 20)])
    run = course(rise, noise=0.003)
    run.fact(PredictionsFact("train", 2, 200, [100, 100], [100, 100], [100, 100]), 1400)
    run.fact(PredictionsFact("validation", 2, 200, [100, 100], [right, right], [100, 100]), 1449)
    assert [f.severity for f in findings(run.build(), NAME)] == [severity]


@pytest.mark.parametrize(("level", "told"), [(0.5, True), (0.1, False)], ids=["poor", "good"])
def test_numbers_learned_by_heart_are_told_without_a_turn(level: float, told: bool) -> None:
    flat = np.concatenate([np.geomspace(1.0, level, 10), np.full(20, level)])
    builder = course(flat, train_end=1e-4, noise=0.002)
    builder.scalar(TARGET_MEAN, 0.0, TRAIN).scalar(TARGET_STD, 1.0, TRAIN)
    builder.fact(LossCallFact("mse_loss", TRAIN, [32, 1], "float32", [32, 1], "float32", reduction="mean"))
    assert [f.severity for f in findings(builder.build(), NAME)] == ([Severity.WARNING] if told else [])
