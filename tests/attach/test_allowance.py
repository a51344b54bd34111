from __future__ import annotations

from torchdoctor.attach.allowance import CLOSE_BATCHES, Allowance


def test_short_validations_are_seen_whole_and_long_ones_begin_closely() -> None:
    allowance = Allowance()
    seen = 0
    for _ in range(20):
        seen += allowance.permits(0)
        allowance.spend(0.01)
    assert seen == 20, "half a second is noticed by nobody"
    allowance.spend(1.0)
    for validation in (1, 2):
        permitted = []
        for _ in range(20):
            permitted.append(allowance.permits(validation))
            allowance.spend(0.01)
        assert permitted == [True] * CLOSE_BATCHES + [False] * (20 - CLOSE_BATCHES)
