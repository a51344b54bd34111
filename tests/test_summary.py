from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import signals
from torchdoctor.facts import HealthFact
from torchdoctor.run import Trace
from torchdoctor.summary import summary, trend

RANDOM = np.random.default_rng(0)
NOISE = 0.05 * RANDOM.standard_normal(400)
FALL = np.exp(-np.arange(400) / 150)


def test_figures_of_a_run() -> None:
    loss = np.linspace(2.0, 0.5, 100)
    loss[60] = 0.1
    norm = np.where(np.arange(100) % 4 == 0, 5.0, 0.5)
    run = (
        RunBuilder(steps=100)
        .scalar(signals.LOSS_TRAIN, loss)
        .scalar(signals.LOSS_VALIDATION, [1.5, 0.9, 1.1], steps=[33, 66, 99])
        .scalar(signals.ACCURACY_VALIDATION, [0.5, 0.8], steps=[33, 66])
        .scalar(signals.GRADIENT_GLOBAL_L2, 3.0, key="0")
        .scalar(signals.LEARNING_RATE, np.linspace(0.1, 0.01, 100), key="0.0")
        .scalar(signals.CLIP_NORM, norm)
        .scalar(signals.CLIP_THRESHOLD, 1.0)
        .scalar(signals.SAMPLES_PER_SECOND, 640.0)
        .scalar(signals.TIME_STEP, 0.1)
        .fact(HealthFact(overhead=0.02, budget=0.03))
        .build()
    )
    figures = summary(run)
    assert figures["steps"] == 100
    assert figures["first_loss"] == 2.0
    assert figures["final_loss"] == 0.5
    assert (figures["best_loss"], figures["best_step"]) == (0.1, 60)
    assert figures["trend"] == "falling"
    assert (figures["best_validation_loss"], figures["best_validation_step"]) == (0.9, 66)
    assert figures["final_validation_loss"] == 1.1
    assert figures["final_validation_accuracy"] == 0.8
    assert figures["mean_gradient_norm"] == 3.0
    assert figures["learning_rate"] == pytest.approx(0.01)
    assert figures["clip_frequency"] == 0.25
    assert figures["nonfinite_events"] == 0
    assert figures["samples_per_second"] == 640
    assert figures["overhead"] == 0.02


def test_an_empty_run_has_no_figures_but_says_so() -> None:
    figures = summary(RunBuilder(steps=0).build())
    assert figures["final_loss"] is None
    assert figures["clip_frequency"] is None
    assert figures["nonfinite_events"] == 0
    assert figures["trend"] == "too short to tell"


def test_nonfinite_steps_are_counted_once() -> None:
    loss = np.ones(50)
    loss[[10, 20]] = np.nan
    gradients = np.zeros(50)
    gradients[[20, 30]] = 4
    run = (
        RunBuilder(steps=50)
        .scalar(signals.LOSS_TRAIN, loss)
        .matrix(signals.GRADIENT["nonfinite"], {"a": 0.0, "b": gradients})
        .build()
    )
    assert summary(run)["nonfinite_events"] == 3


def test_a_clip_norm_that_is_not_finite_counts_as_clipped() -> None:
    run = RunBuilder(2).scalar(signals.CLIP_NORM, [np.nan, 0.5]).scalar(signals.CLIP_THRESHOLD, 1.0).build()
    assert summary(run)["clip_frequency"] == 0.5


def test_of_several_losses_the_first_is_told() -> None:
    run = RunBuilder(9).scalar(signals.LOSS_TRAIN, 1.0, key="0").scalar(signals.LOSS_TRAIN, 2.0, key="1").build()
    assert summary(run)["loss_key"] == "0"
    assert summary(run)["final_loss"] == 1.0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (FALL + NOISE, "falling"),
        (np.full(400, 2.3) + NOISE, "flat"),
        (np.where(np.arange(400) < 100, 2.0, 1.0) + NOISE, "fell, then flat"),
        (1 / FALL + NOISE, "rising"),
        (np.concatenate([np.linspace(2, 0.5, 250), np.linspace(0.5, 1.8, 150)]) + NOISE, "fell, then rose"),
        (np.interp(np.arange(400), [0, 60, 400], [1.0, 6.0, 1.6]) + NOISE, "rose, then falling"),
        (np.array([2.0, 1.0, 0.5]), "too short to tell"),
        (np.append(FALL, np.nan), "not finite"),
        (np.full(400, 1.0), "flat"),
    ],
)
def test_trends_in_words(values: np.ndarray, words: str) -> None:
    assert trend(Trace.raw(range(len(values)), values)) == words


def test_what_was_logged_stands_in_for_what_was_not_seen() -> None:
    run = RunBuilder(2).scalar(signals.USER, [0.5, 0.75], "val/accuracy").scalar(signals.USER, 0.3, "val_loss").build()
    figures = summary(run)
    assert figures["final_validation_accuracy"] == 0.75
    assert figures["final_validation_loss"] == pytest.approx(0.3)
    assert "loss_key" not in figures


def test_of_folds_the_last_one_has_the_trend() -> None:
    fold = np.linspace(2.0, 0.1, 40)
    builder = RunBuilder(120).scalar(signals.LOSS_TRAIN, np.tile(fold, 3))
    for number in range(3):
        steps = list(range(40 * number, 40 * number + 40))
        builder.scalar(signals.LEARNING_RATE, 1e-3, f"{number}.0", steps=steps)
    assert summary(builder.build())["trend"] == "falling in the last of 3 trainings"
