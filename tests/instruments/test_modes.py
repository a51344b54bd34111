"""A mode for a while, and every submodule back in its own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchdoctor
from torchdoctor.errors import UsageError


def model_with_frozen_norm() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
    model[1].eval()
    return model


def modes(model: nn.Module) -> list[bool]:
    return [m.training for m in model.modules()]


def test_evaluating_puts_every_submodule_back() -> None:
    model = model_with_frozen_norm()
    before = modes(model)
    with torchdoctor.evaluating(model) as same:
        assert same is model
        assert not any(modes(model)) and not torch.is_grad_enabled()
        with torchdoctor.training(model):
            assert all(modes(model)) and torch.is_grad_enabled()
        assert not any(modes(model)) and not torch.is_grad_enabled()
    assert modes(model) == before and torch.is_grad_enabled()


def test_restored_after_an_error() -> None:
    model = model_with_frozen_norm()
    before = modes(model)
    with pytest.raises(ZeroDivisionError), torchdoctor.evaluating(model):
        _ = 1 / 0
    assert modes(model) == before and torch.is_grad_enabled()


def test_gradients_on_request() -> None:
    model, x = model_with_frozen_norm(), torch.randn(3, 4, requires_grad=True)
    with torch.no_grad(), torchdoctor.evaluating(model, grad=True):
        model(x).sum().backward()
    assert x.grad is not None
    with torchdoctor.evaluating(model, inference=True):
        assert model(x).is_inference()
    with torchdoctor.training(model, grad=False):
        assert model.training and not model(x).requires_grad


def test_as_decorators() -> None:
    model = model_with_frozen_norm()

    @torchdoctor.evaluating(model)
    def accuracy(depth: int = 1) -> bool:
        return not any(modes(model)) and not torch.is_grad_enabled() and (depth == 0 or accuracy(depth - 1))

    before = modes(model)
    assert accuracy() and accuracy()
    assert modes(model) == before


def test_several_models() -> None:
    one, other = model_with_frozen_norm(), nn.Dropout().eval()
    with torchdoctor.training(one, other):
        assert all(modes(one)) and other.training
    assert not other.training and not one[1].training


def test_what_is_no_model_is_said() -> None:
    with pytest.raises(UsageError, match="not a torch"), torchdoctor.evaluating("model"):  # type: ignore[arg-type]
        pass
    with pytest.raises(UsageError, match="hand over the model"), torchdoctor.training():
        pass
    with (
        pytest.raises(UsageError, match="exclude each other"),
        torchdoctor.evaluating(nn.Dropout(), grad=True, inference=True),
    ):
        pass
