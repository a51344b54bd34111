"""Statistics of a module's output, its saturation and its living units."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stats.oddities import FLOATS, OTHERS, build
from stats.strategies import tensors
from torchdoctor import stats
from torchdoctor.stats import reference

KINDS = (None, "relu", "sigmoid", "hardsigmoid", "tanh", "hardtanh", "softmax")


@settings(max_examples=60, deadline=None)
@given(tensors(FLOATS), st.sampled_from(KINDS))
def test_activation_agrees_with_its_definition(output: Tensor, kind: str | None) -> None:
    squash = {"sigmoid": torch.sigmoid, "tanh": torch.tanh}.get(kind or "")
    output = squash(output) if squash else output
    got, want = stats.activation(output, kind).tolist(), reference.activation(output, kind)
    row = stats.summarize([output])[0].tolist()
    assert got[:4] == pytest.approx([row[1], row[2], row[3], row[5]], nan_ok=True)
    assert got[4] == pytest.approx(want[4], abs=1e-6, nan_ok=True)
    assert got[5] == want[5]


def test_saturation_at_its_limits() -> None:
    assert stats.activation(torch.tensor([0.0, 0.009, 0.011, 0.5, 0.989, 0.991, 1.0]), "sigmoid")[4].item() == (
        pytest.approx(4 / 7)
    )
    assert stats.activation(torch.tensor([-1.0, -0.97, 0.0, 0.981]), "tanh")[4].item() == pytest.approx(0.5)
    rows = torch.tensor([[0.995, 0.005], [0.5, 0.5]])
    assert stats.activation(rows, "softmax")[4].item() == 0.5
    assert stats.activation(rows.t(), "softmax", dim=0)[4].item() == 0.5
    assert stats.activation(rows, "relu")[4].isnan()


def test_half_precision_saturation_is_judged_exactly() -> None:
    output = torch.linspace(0, 1, 4001).bfloat16()
    assert stats.activation(output, "sigmoid")[4].item() == pytest.approx(reference.saturated(output, "sigmoid"))


@settings(max_examples=60, deadline=None)
@given(tensors(FLOATS + OTHERS), st.integers(-2, 3))
def test_alive_units_agree_with_their_definition(output: Tensor, dim: int) -> None:
    if not -output.dim() <= dim < output.dim():
        assert stats.alive_units(output, dim).shape == (0,)
        return
    assert stats.alive_units(output, dim).tolist() == reference.alive_units(output, dim).tolist()


def test_one_negative_value_keeps_a_unit_alive_and_so_does_nan() -> None:
    output = torch.zeros(3, 4, 2)
    output[1, 2, 0] = -1e-30
    output[2, 3, 1] = math.nan
    assert stats.alive_units(output, 1).tolist() == [False, False, True, True]


def test_a_dead_layer() -> None:
    output = build((16, 8, 5, 5), torch.float32, 0, 1.0, 0.0, 0.0).relu()
    output[:, 3] = 0.0
    alive = stats.alive_units(output, 1)
    assert alive.tolist() == [i != 3 for i in range(8)]
    assert stats.activation(output, "relu")[3].item() == pytest.approx((output == 0).double().mean().item())
