"""Updates by optimizers that ask for the loss again: none of the checks is lost to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from checks.programs import HEALTHY
from torchdoctor import check
from torchdoctor.checks.repeats.updating import step, wants_closure

UPDATING = ("loss-falls", "memorise", "repeated-start", "checkpoint-round-trip", "run-cost")


class SAM(Optimizer):
    """As its authors' readers write it (Foret et al., 2021): the gradients are there, and asked for once more."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        assert closure is not None
        held = [p for group in self.param_groups for p in group["params"]]
        climbed = [0.05 * p.grad / (p.grad.norm() + 1e-12) for p in held]
        for parameter, way in zip(held, climbed, strict=True):
            parameter.add_(way)
        with torch.enable_grad():
            closure()
        for parameter, way in zip(held, climbed, strict=True):
            parameter.sub_(way).sub_(self.param_groups[0]["lr"] * parameter.grad)


@pytest.mark.parametrize("make", [SAM, torch.optim.LBFGS])
def test_optimizers_with_a_closure_lose_no_check(make: Callable[..., Optimizer]) -> None:
    program = HEALTHY["mlp"]()
    optimizer = make(program.model.parameters(), lr=0.05)
    made = check(
        program.model,
        program.train,
        program.loss_fn,
        optimizer=optimizer,
        only=[*UPDATING, "useful-rate"],
        progress=False,
    )
    told = {c.check.name: c.outcome for c in made.checked}
    assert [name for name in UPDATING if not told[name].passed] == ["checkpoint-round-trip"], made
    assert "save and load were not handed over" in told["checkpoint-round-trip"].text
    assert "one gradient step at a time" in told["useful-rate"].text


@pytest.mark.parametrize("scheduled", [False, True])
def test_others_are_stepped_without(scheduled: bool) -> None:
    """A scheduler puts a function of its own in the place of `step`."""
    weight = nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    optimizer = torch.optim.SGD([weight], 0.5)
    if scheduled:
        torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
    step(optimizer, lambda: pytest.fail("the loss was computed again"))
    assert float(weight.detach()) == 0.5 and not wants_closure(optimizer)


def test_what_fails_for_another_reason_is_not_tried_again() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.5)
    optimizer.step = lambda: 1 / 0  # type: ignore[method-assign,assignment]
    with pytest.raises(ZeroDivisionError):
        step(optimizer, lambda: pytest.fail("the loss was computed again"))
