"""Summaries, norms and changes against their float64 definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stats.oddities import FLOATS, OTHERS, arrange, build, close, sparse, unmeasurable
from stats.strategies import tensors
from torchdoctor import stats
from torchdoctor.signals import STATISTICS, TINY
from torchdoctor.stats import cpu, foreach, reference


@settings(max_examples=100, deadline=None)
@given(st.lists(tensors(), min_size=1, max_size=6))
def test_summary_is_right_for_any_list(given_tensors: list[Tensor]) -> None:
    rows = stats.summarize(given_tensors)
    assert rows.shape == (len(given_tensors), len(STATISTICS))
    assert rows.dtype == torch.float32
    for row, tensor in zip(rows, given_tensors, strict=True):
        assert stats.unsupported(tensor) is None
        close(row, tensor)


@settings(max_examples=60, deadline=None)
@given(st.lists(tensors(FLOATS), min_size=1, max_size=4))
def test_plain_operations_for_other_devices_are_right(given_tensors: list[Tensor]) -> None:
    for row, tensor in zip(foreach.summarize(given_tensors), given_tensors, strict=True):
        close(row, tensor)


@settings(max_examples=100, deadline=None)
@given(st.lists(tensors(), min_size=1, max_size=6))
def test_norms_are_right_for_any_list(given_tensors: list[Tensor]) -> None:
    for got, tensor in zip(stats.norms(given_tensors).tolist(), given_tensors, strict=True):
        want = torch.tensor(reference.norm(tensor)).item()
        assert got == pytest.approx(want, rel=2e-5, nan_ok=True)


@settings(max_examples=40, deadline=None)
@given(st.lists(tensors(FLOATS), min_size=1, max_size=3), st.integers(0, 99))
def test_norms_and_changes_for_other_devices_are_right(given_tensors: list[Tensor], seed: int) -> None:
    sane = [torch.where(t.isfinite() & (t.abs() < 1e15) & (t.abs() > 1e-15), t, 1.0) for t in given_tensors]
    moved = [(t + build(tuple(t.shape), t.dtype, seed, 0.1, 0.0, 0.0)).to(t.dtype) for t in sane]
    wanted = [(reference.norm(t), reference.change_norm(t, m)) for t, m in zip(sane, moved, strict=True)]
    assert foreach.norms(sane).tolist() == pytest.approx([w[0] for w in wanted], rel=1e-4)
    assert foreach.change_norms(sane, moved).tolist() == pytest.approx([w[1] for w in wanted], rel=1e-4)


@settings(max_examples=60, deadline=None)
@given(tensors(FLOATS + OTHERS[:3]), st.integers(0, 2**31), st.sampled_from((1e-12, 1e-3, 1.0)))
def test_changes_are_right(before: Tensor, seed: int, size: float) -> None:
    step = build(tuple(before.shape), torch.float64, seed, size, 0.0, 0.0)
    after = (before.double() + step).to(before.dtype)
    got = stats.change_norms([before, before, torch.ones(3)], [after, before.clone(), torch.ones(3)])
    want = torch.tensor(reference.change_norm(before, after)).item()
    assert got[0].item() == pytest.approx(want, rel=1e-3, abs=1e-6 * size, nan_ok=True)
    assert got[2].item() == 0.0


def test_changes_between_different_layouts() -> None:
    before = build((20, 3, 30, 40), torch.float32, 0, 1.0, 0.0, 0.0)
    after = arrange(before + 0.5, "channels last")
    assert stats.change_norms([before], [after]).item() == pytest.approx(0.5 * math.sqrt(before.numel()), rel=1e-5)


def test_changes_of_pairs_that_do_not_fit_are_nan() -> None:
    found = stats.change_norms(
        [torch.ones(2), torch.ones(3), torch.zeros(2)], [torch.ones(2), torch.ones(4), torch.ones(2)]
    )
    assert found[0] == 0 and found[1].isnan() and found[2].item() == pytest.approx(math.sqrt(2))
    assert stats.change_norms([torch.ones(2)], [torch.ones(2), torch.ones(2)])[1].isnan()


@pytest.mark.parametrize("odd", [0.0, 0.2])
def test_sparse_tensors_count_their_implied_zeros(odd: float) -> None:
    for tensor in sparse(3, odd):
        close(stats.summarize([tensor])[0], tensor)
        assert stats.norms([tensor]).item() == pytest.approx(reference.norm(tensor), rel=1e-5, nan_ok=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("size", [cpu.SMALL - 1, cpu.SMALL, cpu.CHUNK, cpu.CHUNK + 1, 700_001])
def test_every_size_of_piece(dtype: torch.dtype, size: int) -> None:
    tensor = build((size,), dtype, size, 0.02, 0.0, 0.01)
    plain = build((size,), dtype, size, 0.02, 1.0, 0.0)
    for row, given_tensor in zip(stats.summarize([tensor, plain]), (tensor, plain), strict=True):
        close(row, given_tensor)


def test_small_spread_around_a_large_mean_keeps_its_digits() -> None:
    for size in (128, 200_000):
        tensor = (1 + 1e-5 * build((size,), torch.float64, 1, 1.0, 0.0, 0.0)).float()
        want = reference.summarize(tensor)[2]
        assert stats.summarize([tensor])[0, 2].item() == pytest.approx(want, rel=2e-3)
        assert stats.summarize([torch.full((size,), 0.1)])[0, 2].item() < 1e-8


def test_large_half_precision_sums_do_not_overflow() -> None:
    tensor = torch.full((300_000,), 60_000.0, dtype=torch.float16)
    l2, mean, *_ = stats.summarize([tensor])[0].tolist()
    assert l2 == pytest.approx(60_000 * math.sqrt(300_000), rel=1e-3)
    assert mean == pytest.approx(tensor[0].item(), rel=1e-3)
    assert stats.norms([tensor]).item() == pytest.approx(l2, rel=1e-4)


def test_the_limit_of_tiny_is_exact() -> None:
    below, at = torch.tensor(TINY, dtype=torch.float64), torch.tensor(TINY, dtype=torch.float32)
    rows = stats.summarize([below.nextafter(torch.tensor(0.0).double()), below, at, at.nextafter(torch.tensor(1.0))])
    assert rows[:, 6].tolist() == [1.0, 0.0, float(at.double() < TINY), 0.0]


def test_nan_hides_nothing_else() -> None:
    tensor = torch.tensor([3.0, math.nan, -4.0, math.inf])
    assert stats.summarize([tensor])[0].tolist() == pytest.approx([5.0, -0.5, 3.5, 4.0, 3.5, 0.0, 0.0, 2.0])
    assert stats.norms([tensor]).isnan().item()
    assert stats.norms([tensor[2:]]).isinf().item()


def test_an_expanded_tensor_is_not_copied() -> None:
    tensor = torch.tensor([[2.0], [math.nan]]).expand(2, 10**11)
    l2, mean, std, absmax, absmean, zeros, tiny, nonfinite = stats.summarize([tensor])[0].tolist()
    assert (mean, std, absmax, absmean, zeros, tiny, nonfinite) == (2.0, 0.0, 2.0, 2.0, 0.0, 0.0, pytest.approx(1e11))
    assert l2 == pytest.approx(2 * math.sqrt(1e11), rel=1e-5)


def test_no_tensors_no_rows() -> None:
    assert stats.summarize([]).shape == (0, len(STATISTICS))
    assert stats.norms([]).shape == stats.change_norms([], []).shape == (0,)


@pytest.mark.parametrize("name", list(unmeasurable()))
def test_the_unmeasurable_has_a_reason_and_spares_the_others(name: str) -> None:
    odd = unmeasurable()[name]
    assert stats.unsupported(odd)
    good = torch.tensor([3.0, 4.0])
    rows = stats.summarize([good, odd, good.double()])  # type: ignore[list-item]
    assert rows[1].isnan().all()
    assert rows[0, 0] == rows[2, 0] == 5.0
    assert stats.norms([odd, good]).tolist() == pytest.approx([math.nan, 5.0], nan_ok=True)  # type: ignore[list-item]
    assert stats.change_norms([odd], [odd]).isnan().all()  # type: ignore[list-item]


def test_a_distributed_tensor_is_unsupported() -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Shard, distribute_tensor

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        shards = distribute_tensor(torch.ones(4), DeviceMesh("cpu", [0]), [Shard(0)])
        assert "DTensor" in (stats.unsupported(shards) or "")
        assert stats.summarize([shards, torch.ones(1)])[:, 0].tolist() == pytest.approx([math.nan, 1.0], nan_ok=True)
        assert stats.norms([shards]).isnan().all()
    finally:
        dist.destroy_process_group()
