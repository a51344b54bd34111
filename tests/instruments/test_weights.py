"""The shape of weights, told from tensors whose shape is known."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import torchdoctor
from torchdoctor.errors import UsageError
from torchdoctor.instruments.one_look.histograms import leading_share


def kind_of(values: torch.Tensor) -> str:
    model = nn.Linear(values.shape[1], values.shape[0], bias=False)
    model.weight = nn.Parameter(values)
    return torchdoctor.weight_distribution(model).layers[0].kind


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (lambda: torch.randn(64, 64), "ordinary"),
        (lambda: torch.empty(64, 64).uniform_(-1, 1), "ordinary"),
        (lambda: torch.distributions.Laplace(0.0, 1.0).sample((64, 64)), "ordinary"),
        (lambda: torch.empty(64, 64).cauchy_(), "heavy-tailed"),
        (lambda: torch.randn(64, 64).sign(), "two-valued"),
        (lambda: torch.randn(64, 64) + 5 * torch.randn(64, 64).sign(), "bimodal"),
        (lambda: torch.randn(64, 64) * (torch.rand(64, 64) > 0.8), "sparse"),
        (lambda: torch.zeros(64, 64), "collapsed"),
        (lambda: torch.full((64, 64), 0.3), "collapsed"),
        (lambda: torch.randn(1, 64).expand(64, 64).clone(), "collapsed"),
        (lambda: torch.randn(64, 1) @ torch.randn(1, 64) + 0.01 * torch.randn(64, 64), "collapsed"),
        (lambda: 1e-6 * torch.randn(64, 64), "collapsed"),
        (lambda: torch.randn(4, 4), "small"),
    ],
)
def test_kinds(values, kind: str) -> None:  # type: ignore[no-untyped-def]
    assert kind_of(values()) == kind


def test_figures_in_closed_form() -> None:
    model = nn.Linear(32, 16, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([1.0, -3.0]).repeat(256).reshape(16, 32))
    spread = torchdoctor.weight_distribution(model).layers[0].spread
    size = math.sqrt(5)
    expected = (size, size * math.sqrt(32), 2 / size, 3 / size, -1 / size)
    assert (spread.size, spread.gain, spread.peaked, spread.giant, spread.centre) == pytest.approx(expected, rel=1e-5)


def test_leading_share_is_that_of_the_largest_singular_value() -> None:
    matrix = torch.randn(20, 30) + 0.5
    values = torch.linalg.svdvals(matrix)
    assert leading_share(matrix) == pytest.approx(float(values[0] ** 2 / values.square().sum()), rel=1e-3)


@pytest.mark.parametrize(
    "model", [nn.Linear(64, 64), nn.Conv2d(16, 32, 3), nn.LSTM(32, 32), nn.MultiheadAttention(64, 4)]
)
def test_fresh_layers_are_healthy(model: nn.Module) -> None:
    found = torchdoctor.weight_distribution(model)
    assert found.healthy and "as usual" in str(found)
    assert all(layer.counts.sum() == math.prod(layer.shape) for layer in found.layers)


def test_large_weights_are_not_called_usual() -> None:
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 10))
    assert not torchdoctor.weight_distribution(model).loud
    for layer in (model[0], model[3]):
        nn.init.normal_(layer.weight, std=3.0)
    found = torchdoctor.weight_distribution(model)
    said = str(found).splitlines()
    assert [layer.name for layer in found.loud] == ["3.weight", "0.weight"]
    assert "not at a usual size" in said[0] and "Far above" in said[1] and "large" in found.plot().layout.title.text


def test_words_and_picture() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.LayerNorm(64), nn.Embedding(50, 64))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with torch.no_grad():
        model[2].weight.cauchy_()
    found = torchdoctor.weight_distribution(model)
    assert found.of_kind("heavy-tailed") == ["2.weight"] and not found.healthy
    assert "2.weight" in str(found) and "giants" in str(found)
    assert "0.bias" in found.left_out
    figure = found.plot()
    assert "2.weight is heavy-tailed" in figure.layout.title.text
    assert len(figure.data) == 3
    assert torch.equal(before["0.weight"], model[0].weight)
    assert found.to_dict()["layers"][1]["spread"]["kind"] == "heavy-tailed"


def test_only_some() -> None:
    model = nn.ModuleDict({"encoder": nn.Linear(32, 32), "decoder": nn.Linear(32, 32)})
    assert [x.name for x in torchdoctor.weight_distribution(model, only="enc*").layers] == ["encoder.weight"]
    with pytest.raises(UsageError, match="no parameter that matches"):
        torchdoctor.weight_distribution(model, only=["head.*"])


def test_nan_is_said_and_half_precision_is_read() -> None:
    model = nn.Linear(32, 32).to(torch.bfloat16)
    assert torchdoctor.weight_distribution(model).healthy
    with torch.no_grad():
        model.weight[0, 0] = math.nan
    found = torchdoctor.weight_distribution(model)
    assert found.of_kind("non-finite") == ["weight"]
    assert found.plot() is not None


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(UsageError, match="has no parameters"):
        torchdoctor.weight_distribution(nn.ReLU())
    with pytest.raises(UsageError, match="too few"):
        torchdoctor.weight_distribution(nn.Linear(2, 2), bins=2)
    assert "no weight matrix" in str(torchdoctor.weight_distribution(nn.LayerNorm(4)))
