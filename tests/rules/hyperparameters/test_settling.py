"""Runs that bounce at their end: learning-rate-oscillation and batch-too-small."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import LossCallFact
from torchdoctor.signals import (
    BATCH_SIZE,
    GRADIENT,
    GRADIENT_COSINE,
    GRADIENT_GLOBAL_L2,
    LEARNING_RATE,
    LOSS_CALLED,
    LOSS_TRAIN,
    UPDATE_RATIO,
)

RATE, BATCH = "learning-rate-oscillation", "batch-too-small"
CLASSES = LossCallFact("cross_entropy", "train", [32, 10], "float32", [32], "int64", reduction="mean", classes=10)
STEPS = 400


def bouncing(
    level: float = 0.5, *, gradient: float = 1.5, lr: float | np.ndarray = 0.1, batch: float = 32, ratio: float = 0.02,
    momentum: float = 0.9, cosine: float = 0.1, fall: float = 0.0, kind: str = "SGD", scatter: float = 0.4,
) -> RunBuilder:  # fmt: skip
    random = np.random.default_rng(0)
    loss = level + (2.3 - level) * np.exp(-np.arange(STEPS) / 20) + fall * np.linspace(1, 0, STEPS)
    looks = range(0, STEPS, 20)
    return (
        RunBuilder(STEPS)
        .parameters({"a.weight": (64, 64)})
        .optimizer(kind, lr=0.1, **({"momentum": momentum} if kind == "SGD" else {}))
        .scalar(LEARNING_RATE, lr, key="0.0")
        .scalar(LOSS_TRAIN, loss * np.exp(scatter * random.normal(size=STEPS) - scatter**2 / 2))
        .scalar(GRADIENT_GLOBAL_L2, gradient, steps=looks)
        .scalar(GRADIENT_COSINE, cosine, steps=looks)
        .scalar(BATCH_SIZE, batch, key="train", steps=looks)
        .matrix(UPDATE_RATIO, {"a.weight": ratio}, steps=looks)
        .matrix(GRADIENT["absmean"], {"a.weight": gradient / 64}, steps=looks)
        .fact(CLASSES)
    )


def test_steps_that_hold_the_loss_up() -> None:
    (found,) = findings(bouncing().build(), RATE)
    assert "oscillating" in found.symptoms
    assert found.fix.code == "optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)"
    assert len(findings(bouncing(kind="Adam", gradient=1.5).build(), RATE)) == 1


def test_a_bump_near_the_floor_counts_while_it_lasts() -> None:
    def bumped(ends_at: int) -> RunBuilder:
        steps = np.arange(STEPS)
        loss = 0.05 + 2.2 * np.exp(-steps / 20) + 0.2 * ((steps >= 260) & (steps < ends_at))
        return bouncing(gradient=1.0).scalar(LOSS_TRAIN, loss * (1 + 0.2 * np.sin(steps)))

    assert len(findings(bumped(STEPS).build(), RATE)) == 1
    assert findings(bumped(340).build(), RATE) == []


def test_gradients_that_oppose_each_other() -> None:
    assert len(findings(bouncing(gradient=0.5, cosine=-0.6).build(), RATE)) == 1


def test_a_plain_bounce_near_the_floor() -> None:
    assert len(findings(bouncing(0.15, gradient=1.2, cosine=-0.6).build(), RATE)) == 1


@pytest.mark.parametrize(
    "builder",
    [
        bouncing(gradient=0.3),
        bouncing(fall=1.5, scatter=0.05),
        bouncing(0.05, gradient=0.5),
        bouncing(ratio=1e-3),
        bouncing(lr=np.linspace(0.1, 0.001, STEPS)),
        bouncing(batch=2),
        bouncing(gradient=0.5, cosine=-0.1),
        bouncing(gradient=0.1, cosine=-0.8),
    ],
    ids=[
        "noise of the task",
        "falls",
        "near its floor",
        "small updates",
        "decayed",
        "small batch",
        "little bounce",
        "opposed without being felt",
    ],
)
def test_what_is_not_the_rate_is_silent(builder: RunBuilder) -> None:
    assert findings(builder.build(), RATE) == []


def test_few_samples_a_step() -> None:
    (found,) = findings(bouncing(batch=1).build(), BATCH)
    assert "1 sample" in found.title
    assert findings(bouncing(batch=1, gradient=0.3).build(), BATCH) == []
    assert findings(bouncing(batch=1, cosine=0.9).build(), BATCH) == []
    assert findings(bouncing(batch=4, fall=1.5, scatter=0.05).build(), BATCH) == []
    assert findings(bouncing().build(), BATCH) == []


@pytest.mark.parametrize(("batch", "ratio", "faulty"), [(1, 0.06, True), (1, 0.3, False), (32, 0.06, False)])
def test_single_samples_throw_off_what_was_learned(batch: float, ratio: float, faulty: bool) -> None:
    """Only where the averaged step would have been short enough."""
    builder = bouncing(2.35, batch=batch, ratio=ratio, gradient=0.3, scatter=0.02)
    loss = np.full(STEPS, 2.35) + 0.02 * np.random.default_rng(1).normal(size=STEPS)
    loss[60:120] -= 1.2
    said = findings(builder.scalar(LOSS_TRAIN, loss).build(), BATCH)
    assert bool(said) is faulty


def test_one_sample_whose_late_looks_happen_to_be_quiet() -> None:
    """Gradients go with the loss of their step; the few looks of the last half met small ones."""
    random = np.random.default_rng(3)
    loss = 1.2 * random.exponential(size=3000)
    looks = np.array([0, 1, 2, 3, 5, 8, 12, 16, 20, 100, 400, 480, 576, 691, 829, 995, 1194, 1433, 1720, 2064, 2477])
    loss[looks[-3:]] = 0.15
    builder = (
        RunBuilder(3000)
        .parameters({"a.weight": (64, 64)})
        .optimizer("SGD", lr=0.1)
        .scalar(LEARNING_RATE, 0.1, key="0.0")
        .scalar(LOSS_TRAIN, loss)
        .scalar(LOSS_CALLED, loss[looks], steps=looks)
        .scalar(GRADIENT_GLOBAL_L2, np.sqrt(12 * loss[looks]), steps=looks)
        .scalar(GRADIENT_COSINE, 0.05, steps=looks)
        .scalar(BATCH_SIZE, 1.0, key="train", steps=looks)
        .matrix(UPDATE_RATIO, {"a.weight": 0.02}, steps=looks)
        .fact(CLASSES)
    )
    assert findings(builder.build(), BATCH)


def test_gradients_that_agree_in_part_do_not_excuse_steps_that_explain_far_more_than_the_loss() -> None:
    assert not findings(bouncing(cosine=0.45, gradient=1.5).build(), RATE)
    assert len(findings(bouncing(cosine=0.45, gradient=2.5).build(), RATE)) == 1


def test_a_bump_in_the_middle_is_no_progress() -> None:
    run, steps = bouncing(gradient=4.0), np.arange(STEPS)
    loss = 0.5 * np.exp(0.1 * np.random.default_rng(0).normal(size=STEPS))
    loss += 1.8 * np.exp(-steps / 20) + 2.0 * np.exp(-(((steps - 285) / 8.0) ** 2))
    assert len(findings(run.scalar(LOSS_TRAIN, loss).build(), RATE)) == 1
