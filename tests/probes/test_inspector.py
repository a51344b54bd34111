"""The birth of a NaN or Inf among all operations of a step, forward and backward."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from torchdoctor.attach.places import caller
from torchdoctor.probes.inspector import Birth, Inspector, Where

X = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
CAUSAL = torch.ones(16, 16).tril().bool()


class BadBackward(torch.autograd.Function):
    @staticmethod
    def forward(context: object, x: Tensor) -> Tensor:
        return x.abs()

    @staticmethod
    def backward(context: object, gradient: Tensor) -> Tensor:
        return gradient / torch.zeros_like(gradient)


def inspect(make: Callable[[Tensor], Tensor]) -> tuple[Birth | None, Tensor]:
    """The birth behind the loss, or else behind the gradient of the only weight."""
    inspector = Inspector(lambda: Where(caller(sys._getframe(1))), lambda t: None)
    weight = nn.Parameter(torch.randn(8, 4, generator=torch.Generator().manual_seed(1)))
    with inspector:
        loss = make(X @ weight)
        loss.backward()
    assert weight.grad is not None
    return inspector.birth_of(loss) or inspector.birth_of(weight.grad), loss


@pytest.mark.parametrize(
    ("make", "operator", "backward"),
    [
        (lambda h: torch.log(torch.relu(h)).mean(), "log", False),
        (lambda h: torch.sqrt(h * (h > 0)).sum(), "div", True),
        (lambda h: torch.where(h > 0, torch.log(h * (h > 0)), torch.zeros(())).sum(), "div", True),
        (lambda h: (torch.exp(100 * h) / torch.exp(100 * h).sum(1, keepdim=True)).sum(), "exp", False),
        (lambda h: h[:1].std(0).sum(), "std", False),
        (lambda h: (h / (h * 0).sum(1, keepdim=True)).sum(), "div", False),
        (lambda h: (h**0.5).sum(), "pow", False),
        (lambda h: torch.acos(h / h.detach().abs()).sum(), "rsqrt", True),
        (lambda h: (300 * h).half().square().float().mean(), "pow", False),
        (lambda h: (1e30 * h).half().float().mean(), "_to_copy", False),
        (lambda h: BadBackward.apply(h).sum(), "div", True),
        (lambda h: torch.softmax((h @ h.T).masked_fill(CAUSAL | ~CAUSAL, -torch.inf), -1).sum(), "_softmax", False),
    ],
)
def test_the_producer_is_named(make: Callable[[Tensor], Tensor], operator: str, backward: bool) -> None:
    birth, _ = inspect(make)
    assert birth is not None
    assert (birth.step.operator, birth.step.backward) == (operator, backward)
    assert not birth.step.parents or birth.step.operator == "_softmax"


def test_a_mask_of_infinities_is_meant() -> None:
    birth, loss = inspect(lambda h: torch.softmax((h @ h.T).masked_fill(~CAUSAL, -torch.inf), -1).square().sum())
    assert loss.isfinite()
    assert birth is None


def test_samples_values_and_the_way_to_the_loss_are_known() -> None:
    def loss(h: Tensor) -> Tensor:
        scores = h.abs() + 1.0
        zeros = torch.ones(16, 1)
        zeros[5] = 0.0
        return torch.log(scores * zeros).mean() * 2.0

    birth, _ = inspect(loss)
    assert birth is not None
    assert birth.step.samples(16) == (5,)
    assert birth.step.at == (0.0,)
    assert [s.operator for s in birth.chain] == ["log", "mean", "mul"]
    assert birth.step.where.place is not None
    assert birth.step.where.place.code.startswith("return torch.log")


def test_what_came_in_bad_has_its_name() -> None:
    data = torch.tensor([1.0, float("nan")])
    inspector = Inspector(Where, lambda t: "input" if t.data_ptr() == data.data_ptr() else None)
    with inspector:
        result = (data * 2.0).sum()
    birth = inspector.birth_of(result)
    assert birth is not None
    assert birth.step.foreign == ("input",)


def test_a_place_that_is_written_anew_is_clean_again() -> None:
    inspector = Inspector(Where, lambda t: None)
    with inspector:
        x = torch.zeros(3).log()
        x.fill_(1.0)
        y = x.sum()
    assert inspector.birth_of(x) is None
    assert inspector.birth_of(y) is None
