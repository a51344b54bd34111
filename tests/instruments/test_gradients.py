"""What a backward() has left behind, in figures and in words."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import torchdoctor
from torchdoctor.errors import UsageError


def test_figures_in_closed_form() -> None:
    model = nn.Linear(2, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[3.0, 4.0]]))
    model(torch.tensor([[2.0, 0.0]])).sum().backward()
    summary = torchdoctor.gradient_summary(model)
    weight, bias = summary.parameters
    assert (weight.norm, weight.largest, weight.zeros, weight.ratio) == pytest.approx((2.0, 2.0, 0.5, 0.4))
    assert bias.norm == 1.0
    assert summary.norm == pytest.approx(float(nn.utils.clip_grad_norm_(model.parameters(), 1e9)))
    assert "reach all 2 trainable parameters" in str(summary)
    assert summary.to_dict()["parameters"][0]["shape"] == [1, 2]


@pytest.mark.parametrize(("factor", "profile"), [(0.1, "exploding"), (1.0, "even"), (1.3, "even"), (10.0, "vanishing")])
def test_profile_over_the_depth(factor: float, profile: str) -> None:
    model = nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(8)))
    for depth, layer in enumerate(model):
        layer.weight.grad = torch.randn(16, 16) * factor**depth
    summary = torchdoctor.gradient_summary(model)
    assert summary.profile == profile
    assert summary.healthy == (profile == "even")


def test_a_deep_sigmoid_stack_vanishes() -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(12) for part in (nn.Linear(16, 16), nn.Sigmoid())]
    model = nn.Sequential(*layers, nn.Linear(16, 2))
    nn.functional.cross_entropy(model(torch.randn(32, 16)), torch.randint(0, 2, (32,))).backward()
    summary = torchdoctor.gradient_summary(model)
    assert summary.profile == "vanishing"
    assert str(summary).startswith("Gradients vanish")
    assert "towards the first layers" in summary.plot().layout.title.text


def test_what_has_none_is_named() -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 4), "unused": nn.Linear(4, 4), "frozen": nn.Linear(4, 4)})
    model["frozen"].requires_grad_(False)
    loss = model["used"](torch.randn(3, 4)).relu().mul(0).sum()
    loss.backward()
    summary = torchdoctor.gradient_summary(model)
    assert summary.missing == ["unused.weight", "unused.bias"]
    assert summary.frozen == ["frozen.weight", "frozen.bias"]
    assert summary.zero == ["used.weight", "used.bias"]
    assert "4 of 4 parameters get no gradient" in str(summary)
    model.zero_grad()
    assert str(torchdoctor.gradient_summary(model)).startswith("No parameter has a gradient")


def test_nan_in_a_gradient() -> None:
    model = nn.Linear(3, 2)
    model(torch.ones(1, 3)).sum().backward()
    model.weight.grad[1, 2] = math.nan
    summary = torchdoctor.gradient_summary(model)
    assert summary.nonfinite == ["weight"] and math.isnan(summary.norm)
    assert summary.parameters[0].nonfinite == 1
    assert str(summary).startswith("Gradients hold NaN or Inf in 1 of 2")


def test_sparse_and_lazy_parameters() -> None:
    model = nn.Sequential(nn.Embedding(10, 4, sparse=True), nn.Linear(4, 2), nn.LazyLinear(3))
    model[1](model[0](torch.tensor([1, 2]))).sum().backward()
    summary = torchdoctor.gradient_summary(model)
    assert summary.parameters[0].zeros == pytest.approx(0.8)
    assert "2.weight" in summary.missing


def test_weights_of_zeros_have_no_ratio() -> None:
    model = nn.Linear(3, 2)
    nn.init.zeros_(model.bias)
    model(torch.ones(1, 3)).sum().backward()
    row = str(torchdoctor.gradient_summary(model)).splitlines()[-1]
    assert row.split()[0] == "bias" and row.split()[-1] == "-"


def test_a_frozen_model_is_called_frozen() -> None:
    text = str(torchdoctor.gradient_summary(nn.Linear(3, 2).requires_grad_(False)))
    assert text.startswith("All 2 parameters are frozen")


def test_many_parameters_stay_readable() -> None:
    model = nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(100)))
    model(torch.randn(2, 16)).sum().backward()
    text = str(torchdoctor.gradient_summary(model))
    assert len(text.splitlines()) < 35 and "more" in text


def test_find_nonfinite_says_where() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 3)).square().sum().backward()
    optimizer.step()
    report = torchdoctor.find_nonfinite(model, optimizer)
    assert report.finite and not report and "All is finite" in str(report)
    with torch.no_grad():
        model[0].weight[1, 1] = math.inf
        model[0].weight[1, 2] = math.nan
        model[1].running_var[0] = math.nan
    optimizer.state[model[0].bias]["exp_avg"][1] = math.nan
    model[0].bias.grad[0] = -math.inf
    report = torchdoctor.find_nonfinite(model, optimizer)
    assert [(f.kind, f.name) for f in report.found] == [
        ("parameter", "0.weight"),
        ("buffer", "1.running_var"),
        ("gradient", "0.bias"),
        ("optimizer state", "0.bias: exp_avg"),
    ]
    first = report.first
    assert first is not None and (first.nan, first.inf, first.first) == (1, 1, (1, 1))
    assert "1 of 4 parameters" in str(report) and "checkpoint" in str(report)
    assert len(report.plot().data) == 2
    assert report.to_dict()["found"][0]["name"] == "0.weight"


def test_only_gradients_broken() -> None:
    model = nn.Linear(2, 1)
    model(torch.ones(1, 2)).sum().backward()
    model.weight.grad.fill_(math.nan)
    assert "not taking this step" in str(torchdoctor.find_nonfinite(model))


@pytest.mark.parametrize("function", [torchdoctor.gradient_summary, torchdoctor.find_nonfinite])
def test_no_model_is_said(function) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match="not a torch"):
        function([1, 2])
    if function is torchdoctor.gradient_summary:
        with pytest.raises(UsageError, match="no parameters"):
            function(nn.ReLU())
