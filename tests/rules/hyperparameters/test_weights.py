"""Growth and shape of weights, clipping by value, and the missing warm-up."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import ClipFact, ModelFact
from torchdoctor.findings import Severity
from torchdoctor.rules.hyperparameters import abnormal_distribution
from torchdoctor.signals import GRADIENT, LEARNING_RATE, LOSS_TRAIN, UPDATE_RATIO, WEIGHT, WEIGHT_L2

STEPS = 200
LOOKS = range(0, STEPS, 10)
SHAPE = (64, 64)
NAMES = ("a.weight", "b.weight", "c.weight")


def grown(*factors: np.ndarray | float) -> RunBuilder:
    columns = {n: 5 * np.ones(len(LOOKS)) * f for n, f in zip(NAMES, factors, strict=True)}
    return RunBuilder(STEPS).parameters(dict.fromkeys(NAMES, SHAPE)).matrix(WEIGHT_L2, columns, steps=LOOKS)


def test_weights_that_grow_and_grow() -> None:
    up = np.geomspace(1, 30, len(LOOKS))
    (found,) = findings(grown(up, up, 1.0).build(), "weight-norm-growth")
    assert found.severity is Severity.WARNING


@pytest.mark.parametrize("growth", [np.linspace(1, 3, 20), np.minimum(np.linspace(1, 80, 20), 12)])
def test_growth_that_is_small_or_has_stopped(growth: np.ndarray) -> None:
    assert findings(grown(growth, growth, growth).build(), "weight-norm-growth") == []


@pytest.mark.parametrize(("power", "faulty"), [(2.0, True), (0.5, False)])
def test_growth_that_a_loss_without_a_floor_rewards(power: float, faulty: bool) -> None:
    """Ever faster below zero, as a penalty with the wrong sign does it; a likelihood that turns negative slows down."""
    up = np.linspace(1, 5, len(LOOKS))
    builder = grown(up, up, 1.0)
    loss = 1 - 50 * np.linspace(0, 1, STEPS) ** power
    assert bool(findings(builder.scalar(LOSS_TRAIN, loss).build(), "weight-norm-growth")) is faulty


def test_one_of_two_models_that_runs_away() -> None:
    up = np.linspace(1, 20, len(LOOKS))
    builder = RunBuilder(STEPS)
    names = {"G.0.weight": 1.0, "G.1.weight": 1.0, "G.2.weight": 1.0, "D.0.weight": up, "D.1.weight": up}
    builder.parameters(dict.fromkeys(names, (8, 8))).matrix(WEIGHT_L2, names, steps=LOOKS)
    assert findings(builder.build(), "weight-norm-growth") == []
    for model in ("G", "D"):
        builder.fact(ModelFact(name=model, type="Sequential", parameters=1, trainable=1, modules=1))
    assert findings(builder.build(), "weight-norm-growth")


def test_growth_of_one_layer_alone() -> None:
    assert findings(grown(1.0, 1.0, np.geomspace(1, 30, len(LOOKS))).build(), "weight-norm-growth") == []


def shaped(
    peaked: np.ndarray | float,
    giant: np.ndarray | float,
    loss: float = 2.0,
    kind: str = "Linear",
    size: np.ndarray | float = 0.05,
) -> RunBuilder:
    ones = np.ones(len(LOOKS))
    values = {"l2": size * 64, "mean": 0.0, "absmax": size * giant, "absmean": size * peaked, "zeros": 0.0}
    builder = RunBuilder(STEPS).parameters({"a.weight": SHAPE}, module_type=kind).optimizer("Adam", lr=1e-3)
    for name, value in values.items():
        builder.matrix(WEIGHT[name], {"a.weight": ones * value}, steps=LOOKS)
    return builder.scalar(LOSS_TRAIN, np.linspace(2.3, loss, STEPS))


def test_heavy_tails() -> None:
    (found,) = findings(shaped(0.2, 50).build(), "abnormal-distribution")
    assert found.first_step == 0
    assert found.fix.code is not None
    assert "kaiming" in found.fix.code
    late = np.linspace(0.8, 0.2, len(LOOKS))
    (found,) = findings(shaped(late, np.linspace(4, 50, len(LOOKS))).build(), "abnormal-distribution")
    assert found.fix.code is not None
    assert "clip_grad_norm_" in found.fix.code


@pytest.mark.parametrize(("end", "is_told"), [(1.0, True), (1e-3, False)])
def test_weights_that_all_go_to_nothing_have_no_giants(end: float, is_told: bool) -> None:
    size = np.geomspace(1.0, end, len(LOOKS))
    run = shaped(np.linspace(0.8, 0.2, len(LOOKS)), np.linspace(4, 50, len(LOOKS)), size=size)
    assert bool(findings(run.build(), "abnormal-distribution")) == is_told


def test_weights_at_a_limit() -> None:
    peaked, giant = np.linspace(0.86, 0.98, len(LOOKS)), np.linspace(1.7, 1.05, len(LOOKS))
    assert len(findings(shaped(peaked, giant).build(), "abnormal-distribution")) == 1
    assert findings(shaped(peaked, giant, loss=0.1).build(), "abnormal-distribution") == []


@pytest.mark.parametrize(
    "builder", [shaped(0.8, 5), shaped(0.86, 1.73), shaped(0.71, 9), shaped(0.2, 50, kind="Embedding")]
)
def test_usual_shapes_are_silent(builder: RunBuilder) -> None:
    assert findings(builder.build(), "abnormal-distribution") == []


def test_clipping_by_value_that_acts() -> None:
    builder = RunBuilder(STEPS).matrix(GRADIENT["absmax"], {"a.weight": 0.1, "b.weight": 0.02}, steps=LOOKS)
    builder.fact(ClipFact("value", 0.1, None, 2))
    (found,) = findings(builder.build(), "clipping-by-value")
    assert found.severity is Severity.INFO
    builder = RunBuilder(STEPS).matrix(GRADIENT["absmax"], {"a.weight": 0.05}, steps=LOOKS)
    assert findings(builder.fact(ClipFact("value", 0.1, None, 2)).build(), "clipping-by-value") == []
    builder = RunBuilder(STEPS).matrix(GRADIENT["absmax"], {"a.weight": 0.1}, steps=LOOKS)
    assert findings(builder.fact(ClipFact("norm", 0.1, 2.0, 2)).build(), "clipping-by-value") == []


def thrown(peak: float, *, kind: str = "Adam", warm: bool = False, end: float = 0.1, first: float = 0.1) -> RunBuilder:
    steps = np.arange(400)
    loss = np.where(steps < 30, peak, end + 1.0 * np.exp(-(steps - 30) / 20))
    loss[0] = 1.0
    ratio = np.concatenate([[first, first / 2], np.full(18, 0.003)])
    return (
        RunBuilder(400)
        .parameters({"a.weight": SHAPE})
        .optimizer(kind, lr=0.01)
        .scalar(LOSS_TRAIN, loss)
        .scalar(LEARNING_RATE, np.minimum(0.01, 1e-4 * (steps + 1)) if warm else 0.01, key="0.0")
        .matrix(UPDATE_RATIO, {"a.weight": ratio}, steps=range(0, 400, 20))
    )


def spiked(peaks: list[float], tail: np.ndarray, first: float = 0.5) -> RunBuilder:
    loss = np.concatenate([[1.0], peaks, tail])
    return thrown(1.0, first=first).scalar(LOSS_TRAIN, loss[:400])


FALLS = np.geomspace(0.95, 0.05, 400)
THROWN = [14.0, 20.0, 9.0, 6.0, 3.0, 1.5, 1.4, 1.3]


@pytest.mark.parametrize(
    ("builder", "named"),
    [
        (spiked(THROWN, FALLS), True),
        (spiked([14.0, 20.0], FALLS), False),
        (spiked([14.0, 0.8, 0.7, 0.8, 0.7, 0.6, 9.0, 8.0, 9.0, 6.0], FALLS), True),
        (spiked([1.6, 1.5, 1.6, 1.5], FALLS), False),
        (spiked([14.0, 20.0], np.concatenate([np.tile([1.05, 0.97], 30), FALLS])), False),
        (spiked(THROWN, np.concatenate([np.geomspace(0.95, 0.4, 250), np.geomspace(0.4, 0.6, 150)]), first=1.0), False),
        (spiked(THROWN, np.tile([0.1, 0.2, 1.9, 0.2], 100)), False),
        (spiked(THROWN, 0.4 + FALLS * 0, first=1.0), False),
        (spiked(THROWN, np.geomspace(0.95, 0.5, 400), first=1.0), True),
    ],
    ids=[
        "short and high",
        "a moment",
        "twice",
        "low",
        "hovers",
        "rises again",
        "thrown time and again",
        "replaced and stays up",
        "replaced and falls",
    ],
)
def test_a_short_throw_counts_by_what_it_adds_up_to(builder: RunBuilder, named: bool) -> None:
    assert bool(findings(builder.build(), "missing-warmup")) is named


def test_first_steps_that_throw_the_loss() -> None:
    (found,) = findings(thrown(5.0).build(), "missing-warmup")
    assert found.symptoms == ("spikes",)


@pytest.mark.parametrize(
    "builder",
    [
        thrown(1.2),
        thrown(5.0, kind="SGD"),
        thrown(5.0, warm=True),
        thrown(5.0, end=0.9),
        thrown(5.0, first=0.004),
        thrown(5.0, first=8.0),
    ],
    ids=["small rise", "plain descent", "warmed up", "never recovers", "small updates", "weights replaced"],
)
def test_other_beginnings_are_silent(builder: RunBuilder) -> None:
    assert findings(builder.build(), "missing-warmup") == []


@pytest.mark.parametrize(
    ("shape", "kind", "judged"),
    [((8, 8, 3), "Conv1d", True), ((64, 64), "GRU", True), ((1, 16, 64), "Block", False), ((64,), "Linear", False)],
)
def test_only_matrices_and_convolutions_have_a_shape_to_judge(shape: tuple[int, ...], kind: str, judged: bool) -> None:
    fact = RunBuilder().parameters({"a.weight": shape}, kind).build().parameters["a.weight"]
    assert abnormal_distribution.is_layer(fact) is judged
