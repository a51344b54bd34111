"""Batches, features, spread of units."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stats.oddities import FLOATS, OTHERS, build, sparse
from stats.strategies import tensors
from torchdoctor import stats
from torchdoctor.stats import reference
from torchdoctor.stats.batch import MOST_FEATURES


@settings(max_examples=60, deadline=None)
@given(tensors())
def test_batch_agrees_with_its_definition(tensor: Tensor) -> None:
    mean, std, low, high, nonfinite = stats.batch(tensor).tolist()
    row = stats.summarize([tensor])[0].tolist()
    want = torch.tensor(reference.batch(tensor)).tolist()
    assert [mean, std] == pytest.approx([row[1], row[2]], nan_ok=True)
    assert [low, high] == pytest.approx(want[2:4], rel=1e-6, nan_ok=True)
    assert nonfinite == want[4]


def test_batch_of_sparse_inputs_counts_implied_zeros() -> None:
    for tensor in sparse(2):
        want = torch.tensor(reference.batch(tensor)).tolist()
        assert stats.batch(tensor).tolist() == pytest.approx(want, rel=1e-5, abs=1e-6)


def test_raw_pixels() -> None:
    pixels = (build((8, 3, 64, 64), torch.float32, 0, 60.0, 2.0, 0.0).clamp(0, 255)).to(torch.uint8)
    assert stats.batch(pixels).tolist() == pytest.approx(reference.batch(pixels), rel=1e-4)


@settings(max_examples=60, deadline=None)
@given(tensors(), st.integers(0, 3))
def test_features_agree_with_batches_of_each(tensor: Tensor, dim: int) -> None:
    found = stats.features(tensor, dim)
    if dim >= tensor.dim():
        assert found.shape == (4, 0)
        return
    step = max(1, math.ceil(tensor.shape[dim] / MOST_FEATURES))
    picked = list(tensor.unbind(dim))[::step] if tensor.shape[dim] else []
    assert found.shape == (4, len(picked))
    for column, feature in list(zip(found.t(), picked, strict=True))[:40]:
        mean, std, low, high, _ = torch.tensor(reference.batch(feature)).tolist()
        size = max(abs(low), abs(high)) if not math.isnan(low) else 0.0
        assert column[0].item() == pytest.approx(mean, rel=1e-4, abs=2e-6 * size, nan_ok=True)
        assert column[2:].tolist() == pytest.approx([low, high], rel=1e-6, nan_ok=True)
        if size < 1e18:
            assert column[1].item() == pytest.approx(std, rel=2e-3, abs=2e-6 * size + 1e-22, nan_ok=True)


def test_at_most_256_features() -> None:
    tensor = torch.arange(1000.0).expand(4, 1000)
    found = stats.features(tensor, 1)
    assert found.shape == (4, 250)
    assert found[0].tolist() == torch.arange(0.0, 1000.0, 4.0).tolist()


@settings(max_examples=60, deadline=None)
@given(tensors(FLOATS + OTHERS))
def test_unit_spread_agrees_with_its_definition(tensor: Tensor) -> None:
    finite = tensor if not tensor.is_floating_point() else torch.where(tensor.isfinite(), tensor, 0.0)
    want = reference.unit_spread(finite)
    scale = reference.summarize(finite)[3]
    if math.isnan(scale) or 1e-30 < scale < 1e30:
        assert stats.unit_spread(finite).item() == pytest.approx(want, rel=1e-3, abs=1e-6, nan_ok=True)


def test_equal_units_have_no_spread() -> None:
    assert stats.unit_spread(torch.full((8, 4), 0.3)).item() == 0.0
    assert stats.unit_spread(torch.tensor([[1.0, 2.0], [1.0, 2.0]])).item() == 0.0
    assert stats.unit_spread(torch.tensor([[1.0, 2.0], [1.0, -2.0]])).item() == 2.0
    for odd in (torch.zeros(3, 3), torch.ones(5), torch.ones(1, 5), torch.tensor([[1.0, math.nan], [1.0, 1.0]])):
        assert stats.unit_spread(odd).isnan()
