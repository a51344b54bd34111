from __future__ import annotations

import pytest

from torchdoctor.distributions.multiplicity import holm


def test_each_chance_is_worth_less_the_more_were_looked_at() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02] and holm([]) == []
