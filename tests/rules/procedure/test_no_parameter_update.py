from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import CallSiteFact, OrderFact, PhaseFact, WiringFact
from torchdoctor.findings import Proof, RuledOut, Severity
from torchdoctor.rules.procedure.no_parameter_update import _gradients_are_zero

NAME = "no-parameter-update"
SHAPES = {"0.weight": (32, 16), "0.bias": (32,), "2.weight": (4, 32)}


def phase(updates: int = 100, backwards: int = 100, **fields: Any) -> PhaseFact:
    given = {"passes_train": backwards, "passes_validation": 0, "passes_unknown": 0, "validations": 0}
    return PhaseFact(updates=updates, backwards=backwards, updates_between_validations=None, **{**given, **fields})


def trained(unchanged: list[str], **fields: Any) -> RunBuilder:
    return (
        RunBuilder(100)
        .parameters(SHAPES)
        .optimizer("Adam", lr=1e-3)
        .scalar(signals.LEARNING_RATE, 1e-3, key="0.0")
        .fact(WiringFact(updates=100, total=3, unchanged=unchanged, **fields))
    )


def said(builder: RunBuilder) -> str:
    (found,) = findings(builder.build(), NAME)
    assert found.severity is Severity.ERROR and found.proof is Proof.STRUCTURE and found.fix.code
    return found.title


def test_gradients_cleared_between_backward_and_step() -> None:
    builder = (
        trained(list(SHAPES))
        .fact(phase())
        .fact(OrderFact("0", ["forward", "backward", "zero_grad", "step"]))
        .fact(CallSiteFact("zero_grad", "train.py", 12, "opt.zero_grad()"))
    )
    assert "zero_grad" in said(builder)
    assert findings(builder.build(), NAME)[0].where[0].line == 12


def test_cleared_gradients_are_seen_although_weight_decay_moves_the_weights() -> None:
    builder = (
        trained([])
        .fact(phase())
        .scalar(signals.GRADIENT_GLOBAL_L2, 0.0)
        .fact(OrderFact("0", ["forward", "backward", "zero_grad", "step"]))
    )
    assert "zero_grad" in said(builder)


def test_backward_is_missing() -> None:
    assert "backward" in said(trained(list(SHAPES)).fact(phase(backwards=0)))


def test_a_learning_rate_of_zero_throughout() -> None:
    builder = trained(list(SHAPES)).fact(phase()).scalar(signals.LEARNING_RATE, 0.0, key="0.0")
    assert "learning rate is 0" in said(builder)


def test_step_is_never_called() -> None:
    builder = (
        RunBuilder(0)
        .optimizer("SGD", lr=0.1)
        .fact(phase(updates=0, backwards=60))
        .fact(CallSiteFact("backward", "t.py", 8, "total.backward()"))
    )
    assert "step() is never called" in said(builder)
    assert findings(builder.build(), NAME)[0].fix.code == "total.backward()\noptimizer.step()"


def test_broken_off_before_the_first_update_of_an_accumulation() -> None:
    builder = RunBuilder(0).optimizer("SGD", lr=0.1).fact(phase(updates=0, backwards=51)).info(status="interrupted")
    assert findings(builder.build(), NAME) == []


def test_gradients_cleared_unused_are_no_accumulation() -> None:
    running = RunBuilder(0).optimizer("SGD", lr=0.1).fact(phase(updates=0, backwards=12, discarded=11))
    assert "step() is never called" in said(running.info(status="interrupted"))


def test_neither_backward_nor_step() -> None:
    builder = RunBuilder(0).optimizer("SGD", lr=0.1).fact(phase(updates=0, backwards=0, passes_unknown=50))
    assert "never called" in said(builder)


def test_a_scaler_that_skips_everything() -> None:
    builder = trained(list(SHAPES)).fact(phase()).scalar(signals.STEP_SKIPPED, 1.0)
    assert "scaler" in said(builder)


@pytest.mark.parametrize("unchanged", [[], ["0.weight"], ["0.weight", "0.bias"]])
def test_parameters_that_change_are_fine_even_if_some_do_not(unchanged: list[str]) -> None:
    assert not findings(trained(unchanged).fact(phase()).build(), NAME)


def test_frozen_and_unheld_parameters_do_not_count() -> None:
    builder = trained(["0.weight"], frozen=["0.bias"], unheld=["2.weight"]).fact(phase())
    assert findings(builder.build(), NAME)
    assert not findings(trained([], frozen=["0.bias"], unheld=["2.weight"]).fact(phase()).build(), NAME)


def test_a_warm_up_from_zero_is_fine() -> None:
    rates = np.minimum(np.arange(100) / 50, 1) * 1e-3
    assert not findings(trained([]).fact(phase()).scalar(signals.LEARNING_RATE, rates, key="0.0").build(), NAME)


def test_one_group_with_a_rate_of_zero_is_a_choice() -> None:
    builder = trained(["0.weight"]).fact(phase()).scalar(signals.LEARNING_RATE, 0.0, key="0.1")
    assert not findings(builder.build(), NAME)


def test_updates_by_hand_are_fine() -> None:
    builder = trained(list(SHAPES), changed_outside=["0.weight"]).fact(phase(updates=0))
    assert not findings(builder.build(), NAME)


def test_a_script_that_only_evaluates_is_fine() -> None:
    builder = RunBuilder(0).optimizer("SGD").fact(phase(updates=0, backwards=0, passes_validation=80))
    assert not findings(builder.build(), NAME)


def test_zero_gradients_seen_by_a_closure_prove_nothing_alone() -> None:
    builder = (
        trained([])
        .fact(phase())
        .scalar(signals.GRADIENT_GLOBAL_L2, 0.0)
        .fact(OrderFact("0", ["backward", "zero_grad", "step"], closure=True))
    )
    assert not findings(builder.build(), NAME)


@pytest.mark.filterwarnings("error")
def test_gradients_that_are_nan_are_not_called_zero() -> None:
    assert not _gradients_are_zero(RunBuilder(100).scalar(signals.GRADIENT_GLOBAL_L2, np.nan).build())
    assert _gradients_are_zero(RunBuilder(100).scalar(signals.GRADIENT_GLOBAL_L2, 0.0).build())


def test_weights_that_all_change_rule_it_out() -> None:
    (said,) = trained([], stepped=3, compared=3).fact(phase()).detect(NAME)
    assert isinstance(said, RuledOut) and "all 3" in said.text
    (said,) = trained([], stepped=3, compared=2).fact(phase()).detect(NAME)
    assert isinstance(said, RuledOut) and "2 of 3" in said.text


@pytest.mark.parametrize("compared", [0, None])
def test_weights_that_were_never_compared_are_not_called_changed(compared: int | None) -> None:
    assert not trained([], stepped=3, compared=compared).fact(phase()).detect(NAME)


def test_parameters_that_moved_earlier_are_not_called_still() -> None:
    """Full-batch descent that has arrived, or the first steps of another fold."""
    assert findings(trained(list(SHAPES), compared=3).fact(phase()).build(), NAME)
    moved = RunBuilder(100).parameters(SHAPES).optimizer("LBFGS", lr=0.5).scalar(signals.LEARNING_RATE, 0.5, key="0.0")
    moved.fact(WiringFact(updates=2, total=3, compared=3), step=1)
    moved.fact(WiringFact(updates=100, total=3, compared=3, unchanged=list(SHAPES)), step=99).fact(phase())
    assert findings(moved.build(), NAME) == []
