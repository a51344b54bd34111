"""A part of a large output, for its histogram."""

from __future__ import annotations

import pytest
import torch

from torchdoctor.probes.activations import HISTOGRAM_ELEMENTS, _spread


@pytest.mark.parametrize("shape", [(65_536, 3), (300, 768), (40, 3, 64, 64), (1_000_000,), (8, 12, 96, 96)])
def test_every_unit_has_its_share(shape: tuple[int, ...]) -> None:
    for dim, size in enumerate(shape):
        numbers = torch.arange(size).reshape([-1 if at == dim else 1 for at in range(len(shape))])
        part = _spread(numbers.expand(shape))
        assert HISTOGRAM_ELEMENTS / 2 <= part.numel() <= 2 * HISTOGRAM_ELEMENTS
        if size <= 100:
            assert torch.bincount(part, minlength=size).min() >= 0.5 * part.numel() / size


def test_a_small_output_is_taken_whole() -> None:
    assert _spread(torch.zeros(64, 10)).shape == (64, 10)
