from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import CallSiteFact, OrderFact, PhaseFact
from torchdoctor.findings import Proof, RuledOut, Severity

NAME = "missing-zero-grad"


def test_gradients_that_are_never_cleared() -> None:
    run = (
        RunBuilder(200)
        .scalar(signals.GRADIENTS_CLEARED, 0.0, key="0", steps=range(1, 200))
        .scalar(signals.GRADIENT_GLOBAL_L2, np.linspace(1, 90, 200))
        .optimizer("SGD", lr=0.1)
        .fact(OrderFact("0", ["forward", "backward", "step"]))
        .fact(CallSiteFact("backward", "train.py", 40, "loss.backward()"))
        .fact(CallSiteFact("step", "train.py", 41, "self.opt.step()"))
        .build()
    )
    (found,) = findings(run, NAME)
    assert found.severity is Severity.ERROR and found.proof is Proof.STRUCTURE
    assert found.fix.code == "self.opt.zero_grad()\nloss.backward()"
    assert found.where[0].line == 40
    assert any(e.spark for e in found.evidence)


def test_accumulated_gradients_are_cleared_after_the_step() -> None:
    run = (
        RunBuilder(100)
        .scalar(signals.GRADIENTS_CLEARED, 0.0, key="0", steps=range(1, 100))
        .optimizer("SGD", lr=0.1)
        .fact(PhaseFact(100, 400, 400, 0, 0, 0, None))
        .fact(CallSiteFact("backward", "train.py", 40, "(loss / 4).backward()"))
        .fact(CallSiteFact("step", "train.py", 42, "opt.step()"))
        .build()
    )
    (found,) = findings(run, NAME)
    assert found.fix.code == "opt.step()\nopt.zero_grad()"


def test_clearing_on_every_fourth_step_only() -> None:
    cleared = np.arange(200) % 4 == 0
    assert findings(RunBuilder(200).scalar(signals.GRADIENTS_CLEARED, cleared.astype(float), key="0").build(), NAME)


@pytest.mark.parametrize("rows", [200, 10_000])
def test_a_loop_that_clears_is_ruled_out(rows: int) -> None:
    (said,) = RunBuilder(rows).scalar(signals.GRADIENTS_CLEARED, 1.0, key="0").detect(NAME)
    assert isinstance(said, RuledOut)


def test_a_first_step_or_a_lone_one_left_uncleared_is_fine() -> None:
    cleared = np.ones(100)
    cleared[[0, 50]] = 0
    assert not findings(RunBuilder(100).scalar(signals.GRADIENTS_CLEARED, cleared, key="0").build(), NAME)


def test_a_discriminator_that_clears_before_its_own_backward_is_fine() -> None:
    run = (
        RunBuilder(100)
        .scalar(signals.GRADIENTS_CLEARED, 1.0, key="0")
        .scalar(signals.GRADIENTS_CLEARED, 0.0, key="1")
        .fact(OrderFact("1", ["forward", "backward", "zero_grad", "forward", "backward", "step"]))
        .build()
    )
    assert not findings(run, NAME)


def test_a_zero_grad_after_the_last_backward_does_not_count_as_clearing() -> None:
    run = (
        RunBuilder(100)
        .scalar(signals.GRADIENTS_CLEARED, 0.0, key="0")
        .fact(OrderFact("0", ["forward", "backward", "zero_grad", "step"]))
        .build()
    )
    assert findings(run, NAME)


def test_too_few_updates_say_nothing() -> None:
    assert RunBuilder(3).scalar(signals.GRADIENTS_CLEARED, 0.0, key="0").detect(NAME) == []
