"""Types that do not go together are said by every instrument, and other errors stay what they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from torchdoctor.errors import UsageError

X, Y = torch.randn(96, 5), torch.randint(0, 3, (96,))


def call(name: str, data: Any, loss: Any = None) -> Any:
    model = nn.Linear(5, 3)
    optimizer = (torch.optim.SGD(model.parameters(), 0.1),) if name in ("find_lr", "suggest_clipping") else ()
    function = getattr(torchdoctor, name)
    return function(model, *optimizer, data, loss or nn.CrossEntropyLoss(), progress=False)


NAMES = (
    "find_lr",
    "overfit_batch",
    "suggest_clipping",
    "gradient_noise_scale",
    "sharpness",
    "landscape",
    "evaluate",
)


@pytest.mark.parametrize("name", NAMES)
def test_inputs_of_another_type_than_the_weights(name: str) -> None:
    with pytest.raises(UsageError, match=r"different types.*inputs\.float\(\)"):
        call(name, DataLoader(TensorDataset(X.double(), Y), 8))


@pytest.mark.parametrize("name", NAMES)
def test_an_error_of_the_model_itself_stays(name: str) -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        call(name, DataLoader(TensorDataset(X[:, :4], Y), 8))


@pytest.mark.parametrize("name", NAMES)
def test_inference_mode_around_an_instrument_does_not_matter(name: str) -> None:
    loader = DataLoader(TensorDataset(X, Y), 8)
    model = nn.Linear(5, 3)
    optimizer = (torch.optim.SGD(model.parameters(), 0.1),) if name in ("find_lr", "suggest_clipping") else ()
    with torch.inference_mode():
        found = getattr(torchdoctor, name)(model, *optimizer, loader, nn.CrossEntropyLoss(), progress=False)
        assert torch.is_inference_mode_enabled() and str(found)


def test_a_model_made_in_inference_mode_can_be_evaluated_there() -> None:
    with torch.inference_mode():
        found = torchdoctor.evaluate(nn.Linear(5, 3), DataLoader(TensorDataset(X, Y), 8), progress=False)
    assert found.samples == 96


def test_a_loss_without_a_graph_has_no_rate() -> None:
    with pytest.raises(UsageError, match="hangs on no trainable parameter"):
        call("find_lr", [(X, Y)], lambda outputs, target: nn.functional.cross_entropy(outputs, target).detach())


@pytest.mark.parametrize("name", ["sharpness", "landscape"])
def test_weights_without_a_shape_cannot_be_moved(name: str) -> None:
    with pytest.raises(UsageError, match="without a shape yet"):
        getattr(torchdoctor, name)(nn.LazyLinear(3), [(X, Y)], nn.CrossEntropyLoss())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_models_are_measured_without_hooks() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 3)))
    assert torchdoctor.overfit_batch(model, (X[:8], Y[:8]), nn.CrossEntropyLoss(), progress=False).success
    found = torchdoctor.sharpness(model, [(X, Y)], nn.CrossEntropyLoss(), directions=2, iterations=2, progress=False)
    assert found.kind is not None
