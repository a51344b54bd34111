from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import DropoutFact, LossCallFact, ModesFact
from torchdoctor.signals import (
    GRADIENT_GLOBAL_L2,
    LEARNING_RATE,
    LOSS_TRAIN,
    LOSS_VALIDATION,
    UPDATE_RATIO,
    WEIGHT_DECAY,
    WEIGHT_GLOBAL_L2,
)

NAME = "over-regularized"
STEPS = 300


def call(smoothing: float = 0.0) -> LossCallFact:
    return LossCallFact(
        "cross_entropy", "train", [32, 10], "float32", [32], "int64", reduction="mean", classes=10,
        label_smoothing=smoothing,
    )  # fmt: skip


def trained(end: float, kind: str = "SGD", decay: float = 0.0, smoothing: float = 0.0) -> RunBuilder:
    loss = end + (2.3 - end) * np.exp(-np.arange(STEPS) / 30)
    return (
        RunBuilder(STEPS)
        .parameters({"a.weight": (64, 64)})
        .optimizer(kind, lr=0.01, weight_decay=decay)
        .scalar(LOSS_TRAIN, loss + 0.05 * np.random.default_rng(0).normal(size=STEPS))
        .scalar(LEARNING_RATE, 0.01, key="0.0")
        .scalar(WEIGHT_DECAY, decay, key="0.0")
        .scalar(WEIGHT_GLOBAL_L2, 8.0)
        .scalar(GRADIENT_GLOBAL_L2, 1.0)
        .matrix(UPDATE_RATIO, {"a.weight": 0.01}, steps=range(0, STEPS, 10))
        .fact(call(smoothing))
    )


def drop(builder: RunBuilder, share: float) -> RunBuilder:
    modes = ModesFact("model", "train", training=True, grad_enabled=True, dropout_training=["drop"])
    return builder.fact(DropoutFact("model", {"drop": share})).fact(modes)


def test_decay_as_strong_as_the_gradient() -> None:
    (found,) = findings(trained(1.6, decay=0.1).build(), NAME)
    assert "weight decay 0.1" in found.title
    assert found.fix.code == "for group in optimizer.param_groups: group['weight_decay'] = 0.0005"


@pytest.mark.parametrize(("kind", "decay"), [("SGD", 5e-4), ("AdamW", 0.01), ("Adam", 1e-4)])
def test_a_usual_decay_beside_a_gradient_that_has_faded_is_not_to_blame(kind: str, decay: float) -> None:
    faded = trained(1.6, kind, decay=decay).scalar(GRADIENT_GLOBAL_L2, 1e-6)
    assert findings(faded.matrix(UPDATE_RATIO, {"a.weight": 1e-7}, steps=range(0, STEPS, 10)).build(), NAME) == []


def test_the_proposed_decay_is_lower_than_the_one_in_use() -> None:
    (found,) = findings(trained(1.6, "AdamW", decay=0.02).matrix(UPDATE_RATIO, {"a.weight": 1e-5}).build(), NAME)
    assert "from 0.02 to about 0.002" in found.fix.text


def test_decoupled_decay_is_measured_against_the_update() -> None:
    assert len(findings(trained(1.6, "AdamW", decay=0.5).build(), NAME)) == 1
    assert findings(trained(1.6, "AdamW", decay=0.01).build(), NAME) == []


def test_dropout_of_nearly_everything() -> None:
    (found,) = findings(drop(trained(1.9), 0.9).build(), NAME)
    assert "dropout of 0.9" in found.title


def test_dropout_that_makes_training_worse_than_validation() -> None:
    builder = drop(trained(1.5), 0.65)
    assert findings(builder.build(), NAME) == []
    builder.scalar(LOSS_VALIDATION, [1.2, 1.0, 0.9, 0.9, 0.9], steps=range(59, 300, 60))
    assert len(findings(builder.build(), NAME)) == 1


def test_label_smoothing() -> None:
    assert len(findings(trained(2.1, smoothing=0.8).build(), NAME)) == 1
    assert findings(trained(1.0, smoothing=0.1).build(), NAME) == []


def test_weights_that_melt() -> None:
    builder = trained(2.29).scalar(WEIGHT_GLOBAL_L2, np.geomspace(8, 0.5, STEPS))
    assert len(findings(builder.build(), NAME)) == 1


@pytest.mark.parametrize(
    "builder",
    [trained(0.1, decay=0.1), drop(trained(0.4), 0.9), trained(2.2, decay=5e-4), drop(trained(1.5), 0.5)],
    ids=["decay and it fits", "dropout and it fits", "usual decay on noise", "usual dropout"],
)
def test_what_does_no_harm_is_silent(builder: RunBuilder) -> None:
    assert findings(builder.build(), NAME) == []
