from __future__ import annotations

from math import comb

import pytest

from torchdoctor.distributions.binomial import at_least, at_most


@pytest.mark.parametrize(
    ("hits", "draws", "chance"), [(0, 1, 0.5), (3, 10, 0.02), (9, 10, 0.7), (30, 40, 0.99), (7, 5, 0.1)]
)
def test_tails_are_sums_of_the_mass(hits: int, draws: int, chance: float) -> None:
    mass = [comb(draws, k) * chance**k * (1 - chance) ** (draws - k) for k in range(draws + 1)]
    assert at_least(hits, draws, chance) == pytest.approx(sum(mass[hits:]), rel=1e-9, abs=1e-300)
    assert at_most(hits, draws, chance) == pytest.approx(sum(mass[: hits + 1]), rel=1e-9)


def test_far_tails_and_many_draws() -> None:
    assert at_least(1_000, 20_000, 0.04) == pytest.approx(1.0 - at_most(999, 20_000, 0.04), abs=1e-9)
    assert at_least(400, 500, 0.02) < 1e-300
    assert at_most(-1, 10, 0.5) == 0.0
    assert at_least(0, 0, 0.5) == 1.0


def test_a_chance_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        at_least(1, 2, 1.0)
