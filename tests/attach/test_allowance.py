from __future__ import annotations

import pytest

from torchdoctor.attach.allowance import CLOSE_BATCHES, Allowance
from torchdoctor.attach.ceiling import Ceiling

pytestmark = pytest.mark.usefixtures("usual_ceiling")


def test_short_validations_are_seen_whole_and_long_ones_begin_closely() -> None:
    ceiling = Ceiling(0.0)
    allowance = Allowance(ceiling)
    seen = 0
    for _ in range(20):
        seen += allowance.permits(0)
        allowance.spend(0.001)
    assert seen == 20, "nobody notices so little"
    allowance.spend(1.0)
    for validation in (1, 2):
        permitted = []
        for _ in range(20):
            permitted.append(allowance.permits(validation))
            allowance.spend(0.01)
        assert permitted == [True] * CLOSE_BATCHES + [False] * (20 - CLOSE_BATCHES)
    assert ceiling.spent_seconds > 1.4, "training pays for them, too"
