"""half-precision-overflow, half-precision-underflow, loss-scale-collapse."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, detect, findings
from torchdoctor.facts import (
    BirthFact,
    HalfOperationFact,
    ModuleFact,
    NonfiniteFact,
    OperationFact,
    ParameterFact,
    PrecisionFact,
)
from torchdoctor.findings import RuledOut, Severity
from torchdoctor.signals import (
    ACTIVATION,
    GRADIENT,
    LEARNING_RATE,
    LOSS_TRAIN,
    SCALE,
    STEP_SKIPPED,
    UPDATE_LOST,
    UPDATE_RATIO,
    WEIGHT,
)

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


def outputs(left: np.ndarray, dtype: str = "float16") -> RunBuilder:
    """A layer whose outputs keep so many powers of two to the end of float16."""
    builder = RunBuilder(STEPS).scalar(LOSS_TRAIN, np.ones(STEPS))
    builder.matrix(ACTIVATION["absmax"], {"body": 65504 / 2.0**left, "head": np.full(STEPS, 3.0)})
    for order, name in enumerate(("body", "head")):
        builder.fact(ModuleFact(name, "Linear", order=order, dtype=dtype))
    return builder


def test_outputs_that_grow_steadily_towards_the_end_of_float16_are_told_before_they_reach_it() -> None:
    (found,) = findings(outputs(np.linspace(12, 0.5, STEPS)).build(), OVERFLOW)
    assert found.severity is Severity.WARNING
    assert found.where[0].module == "body"
    assert "body: 0.5 (12.0 at step 0)" in found.evidence[0].text


@pytest.mark.parametrize(
    "left",
    [
        np.linspace(12, 4, STEPS),
        np.full(STEPS, 1.0),
        np.r_[np.linspace(12, 1, 20), np.full(STEPS - 20, 1.0)],
        6 + 5 * np.cos(np.arange(STEPS)),
    ],
    ids=["far", "near from the start", "came to rest", "to and fro"],
)
def test_headroom_without_a_trend_that_ends_it_is_ruled_out_with_what_is_left(left: np.ndarray) -> None:
    (said,) = detect(outputs(left).build(), OVERFLOW)
    assert isinstance(said, RuledOut)
    assert said.value == pytest.approx(left[-1], abs=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_end_of_float16_is_nothing_to_other_types(dtype: str) -> None:
    assert not detect(outputs(np.linspace(12, 0.5, STEPS), dtype).build(), OVERFLOW)


def birth(**details: object) -> BirthFact:
    given = {"operator": "addmm", "backward": False, "result": "inf", "dtype": "float16", "count": 2, "total": 64}
    return BirthFact(**{**given, "module": "body", "file": "train.py", "line": 9, **details})  # type: ignore[arg-type]


def test_an_overflow_that_was_seen_names_what_went_in_and_how_near_the_layers_had_come() -> None:
    loss = np.r_[np.ones(40), np.full(STEPS - 40, np.nan)]
    product = birth(inputs=[[-0.1, 0.1], [-9000.0, 17000.0], [-0.3, 0.2]], at=[0.05, None, None])
    builder = outputs(np.r_[np.linspace(12, 1, 40), np.full(STEPS - 40, np.nan)]).scalar(LOSS_TRAIN, loss)
    builder.fact(HalfOperationFact("NativeLayerNorm", "float16", 2, line=7))
    (found,) = findings(builder.fact(product, 40).build(), OVERFLOW)
    told = " ".join(e.text for e in found.evidence)
    assert "addmm of values up to 1.7e+04 and 0.3 gave Inf" in told
    assert "body: 1.0 (12.0 at step 0)" in told
    assert "LayerNorm at line 7" in told


def test_a_cast_is_called_a_cast() -> None:
    loss = np.r_[np.ones(40), np.full(STEPS - 40, np.nan)]
    builder = RunBuilder(STEPS).scalar(LOSS_TRAIN, loss).fact(birth(operator="_to_copy", at=[1.5e5]), 40)
    (found,) = findings(builder.build(), OVERFLOW)
    assert "the cast to float16 at line 9" in found.title
    assert found.fix.code == ".bfloat16()"


def swallowed(count: int) -> OperationFact:
    return OperationFact("half", "Sqrt", True, False, count, 64, 250.0, "float16", module="norm", file="a.py", line=3)


@pytest.mark.parametrize(("count", "severity"), [(2, Severity.WARNING), (60, Severity.ERROR)])
def test_an_overflow_that_a_division_hides(count: int, severity: Severity) -> None:
    builder = RunBuilder(STEPS).scalar(LOSS_TRAIN, np.ones(STEPS)).fact(swallowed(count), 12)
    (found,) = findings(builder.build(), OVERFLOW)
    assert (found.severity, found.first_step, found.where[0].line) == (severity, 12, 3)


def test_a_softmax_in_half_precision_is_no_fault_by_itself() -> None:
    fact = HalfOperationFact("Softmax", "float16", 4, file="a.py", line=3)
    verdict = RunBuilder(STEPS).scalar(LOSS_TRAIN, np.linspace(2, 1, STEPS)).fact(fact).examine()
    assert verdict.healthy


def test_a_scaler_that_is_switched_off_protects_nothing() -> None:
    fact = PrecisionFact("cpu", ["cpu"], False, True, {"float16": 4}, ["float32"], "train.py", 9, scaling=False)
    builder = network("float32", absmax=2e-7, zeros=0.7, ratio=1e-3, rate=1e-3).fact(fact)
    assert findings(builder.build(), UNDERFLOW)


@pytest.mark.parametrize(("scale", "lost"), [(65536.0, False), (2.0, True)])
def test_gradients_are_measured_with_the_scale_that_they_carry(scale: float, lost: bool) -> None:
    builder = network("float32", absmax=2e-7, zeros=0.7, ratio=1e-3, rate=1e-3).fact(precision(scaled=True))
    assert bool(findings(builder.scalar(SCALE, np.full(STEPS, scale)).build(), UNDERFLOW)) == lost


@pytest.mark.parametrize(
    ("share", "loss", "told"),
    [(0.98, np.ones(STEPS), True), (0.98, np.linspace(2, 0.2, STEPS), False), (0.5, np.ones(STEPS), False)],
)
def test_updates_of_any_optimizer_that_round_away(share: float, loss: np.ndarray, told: bool) -> None:
    builder = network("bfloat16", absmax=1e-2, zeros=0.0, ratio=1e-4, rate=3e-5).optimizer("SGD", lr=3e-5, momentum=0.9)
    builder.matrix(UPDATE_LOST, {name: np.full(STEPS, share) for name in ("0.weight", "2.weight")})
    assert bool(findings(builder.scalar(LOSS_TRAIN, loss).build(), UNDERFLOW)) == told


def test_the_history_of_a_scaler_and_what_the_fall_cost() -> None:
    scale = 65536.0 * 0.5 ** np.arange(STEPS)
    builder = scaler(scale, 1.0).parameters({"0.weight": (8, 8)})
    builder.matrix(GRADIENT["zeros"], {"0.weight": np.linspace(0, 0.9, STEPS)})
    builder.matrix(GRADIENT["absmean"], {"0.weight": np.full(STEPS, 1e-6)})
    (found,) = findings(builder.build(), COLLAPSE)
    told = [e.text for e in found.evidence]
    assert any(t.startswith("lowered 59 times, raised 0 times; 60 of 60 updates skipped") for t in told)
    assert any("0.weight: 90% of its gradient is zero" in t for t in told)
