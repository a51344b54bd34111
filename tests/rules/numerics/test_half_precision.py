"""half-precision-overflow, half-precision-underflow, loss-scale-collapse."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import NonfiniteFact, OperationFact, ParameterFact, PrecisionFact
from torchdoctor.findings import Severity
from torchdoctor.signals import GRADIENT, LEARNING_RATE, LOSS_TRAIN, SCALE, STEP_SKIPPED, UPDATE_RATIO, WEIGHT

STEPS = 60
UNDERFLOW, COLLAPSE, OVERFLOW = "half-precision-underflow", "loss-scale-collapse", "half-precision-overflow"


def scaler(scale: np.ndarray, skipped: float = 0.0) -> RunBuilder:
    builder = RunBuilder(STEPS).scalar(LOSS_TRAIN, np.ones(STEPS)).scalar(SCALE, scale)
    return builder.scalar(STEP_SKIPPED, np.full(STEPS, skipped))


def network(dtype: str, *, absmax: float, zeros: float, ratio: float, rate: float) -> RunBuilder:
    builder = RunBuilder(STEPS).scalar(LOSS_TRAIN, np.ones(STEPS)).scalar(LEARNING_RATE, np.full(STEPS, rate), "0.0")
    names = ("0.weight", "2.weight")
    for order, name in enumerate(names):
        fact = ParameterFact(name, [64, 64], f"torch.{dtype}", "cpu", name[0], "Linear", order)
        builder.fact(fact)
    for signal, value in (
        (GRADIENT["absmax"], absmax),
        (GRADIENT["zeros"], zeros),
        (GRADIENT["l2"], absmax * 10),
        (WEIGHT["absmean"], 0.06),
        (WEIGHT["l2"], 0.07 * 64),
        (UPDATE_RATIO, ratio),
    ):
        builder.matrix(signal, {name: np.full(STEPS, value) for name in names})
    return builder.optimizer("AdamW", lr=rate)


def precision(scaled: bool, dtype: str = "float16") -> PrecisionFact:
    return PrecisionFact("cpu", ["cpu"], False, scaled, {dtype: 4}, ["float32"], "train.py", 9)


def test_a_scale_that_keeps_falling_while_updates_are_skipped() -> None:
    (found,) = findings(scaler(65536.0 * 0.5 ** np.arange(STEPS), 1.0).build(), COLLAPSE)
    assert found.severity is Severity.ERROR
    assert found.first_step == 8


def test_a_scale_that_settled_under_one() -> None:
    scale = np.maximum(65536.0 * 0.5 ** np.arange(STEPS), 2.0**-10)
    (found,) = findings(scaler(scale).build(), COLLAPSE)
    assert found.severity is Severity.WARNING


@pytest.mark.parametrize("floor", [65536.0, 1024.0, 64.0])
def test_a_scale_that_was_found_is_fine(floor: float) -> None:
    assert not findings(scaler(np.maximum(65536.0 * 0.5 ** np.arange(STEPS), floor)).build(), COLLAPSE)


def test_gradients_that_float16_cannot_hold() -> None:
    builder = network("float32", absmax=2e-7, zeros=0.7, ratio=1e-3, rate=1e-3).fact(precision(scaled=False))
    (found,) = findings(builder.build(), UNDERFLOW)
    assert "gradients of 2 of 2" in found.title
    assert found.where[0].line == 9


@pytest.mark.parametrize(
    ("fact", "absmax", "zeros"),
    [
        (precision(scaled=True), 2e-7, 0.7),
        (precision(scaled=False, dtype="bfloat16"), 2e-7, 0.7),
        (precision(scaled=False), 1e-2, 0.7),
        (precision(scaled=False), 2e-5, 0.0),
    ],
)
def test_gradients_that_are_not_lost(fact: PrecisionFact, absmax: float, zeros: float) -> None:
    run = network("float32", absmax=absmax, zeros=zeros, ratio=1e-3, rate=1e-3).fact(fact).build()
    assert not findings(run, UNDERFLOW)


def test_updates_under_the_gap_of_bfloat16() -> None:
    run = network("bfloat16", absmax=1e-2, zeros=0.0, ratio=1e-4, rate=3e-5).build()
    (found,) = findings(run, UNDERFLOW)
    assert found.title.startswith("updates of 2 of 2")


@pytest.mark.parametrize(("dtype", "rate", "ratio"), [("float32", 3e-5, 1e-4), ("bfloat16", 1e-3, 1e-2)])
def test_updates_that_arrive(dtype: str, rate: float, ratio: float) -> None:
    assert not findings(network(dtype, absmax=1e-2, zeros=0.0, ratio=ratio, rate=rate).build(), UNDERFLOW)


def test_the_layer_that_overflows() -> None:
    loss = np.r_[np.ones(30), np.full(30, np.nan)]
    fact = OperationFact("half", "Addmm", True, True, 4, 64, 61000.0, "float16", module="head", file="a.py", line=3)
    builder = RunBuilder(STEPS).scalar(LOSS_TRAIN, loss).fact(fact, 30)
    (found,) = findings(builder.fact(NonfiniteFact("loss", "loss", "train", 1, 1), 30).build(), OVERFLOW)
    assert (found.where[0].module, found.first_step) == ("head", 30)
