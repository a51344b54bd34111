"""The Triton way, as far as it goes without a GPU: its tables always, its kernels in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from stats.oddities import build
from torchdoctor.stats import triton

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "failure", None)
    triton._tables.clear()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 4 * triton.CHUNK), min_size=1, max_size=20))
def test_programs_cover_every_element_once(sizes: list[int]) -> None:
    work = triton._work(tuple(sizes), CPU)
    assert work.sizes.tolist() == sizes
    assert len(work.owners) == len(work.ordinals) == work.programs == work.firsts[-1]
    covered = np.zeros(len(sizes), np.int64)
    for program, (owner, ordinal) in enumerate(zip(work.owners.tolist(), work.ordinals.tolist(), strict=True)):
        assert work.firsts[owner] + ordinal == program
        held = min(sizes[owner] - ordinal * triton.CHUNK, triton.CHUNK)
        assert held > 0
        covered[owner] += held
    assert covered.tolist() == sizes


def test_tables_are_kept_for_lists_that_come_again_and_hold_no_tensor_of_the_user() -> None:
    tensors = [build((n,), torch.float32, n, 1.0, 0.0, 0.0) for n in (3, 70_000)]
    first, second = triton._batch(tensors), triton._batch(tensors)
    assert first.addresses is second.addresses and first.work is second.work
    assert first.addresses.tolist() == [t.data_ptr() for t in tensors]
    moved = triton._batch([t.clone() for t in tensors])
    assert moved.addresses is not first.addresses and moved.work is first.work
    for i in range(3 * triton.TABLES_KEPT):
        triton._kept(("other", i), lambda: None)
    assert len(triton._tables) == triton.TABLES_KEPT


def test_alignment_is_seen_and_odd_memory_refused() -> None:
    buffer = torch.zeros(65)
    assert triton._batch([buffer]).aligned
    assert not triton._batch([buffer, buffer[1:]]).aligned
    assert triton._batch([torch.zeros(4, 5).t()]).held[0].is_contiguous()
    for odd in (torch.zeros(1, 3).expand(9, 3), torch._efficientzerotensor(3)):
        with pytest.raises(ValueError, match="tensor"):
            triton._batch([odd])


def test_rows_keep_their_order_when_dtypes_mix() -> None:
    def length(tensors: list[Tensor]) -> Tensor:
        return torch.tensor([[float(t.numel())] for t in tensors])

    tensors = [torch.zeros(i + 1, dtype=(torch.float32, torch.float64, torch.float16)[i % 3]) for i in range(7)]
    rows = triton._by_dtype(tensors, length, lambda ts: -length(ts))  # type: ignore[arg-type]
    assert rows.flatten().tolist() == [1.0, -2.0, 3.0, 4.0, -5.0, 6.0, 7.0]


def test_a_failure_of_triton_is_the_last() -> None:
    with pytest.raises(RuntimeError), triton._guarded(CPU):
        raise RuntimeError("no compiler\nfound here")
    assert triton.failure == "RuntimeError: no compiler"
    with pytest.raises(torch.cuda.OutOfMemoryError), triton._guarded(CPU):
        triton.failure = None
        raise torch.cuda.OutOfMemoryError("full")
    assert triton.failure is None


def test_a_machine_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "_kernels", None)
    monkeypatch.setitem(sys.modules, "torchdoctor.stats.kernels", None)
    assert triton._load() is None
    assert "kernels" in (triton.failure or "")
    assert not triton.usable(torch.zeros(2))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_kernels_in_the_interpreter() -> None:
    script = Path(__file__).with_name("interpreted_kernels.py")
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)], env=environment, capture_output=True, text=True, timeout=280
    )
    if "only 0-dimensional arrays" in done.stderr:
        pytest.skip("this Triton's interpreter does not know this numpy")
    assert done.returncode == 0, done.stderr[-2000:]
