"""Runs the Triton kernels on the CPU in Triton's interpreter, against the reference. Started by test_kernels.py."""

from __future__ import annotations

import math

import torch

from stats.oddities import build, close
from torchdoctor.stats import reference, triton


def main() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        tensors = [
            build((7,), dtype, 0, 1.0, 0.0, 0.0),
            build((triton.CHUNK + 5,), dtype, 1, 0.1, 1.0, 0.1),
            build((33,), dtype, 2, 1e20, 0.0, 0.0),
            build((2 * triton.BLOCK,), dtype, 3, 1e-25, 0.0, 0.0),
            torch.full((3,), math.nan, dtype=dtype),
            torch.empty(0, dtype=dtype),
            torch.tensor(5.0, dtype=dtype),
            torch.ones(200, dtype=dtype)[3:],
        ]
        for row, tensor in zip(triton.summarize(tensors), tensors, strict=True):
            close(row, tensor)
        for row, tensor in zip(triton.histograms(tensors), tensors, strict=True):
            assert row.tolist() == reference.histogram(tensor), tensor
        after = [t + 1 for t in tensors]
        for got, a, b in zip(triton.change_norms(tensors, after).tolist(), tensors, after, strict=True):
            want = reference.change_norm(a, b)
            assert math.isclose(got, want, rel_tol=1e-4) or (math.isnan(got) and not math.isfinite(want)), (got, want)


if __name__ == "__main__":
    main()
