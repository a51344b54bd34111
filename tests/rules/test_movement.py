from __future__ import annotations

import math

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor.facts import LossCallFact, OptimizerFact, SchedulerFact
from torchdoctor.rules import baseline, movement
from torchdoctor.signals import GRADIENT_L2, LEARNING_RATE, TARGET_MEAN, TARGET_STD, UPDATE_RATIO, WEIGHT_L2

SHAPES = {"a.weight": (64, 32), "a.bias": (64,), "b.weight": (10, 64)}


def test_biases_are_left_out() -> None:
    ratios = {"a.weight": 1e-3, "a.bias": 5.0, "b.weight": 3e-3}
    moved = movement.read(RunBuilder(20).parameters(SHAPES).matrix(UPDATE_RATIO, ratios).build())
    assert moved is not None and moved.measured
    assert moved.names == ("a.weight", "b.weight")
    assert moved.middle_S == pytest.approx(np.full(20, 2e-3), rel=1e-3)


def test_matrices_that_start_at_zero_are_left_out() -> None:
    run = (
        RunBuilder(20)
        .parameters(SHAPES)
        .matrix(UPDATE_RATIO, {"a.weight": 1e-3, "b.weight": 1.0})
        .matrix(WEIGHT_L2, {"a.weight": 4.0, "b.weight": 0.0})
        .build()
    )
    moved = movement.read(run)
    assert moved is not None and moved.names == ("a.weight",)


@pytest.mark.parametrize(("optimizer", "expected"), [("SGD", 0.1 * 2 / 4), ("Adam", 0.1 * math.sqrt(64 * 32) / 4)])
def test_without_ratios_the_formula_tells(optimizer: str, expected: float) -> None:
    run = (
        RunBuilder(20)
        .parameters({"a.weight": (64, 32)})
        .optimizer(optimizer, lr=0.1)
        .scalar(LEARNING_RATE, 0.1, key="0.0")
        .matrix(GRADIENT_L2, {"a.weight": 2.0})
        .matrix(WEIGHT_L2, {"a.weight": 4.0})
        .build()
    )
    moved = movement.read(run)
    assert moved is not None and not moved.measured
    assert moved.middle_S[0] == pytest.approx(expected, rel=1e-4)


def test_nothing_known_is_none() -> None:
    assert movement.read(RunBuilder(5).build()) is None


def test_an_unknown_optimizer_is_taken_to_be_free_of_scale() -> None:
    assert movement.is_scale_free(RunBuilder().optimizer("MyOptimizer").build())
    assert not movement.is_scale_free(RunBuilder().optimizer("SGD").build())


def call(function: str, **fields: object) -> LossCallFact:
    given = {
        "phase": "train",
        "input_shape": [8, 10],
        "input_dtype": "float32",
        "target_shape": [8],
        "target_dtype": "int64",
    }
    return LossCallFact(function=function, reduction="mean", **{**given, **fields})  # type: ignore[arg-type]


def test_chance_of_each_loss() -> None:
    assert baseline.chance(RunBuilder().fact(call("cross_entropy", classes=10)).build()) == pytest.approx(math.log(10))
    assert baseline.chance(RunBuilder().fact(call("binary_cross_entropy_with_logits")).build()) == pytest.approx(
        math.log(2)
    )
    regression = (
        RunBuilder(50).fact(call("mse_loss")).scalar(TARGET_MEAN, 5.0, "train").scalar(TARGET_STD, 3.0, "train")
    )
    assert baseline.chance(regression.build()) == pytest.approx(9.0)


def test_chance_is_unknown_for_sums_and_mixtures() -> None:
    assert baseline.chance(RunBuilder().fact(call("cross_entropy", classes=10)).fact(call("mse_loss")).build()) is None
    summed = LossCallFact("cross_entropy", "train", [8, 10], "float32", [8], "int64", reduction="sum", classes=10)
    assert baseline.chance(RunBuilder().fact(summed).build()) is None
    assert baseline.chance(RunBuilder().build()) is None


def test_an_optimizer_is_written_with_another_rate() -> None:
    sgd = OptimizerFact("0", "SGD", [{"lr": 1.0, "momentum": 0.9, "weight_decay": 5e-4}], 4)
    assert movement.written(sgd, 0.01) == (
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=0.0005)"
    )
    adamw = OptimizerFact("0", "AdamW", [{"lr": 1.0, "weight_decay": 0.01}], 4)
    assert (
        movement.written(adamw, 3e-4)
        == "optimizer = torch.optim.AdamW(model.parameters(), lr=0.0003, weight_decay=0.01)"
    )
    assert "param_groups" in movement.written(OptimizerFact("0", "Lion", [{}], 1), 0.1)
    assert "param_groups" in movement.written(None, 0.1)


def test_hyperparameters_that_are_not_torch_s_own_stay() -> None:
    group = {"lr": 1.0, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.0, "amsgrad": True, "maximize": True}
    adamw = OptimizerFact("0", "AdamW", [group], 4)
    assert movement.other_arguments(adamw) == ", amsgrad=True, betas=(0.9, 0.95), weight_decay=0"
    assert movement.initial_rate({"lr": 3e-5, "initial_lr": 1e-3}) == 1e-3


def test_a_schedule_that_sets_the_rate_is_where_it_is_changed() -> None:
    builder = RunBuilder(50).optimizer("SGD", lr=0.4)
    (optimizer,) = builder.build().optimizers.values()
    code, _ = movement.rewritten(builder.build(), optimizer, 0.06)
    assert code == "optimizer = torch.optim.SGD(model.parameters(), lr=0.06)"
    scheduled = builder.fact(
        SchedulerFact("OneCycleLR@0", "OneCycleLR", "0", made_file="train.py", made_line=7)
    ).build()
    code, place = movement.rewritten(scheduled, scheduled.optimizers["0"], 0.06)
    assert code.startswith("scheduler = OneCycleLR(optimizer, max_lr=0.06")
    assert (place.file, place.line) == ("train.py", 7)
