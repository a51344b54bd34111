"""log-of-zero, division-by-zero, sqrt-at-zero, exp-overflow: the first bad operation, forward or backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import NonfiniteFact, OperationFact
from torchdoctor.findings import Proof, Severity
from torchdoctor.signals import LOSS_TRAIN

RULES = {"log": "log-of-zero", "division": "division-by-zero", "sqrt": "sqrt-at-zero", "exp": "exp-overflow"}
OPERATORS = {"log": "Log", "division": "Div", "sqrt": "Sqrt", "exp": "Exp"}


def operation(trouble: str, **more: Any) -> OperationFact:
    details = {"over": True, "born": False, "count": 3, "total": 64, "low": 0.0, "dtype": "float32"}
    place = {"module": "head", "file": "train.py", "line": 12}
    return OperationFact(trouble=trouble, operator=OPERATORS[trouble], **{**details, **place, **more})


def broken(at: int = 20, rise: float = 1.0) -> RunBuilder:
    """The loss is NaN from that step on, and weights after it."""
    loss = np.linspace(1.0, rise, 60)
    loss[at:] = np.nan
    builder = RunBuilder(60).scalar(LOSS_TRAIN, loss)
    builder.fact(NonfiniteFact("loss", "loss", "train", 1, 1), at)
    return builder.fact(NonfiniteFact("weight", "head.weight", "train", 8, 8), at + 1)


@pytest.mark.parametrize("trouble", RULES)
def test_the_operation_that_broke_the_loss_is_named(trouble: str) -> None:
    run = broken().fact(operation(trouble, born=True, samples=[4, 9]), 20).build()
    (found,) = findings(run, RULES[trouble])
    assert (found.severity, found.proof, found.first_step) == (Severity.ERROR, Proof.STRUCTURE, 20)
    assert found.where[0].line == 12
    assert "samples 4, 9" in " ".join(e.text for e in found.evidence)
    assert found.symptoms == ("nan-later",)
    for other in RULES.values():
        assert other == RULES[trouble] or not findings(run, other)


def test_only_the_first_birth_counts() -> None:
    run = broken().fact(operation("exp", born=True), 20).fact(operation("log", born=True), 25).build()
    assert findings(run, "exp-overflow")
    assert not findings(run, "log-of-zero")


@pytest.mark.parametrize("trouble", ["sqrt", "log", "division"])
def test_a_finite_loss_and_nan_weights_point_at_an_infinite_gradient(trouble: str) -> None:
    builder = RunBuilder(60).scalar(LOSS_TRAIN, np.r_[np.ones(8), np.full(52, np.nan)])
    builder.fact(operation(trouble), 0).fact(NonfiniteFact("loss", "loss", "train", 1, 1), 8)
    run = builder.fact(NonfiniteFact("weight", "head.weight", "train", 8, 8), 8).build()
    (found,) = findings(run, RULES[trouble])
    assert found.first_step == 7
    assert found.confidence < 0.9
    assert "backward pass" in " ".join(e.text for e in found.evidence)


def test_a_bad_batch_is_not_blamed_on_the_operation() -> None:
    builder = RunBuilder(60).scalar(LOSS_TRAIN, np.ones(60)).fact(operation("sqrt"), 0)
    builder.fact(NonfiniteFact("input", "input", "train", 1, 1), 5)
    run = builder.fact(NonfiniteFact("weight", "head.weight", "train", 8, 8), 6).build()
    assert not findings(run, "sqrt-at-zero")


@pytest.mark.parametrize("trouble", RULES)
def test_an_edge_that_does_no_harm_is_not_told(trouble: str) -> None:
    run = RunBuilder(60).scalar(LOSS_TRAIN, np.ones(60)).fact(operation(trouble), 3).build()
    assert not findings(run, RULES[trouble])


def test_after_divergence_it_is_only_a_warning() -> None:
    run = broken(rise=500.0).fact(operation("exp", born=True), 20).build()
    (found,) = findings(run, "exp-overflow")
    assert found.severity is Severity.WARNING
    assert found.proof is Proof.STATISTICS
