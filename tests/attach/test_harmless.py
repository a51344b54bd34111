"""Attached or not, losses, weights and random state are the same bits."""

from __future__ import annotations

import inspect
import io
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy as held_before

import torchdoctor
from attach.loops import LOOPS
from torchdoctor.facts import LossCallFact

STEPS = 300


@pytest.mark.parametrize("every_step", [False, True], ids=["default", "every-signal-every-step"])
@pytest.mark.parametrize("name", LOOPS)
def test_same_bits_with_and_without(name: str, every_step: bool, tmp_path: Path) -> None:
    loop = LOOPS[name]
    bare = loop(STEPS)
    with torchdoctor.watch(out=tmp_path, every_step=every_step, quiet=True) as doctor:
        watched = loop(STEPS)
    assert watched == bare
    run = doctor.run()
    assert run is not None
    assert run.steps >= STEPS - 1


def test_nothing_of_ours_stays_behind(tmp_path: Path) -> None:
    places = (
        (torch.autograd, "backward"),
        (torch.optim.Optimizer, "zero_grad"),
        (torch.nn.functional, "cross_entropy"),
        (torch.nn.Module, "train"),
        (torch, "compile"),
    )

    def standing() -> list[object]:
        functions = [getattr(owner, name) for owner, name in places]
        return functions + [function.__code__ for function in functions]

    before = standing()
    hooks = torch.nn.modules.module._global_forward_hooks
    count = len(hooks)
    with torchdoctor.watch(out=tmp_path, quiet=True):
        LOOPS["dropout_mlp"](5)
        with torch.no_grad():
            assert "item" in vars(torch.Tensor)
        assert standing() != before
    assert standing() == before
    assert len(hooks) == count
    assert "item" not in vars(torch.Tensor)
    assert not torch.is_anomaly_enabled()


def test_scripting_sees_the_originals(tmp_path: Path) -> None:
    class WithLoss(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(x, y)

    with torchdoctor.watch(out=tmp_path, quiet=True):
        scripted = torch.jit.script(WithLoss())
        value = scripted(torch.zeros(2, 3), torch.tensor([0, 1]))
    assert value.item() == pytest.approx(1.0986, abs=1e-4)


class HoldsItsLoss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.loss = torch.nn.functional.cross_entropy


def test_a_model_that_holds_a_loss_function_can_be_saved_whenever_it_was_built(tmp_path: Path) -> None:
    function, signature = torch.nn.functional.cross_entropy, inspect.signature(torch.nn.functional.cross_entropy)
    before = HoldsItsLoss()
    with torchdoctor.watch(out=tmp_path, quiet=True):
        inside = HoldsItsLoss()
        torch.save(before, io.BytesIO())
        torch.save(inside, io.BytesIO())
        assert torch.nn.functional.cross_entropy is function
        assert inspect.signature(function) == signature
    torch.save(before, io.BytesIO())
    torch.save(inside, io.BytesIO())
    assert vars(function) == {}


def test_a_loss_function_imported_before_is_seen_all_the_same(tmp_path: Path) -> None:
    layer = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        for _ in range(4):
            optimizer.zero_grad()
            held_before(layer(torch.ones(2, 4)), torch.tensor([0, 1])).backward()
            optimizer.step()
    run = doctor._session.record.stored_run()
    assert [s.fact.function for s in run.seen if isinstance(s.fact, LossCallFact)][:1] == ["cross_entropy"]


def test_warnings_of_a_loss_function_name_the_users_line(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True), pytest.warns(UserWarning, match="target size") as caught:
        torch.nn.functional.mse_loss(torch.zeros(3, 1), torch.zeros(3))
    assert caught[0].filename == __file__


def test_compiled_code_that_calls_a_loss_function_is_one_graph(tmp_path: Path) -> None:
    x, y = torch.randn(8, 3), torch.zeros(8, dtype=torch.long)
    with torchdoctor.watch(out=tmp_path, quiet=True):
        fast = torch.compile(lambda a, b: torch.nn.functional.cross_entropy(2 * a, b), fullgraph=True, backend="eager")
        assert fast(x, y) == torch.nn.functional.cross_entropy(2 * x, y)
