"""Captured tensors as numpy numbers: the same that torch reads, of every element type, whole or in part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from store.test_captures import write
from torchdoctor.attach.contents import DTYPES
from torchdoctor.attach.restoring import read_tensor
from torchdoctor.store.captured import open_capture
from torchdoctor.store.elements import to_numpy


@pytest.mark.parametrize("code", DTYPES)
def test_the_same_numbers_as_torch_reads(code: str, tmp_path: Path) -> None:
    size = torch.empty((), dtype=DTYPES[code]).element_size()
    raw = torch.arange(256 * size, dtype=torch.int64).mul(37).remainder(2 if code == "BOOL" else 256).to(torch.uint8)
    with open_capture(write(tmp_path / "run", {"batch/0": raw.view(DTYPES[code]).reshape(64, 4)})) as capture:
        whole = to_numpy(capture.read("batch/0"))
        some = to_numpy(capture.read_rows("batch/0", [5, 63, 0]))
        real = read_tensor(capture, "batch/0")
    real = real.abs() if real.is_complex() else real.float() if size < 4 and real.is_floating_point() else real
    np.testing.assert_array_equal(whole, real.numpy())
    np.testing.assert_array_equal(some, whole[[5, 63, 0]])


def test_only_rows_that_are_there(tmp_path: Path) -> None:
    with open_capture(write(tmp_path / "run", {"batch/0": torch.ones(3, 2), "batch/1": torch.ones(())})) as capture:
        for name, rows in (("batch/0", [3]), ("batch/0", [-1]), ("batch/1", [0])):
            with pytest.raises(IndexError):
                capture.read_rows(name, rows)
