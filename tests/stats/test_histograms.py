"""Histograms in signed powers of two."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stats.oddities import FLOATS, build, sparse, unmeasurable
from stats.strategies import tensors
from torchdoctor import stats
from torchdoctor.signals import HISTOGRAM_BINS, histogram_edges
from torchdoctor.stats import histogram, reference


def test_edges_cover_the_line_once() -> None:
    edges = histogram_edges()
    assert len(edges) == HISTOGRAM_BINS
    assert edges[0][0] == -math.inf and edges[-1][1] == math.inf
    assert all(a[1] == b[0] for a, b in pairwise(edges))
    assert edges[HISTOGRAM_BINS // 2] == (0.0, 0.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(tensors(), min_size=1, max_size=3))
def test_counts_are_right(given_tensors: list[Tensor]) -> None:
    for row, tensor in zip(stats.histograms(given_tensors), given_tensors, strict=True):
        assert row.tolist() == reference.histogram(tensor)


@settings(max_examples=30, deadline=None)
@given(tensors(FLOATS))
def test_plain_operations_for_other_devices_count_the_same(tensor: Tensor) -> None:
    assert histogram._count_by_torch(tensor.reshape(-1)).tolist() == reference.histogram(tensor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_edges_zeros_and_denormals(dtype: torch.dtype) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 2.0**-36, -(2.0**-37), 4096.0, -4095.0, math.nan, math.inf, -math.inf]
    values += [torch.finfo(dtype).smallest_normal / 2, -torch.finfo(dtype).max]
    tensor = torch.tensor(values, dtype=dtype)
    row = stats.histograms([tensor])[0]
    assert row.tolist() == reference.histogram(tensor)
    assert row.sum() == len(values) - 3


def test_a_long_tensor_in_pieces() -> None:
    tensor = build((600_000,), torch.float32, 4, 1e-4, 0.0, 0.01)
    assert stats.histograms([tensor])[0].tolist() == reference.histogram(tensor)


def test_sparse_and_expanded() -> None:
    for tensor in [*sparse(5), torch.tensor([1.0, 0.0]).expand(3, 2)]:
        assert stats.histograms([tensor])[0].tolist() == reference.histogram(tensor)


def test_the_unmeasurable_is_nan() -> None:
    for odd in unmeasurable().values():
        rows = stats.histograms([odd, torch.ones(2)])  # type: ignore[list-item]
        assert rows[0].isnan().all() and rows[1].sum() == 2
