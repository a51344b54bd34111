"""What is left over after a reconstruction: noise, or directions that the code had no room for."""

from __future__ import annotations

import torch

from torchdoctor.probes.residuals import common


def test_noise_has_all_its_directions() -> None:
    torch.manual_seed(0)
    for rows, columns in ((128, 64), (32, 64), (256, 16)):
        assert abs(float(common(torch.randn(rows, columns) * torch.rand(columns)))) < 0.1


def test_what_a_narrow_code_leaves_goes_together() -> None:
    torch.manual_seed(0)
    assert float(common(torch.randn(128, 12) @ torch.randn(12, 64))) > 0.5
