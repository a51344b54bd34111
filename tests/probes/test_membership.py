from __future__ import annotations

import torch

from torchdoctor.probes.membership import measure_spread


def test_values_that_are_missing_are_no_sign_of_equal_samples() -> None:
    x = torch.randn(32, 8)
    x[3, 2] = torch.nan
    spread = measure_spread(x)
    assert spread is not None
    assert spread.isnan()
    assert measure_spread(torch.zeros(32, 8)) == 0
