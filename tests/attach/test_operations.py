"""What the graph of a broken loss tells, on real graphs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from torchdoctor.facts import OperationFact
from torchdoctor.probes.graph import walk
from torchdoctor.probes.operations import OperationProbe


def probe() -> tuple[OperationProbe, list[OperationFact]]:
    written: list[OperationFact] = []
    record = SimpleNamespace(fact=lambda fact, step, subject="": written.append(fact))
    context: Any = SimpleNamespace(record=record, step=3, names=SimpleNamespace(name_of=lambda p: "fc.weight"))
    return OperationProbe(context), written


def x(*values: float) -> Tensor:
    return torch.tensor(values, requires_grad=True)


CASES: dict[str, Callable[[], Tensor]] = {
    "log": lambda: (x(0.5, 0.0, 1.0) * 1.0).log().sum(),
    "division": lambda: ((x(1.0, 0.0) * 1.0) / torch.tensor([0.0, 2.0])).sum(),
    "exp": lambda: torch.exp(x(1.0, 200.0) * 1.0).log().sum(),
}


@pytest.mark.parametrize("trouble", CASES)
def test_the_birth_is_found(trouble: str) -> None:
    operations, written = probe()
    operations.trace(CASES[trouble]())
    (fact,) = written
    assert (fact.trouble, fact.born, fact.count) == (trouble, True, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda v: v[v > 9].mean(),
        lambda v: v[:1].std(),
        lambda v: (v - v).reciprocal().sum(),
        lambda v: (v - v).pow(-0.5).sum(),
        lambda v: (v - v).rsqrt().sum(),
    ],
)
def test_other_ways_to_divide_by_zero(make: Callable[[Tensor], Tensor]) -> None:
    operations, written = probe()
    operations.trace(make(x(1.0, 2.0, 3.0) * 1.0))
    assert [f.trouble for f in written] == ["division"]


def test_the_first_in_the_forward_pass_is_the_cause() -> None:
    operations, written = probe()
    weights = torch.exp(x(1.0, 200.0) * 1.0)
    operations.trace(torch.log(weights / weights.sum()).sum())
    assert [f.trouble for f in written] == ["exp"]


def test_nan_that_came_in_is_nobodys_birth() -> None:
    operations, written = probe()
    operations.trace(torch.log(x(float("nan"), 0.0) * 1.0).sum())
    assert written == []


def test_half_precision_that_overflows() -> None:
    operations, written = probe()
    wide = x(300.0, 2.0).half()
    operations.trace(((wide * wide) * wide).float().sum())
    assert [(f.trouble, f.dtype) for f in written] == [("half", "float16")]


def test_a_look_notes_a_root_at_zero_once_and_its_line_is_remembered() -> None:
    operations, written = probe()
    for values in ((4.0, 1.0), (4.0, 0.0), (1.0, 0.0)):
        loss = torch.sqrt(x(*values) * 1.0).sum()
        graph = walk(loss)
        assert graph is not None
        operations.look(loss, graph)
    assert [(f.trouble, f.over, f.count) for f in written] == [("sqrt", False, 0), ("sqrt", True, 1)]


def test_a_graph_without_such_operations_is_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    operations, written = probe()
    loss = (x(1.0, 2.0) * 2.0).sum()
    graph = walk(loss)
    assert graph is not None
    monkeypatch.setattr("torchdoctor.probes.operations.in_order", pytest.fail)
    operations.look(loss, graph)
    assert written == []
