"""Underfitting, noisy validation, and validation better than training."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import DropoutFact, GraphFact, InputsFact, LossCallFact, ModesFact, PhaseFact, PredictionsFact
from torchdoctor.findings import Severity
from torchdoctor.signals import ACCURACY_VALIDATION, BATCH_SIZE, LOSS_CALLED, LOSS_TRAIN, LOSS_VALIDATION, PRINTED

STEPS = 400
PASSES = range(39, STEPS, 40)
RANDOM = np.random.default_rng(0)


def call(phase: str, smoothing: float = 0.0, weighted: bool = False) -> LossCallFact:
    return LossCallFact(
        "cross_entropy", phase, [32, 10], "float32", [32], "int64", reduction="mean", classes=10,
        label_smoothing=smoothing, weighted=weighted,
    )  # fmt: skip


def trained(loss: np.ndarray, validation: np.ndarray | float | None = None, noise: float = 0.02) -> RunBuilder:
    builder = RunBuilder(STEPS).optimizer("Adam", lr=1e-3).fact(call("train")).fact(call("validation"))
    builder.scalar(LOSS_TRAIN, loss + noise * RANDOM.normal(size=STEPS))
    return builder if validation is None else builder.scalar(LOSS_VALIDATION, validation * np.ones(10), steps=PASSES)


def test_a_run_that_ended_too_soon() -> None:
    (found,) = findings(trained(np.linspace(2.3, 1.8, STEPS)).build(), "underfitting")
    assert found.severity is Severity.WARNING


def test_a_poor_run_that_has_levelled_off_is_an_info() -> None:
    loss = 2.0 + 0.3 * np.exp(-np.arange(STEPS) / 20)
    (found,) = findings(trained(loss, 2.0).build(), "underfitting")
    assert found.severity is Severity.INFO


def test_a_run_at_chance_is_said_to_have_learned_nothing() -> None:
    (found,) = findings(trained(np.full(STEPS, 2.3), 2.3).build(), "underfitting")
    assert found.title.startswith("Nothing was learned") and "stuck-at-chance" in found.symptoms


@pytest.mark.parametrize(
    "builder", [trained(np.linspace(2.3, 0.8, STEPS)), trained(np.full(STEPS, 2.0), 3.0), trained(np.full(STEPS, -1.0))]
)
def test_no_underfitting(builder: RunBuilder) -> None:
    assert findings(builder.build(), "underfitting") == []


def validated(samples: int, accuracy: np.ndarray) -> RunBuilder:
    fact = PredictionsFact("validation", 10, samples, [samples], [0], [samples])
    builder = trained(np.linspace(2.3, 0.5, STEPS), 0.6).fact(fact)
    return builder.scalar(ACCURACY_VALIDATION, accuracy, steps=PASSES)


JUMPY = np.array([0.3, 0.5, 0.6, 0.5, 0.7, 0.55, 0.75, 0.6, 0.8, 0.55])


def test_few_samples_and_jumps() -> None:
    (found,) = findings(validated(30, JUMPY).build(), "noisy-validation")
    assert found.severity is Severity.WARNING
    (found,) = findings(validated(100, JUMPY).build(), "noisy-validation")
    assert found.severity is Severity.INFO


def test_few_samples_that_hardly_jump_are_an_info() -> None:
    wobble = 0.6 + 0.035 * (-1.0) ** np.arange(10)
    (found,) = findings(validated(30, wobble).build(), "noisy-validation")
    assert found.severity is Severity.INFO


@pytest.mark.parametrize(
    "builder",
    [validated(1000, JUMPY), validated(30, np.linspace(0.5, 0.72, 10)), validated(30, np.linspace(0.9, 1.0, 10))],
    ids=["many samples", "smooth", "nearly all right"],
)
def test_validation_that_can_be_trusted(builder: RunBuilder) -> None:
    assert findings(builder.build(), "noisy-validation") == []


LEVEL = 1.0 + 1.3 * np.exp(-np.arange(STEPS) / 30)
BETTER = "validation-better-than-training"


def test_validation_far_below_training() -> None:
    assert len(findings(trained(LEVEL, 0.4).build(), BETTER)) == 1
    assert findings(trained(LEVEL, 0.9).build(), BETTER) == []


def test_a_training_loss_with_more_in_it_is_not_comparable() -> None:
    assert findings(trained(LEVEL, 0.4).scalar(LOSS_CALLED, LEVEL / 30).build(), BETTER) == []
    assert len(findings(trained(LEVEL, 0.4).scalar(LOSS_CALLED, LEVEL).build(), BETTER)) == 1


def test_validation_that_gets_far_below_training_late() -> None:
    sinking = np.concatenate([np.linspace(1.5, 0.76, 6), [0.65, 0.6, 0.55, 0.5]])
    assert len(findings(trained(LEVEL, sinking).build(), BETTER)) == 1
    assert findings(trained(LEVEL, sinking[::-1].copy()).build(), BETTER) == []


def test_what_raises_training_on_purpose() -> None:
    dropped = trained(LEVEL, 0.4).fact(DropoutFact("model", {"drop": 0.5}))
    dropped.fact(ModesFact("model", "train", training=True, grad_enabled=True, dropout_training=["drop"]))
    assert findings(dropped.build(), BETTER) == []
    assert findings(trained(LEVEL, 0.4).fact(call("train", 0.1)).build(), BETTER) == []
    augmented = trained(LEVEL, 0.4)
    for phase, std in (("train", 1.5), ("validation", 1.0)):
        augmented.fact(InputsFact(phase, "input", [32, 8], "float32", mean=0.0, std=std))
    assert findings(augmented.build(), BETTER) == []
    fresh = trained(LEVEL, 0.4)
    for i in range(20):
        fresh.fact(InputsFact("train", "input", [2, 8], "float32", fingerprints=[2 * i, 2 * i + 1]))
    assert findings(fresh.build(), BETTER) == []


def test_a_second_term_in_the_training_loss_is_no_gap() -> None:
    terms = [{"op": "AddBackward0", "inputs": [1, 2]}, {"op": "MeanBackward0"}, {"op": "MulBackward0"}]
    assert findings(trained(LEVEL, 0.4).fact(GraphFact("AddBackward0", [], terms, {})).build(), BETTER) == []
    scaled = [{"op": "DivBackward0", "inputs": [1]}, {"op": "NllLossBackward0"}]
    assert len(findings(trained(LEVEL, 0.4).fact(GraphFact("DivBackward0", [], scaled, {})).build(), BETTER)) == 1


def test_a_training_loss_that_falls_fast_is_no_gap() -> None:
    loss = 2.3 * np.exp(-np.arange(STEPS) / 60)
    validation = 2.3 * np.exp(-(np.array(PASSES) + 1) / 60)
    assert findings(trained(loss, validation, noise=0.0).build(), BETTER) == []


def by_hand(samples: int, accuracy: np.ndarray, key: str = "accuracy", between: float = 40.0) -> RunBuilder:
    builder = trained(np.linspace(2.3, 0.5, STEPS)).optimizer("SGD", lr=0.1).scalar(BATCH_SIZE, 32.0, key="train")
    builder.fact(InputsFact("validation", "input", [samples, 8], "float32"))
    builder.fact(PhaseFact(STEPS, STEPS, STEPS, len(PASSES), 0, len(PASSES), updates_between_validations=between))
    return builder.scalar(PRINTED, accuracy, key=key, steps=PASSES)


SLOW = np.array([5, 7, 8, 8, 8, 8, 9, 9, 8, 9])


def test_a_handful_of_samples_is_told_even_from_a_printed_accuracy_alone() -> None:
    (found,) = findings(by_hand(10, SLOW / 10).build(), "noisy-validation")
    assert found.severity is Severity.WARNING and "10 samples" in found.title
    assert len(findings(by_hand(10, 10.0 * SLOW, "val acc").build(), "noisy-validation")) == 1


@pytest.mark.parametrize(
    "builder",
    [
        by_hand(10, SLOW / 10 + 0.034),
        by_hand(10, SLOW / 10, between=2.0),
        by_hand(10, np.full(10, 0.9)),
        by_hand(10, SLOW / 10, "train loss"),
        by_hand(1, np.array([0, 1] * 5)),
    ],
    ids=["not over these samples", "little to train on", "never moves", "no accuracy", "one sample"],
)
def test_a_handful_of_samples_that_prove_nothing(builder: RunBuilder) -> None:
    assert findings(builder.build(), "noisy-validation") == []
