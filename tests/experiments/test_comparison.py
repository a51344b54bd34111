"""Statistics of seeds against values from tables, G*Power and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchdoctor.distributions.student import noncentral_t_cdf, t_cdf, t_quantile
from torchdoctor.errors import UsageError
from torchdoctor.experiments import comparison
from torchdoctor.experiments.comparison import compare_pairs, summarise

SLEEP_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SLEEP_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
"""Student's own data of 1908, extra hours of sleep under two drugs; t = 4.0621, p = 0.002833, 0.70 to 2.46."""


@pytest.mark.parametrize(
    ("share", "df", "expected"),
    [(0.975, 1, 12.7062), (0.975, 4, 2.77645), (0.975, 9, 2.26216), (0.95, 2, 2.91999), (0.995, 30, 2.75000)],
)
def test_quantiles_are_those_of_the_tables(share: float, df: int, expected: float) -> None:
    assert t_quantile(share, df) == pytest.approx(expected, abs=6e-5)
    assert t_quantile(1 - share, df) == pytest.approx(-expected, abs=6e-5)
    assert t_cdf(t_quantile(share, df), df) == pytest.approx(share, abs=1e-12)


def test_one_degree_of_freedom_is_cauchys_distribution() -> None:
    for t in (-30.0, -1.0, 0.0, 0.3, 1.0, 50.0):
        assert t_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-13)
    assert (t_cdf(math.inf, 3), t_cdf(-math.inf, 3)) == (1.0, 0.0)


def test_the_noncentral_one() -> None:
    for df in (1, 2, 4, 30, 500):
        for t in (-2.0, 0.0, 1.7):
            assert noncentral_t_cdf(t, df, 0.0) == pytest.approx(t_cdf(t, df), abs=1e-9)
        assert noncentral_t_cdf(0.0, df, 1.3) == pytest.approx(0.5 * math.erfc(1.3 / math.sqrt(2)), abs=1e-9)


def test_the_noncentral_one_as_scipy_has_it() -> None:
    stats = pytest.importorskip("scipy.stats")
    for df, t, shift in ((4, 2.78, 2.2), (9, -1.0, 0.5), (1, 5.0, 3.0), (199, 1.97, 2.8), (4, 40.0, 20.0)):
        assert noncentral_t_cdf(t, df, shift) == pytest.approx(float(stats.nct.cdf(t, df, shift)), abs=1e-7)


@pytest.mark.parametrize(("effect", "seeds"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10), (1.5, 6), (3.0, 4)])
def test_seeds_needed_as_in_the_tables_for_paired_tests(effect: float, seeds: int) -> None:
    assert comparison.seeds_needed(effect) == seeds
    assert comparison.power(effect, seeds) >= 0.8 > comparison.power(effect, seeds - 1)


def test_seeds_needed_at_the_ends() -> None:
    assert comparison.seeds_needed(0.0) is None
    assert comparison.seeds_needed(0.001) is None
    assert comparison.seeds_needed(math.inf) == 2
    assert comparison.power(0.5, 34) == pytest.approx(0.8077775, abs=1e-6)


def test_what_can_be_found_is_the_inverse_of_what_is_needed() -> None:
    for n in (3, 5, 10):
        assert comparison.power(comparison.detectable(n), n) == pytest.approx(0.8, abs=1e-9)
    assert comparison.detectable(1) == math.inf


def test_mean_and_interval() -> None:
    spread = summarise([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (spread.n, spread.mean, spread.least, spread.most) == (5, 3.0, 1.0, 5.0)
    assert spread.sd == pytest.approx(math.sqrt(2.5))
    assert spread.high == pytest.approx(3.0 + 2.7764451 * math.sqrt(0.5), abs=1e-6)
    alone = summarise([0.5])
    assert (alone.mean, alone.sd, alone.low) == (0.5, None, None)


def test_students_own_example() -> None:
    paired = compare_pairs(SLEEP_1, SLEEP_2)
    assert paired.t == pytest.approx(4.0621, abs=1e-4)
    assert paired.p == pytest.approx(0.002833, abs=1e-6)
    assert (paired.low, paired.high) == pytest.approx((0.7001142, 2.4598858), abs=1e-6)
    assert paired.told_apart
    assert paired.share_better == 0.95
    assert paired.p_flips == 2 * 2 / 2**10  # no flip of the nine that are positive reaches the sum; the zero is free


def test_the_effects_interval_holds_what_is_expected_at_its_ends() -> None:
    paired = compare_pairs(SLEEP_1, SLEEP_2)
    df = 9
    exact = math.exp(math.lgamma(df / 2) - math.lgamma((df - 1) / 2)) / math.sqrt(df / 2)
    assert paired.effect == pytest.approx(exact * paired.difference / paired.sd)
    assert exact == pytest.approx(1 - 3 / (4 * df - 1), abs=2e-3)
    root = math.sqrt(10)
    assert noncentral_t_cdf(paired.t, df, paired.effect_low * root) == pytest.approx(0.975, abs=1e-9)
    assert noncentral_t_cdf(paired.t, df, paired.effect_high * root) == pytest.approx(0.025, abs=1e-9)


def test_flips_are_counted_exactly() -> None:
    assert comparison.flip_signs([1.0, 2.0, 3.0]) == 2 / 8
    assert comparison.flip_signs([1.0, -1.0]) == 1.0
    assert comparison.flip_signs([1.0, 2.0, -3.0, 4.0]) == 10 / 16
    brute = np.array([0.3, -0.1, 0.7, 0.2, 0.15])
    sums = [abs(float(np.dot(1 - 2 * np.array(signs), brute))) for signs in np.ndindex(*(2,) * 5)]
    assert comparison.flip_signs(brute) == sum(s >= abs(brute.sum()) - 1e-12 for s in sums) / 32


def test_many_pairs_are_drawn_and_agree_with_the_t_test() -> None:
    d = np.random.default_rng(3).normal(0.3, 1.0, 40)
    paired = compare_pairs(np.zeros(40), d)
    assert paired.p_flips == pytest.approx(paired.p, abs=0.01)
    assert comparison.flip_signs(d) == paired.p_flips


def test_equal_and_constant_differences() -> None:
    same = compare_pairs([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert (same.difference, same.p, same.p_flips, same.told_apart) == (0.0, 1.0, 1.0, False)
    assert same.seeds_needed is None
    shifted = compare_pairs([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    assert (shifted.sd, shifted.p, shifted.told_apart) == (0.0, 0.0, True)
    assert shifted.seeds_needed == 2


def test_false_alarms_come_as_often_as_promised() -> None:
    d = np.random.default_rng(0).normal(size=(20_000, 5))
    half = t_quantile(0.975, 4) * d.std(1, ddof=1) / math.sqrt(5)
    assert (abs(d.mean(1)) > half).mean() == pytest.approx(0.05, abs=0.006)
    for row in d[:5]:
        assert compare_pairs(np.zeros(5), row).told_apart == (
            abs(row.mean()) > half[np.flatnonzero((d == row).all(1))[0]]
        )


def test_two_single_runs_of_one_program() -> None:
    assert comparison.noise_of_one(0.5, 5) == pytest.approx(2.7764451 * 0.5 * math.sqrt(2), abs=1e-6)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(UsageError, match="at least one value"):
        summarise([])
    with pytest.raises(UsageError, match="finite ones"):
        summarise([1.0, math.nan])
    with pytest.raises(UsageError, match="at least two seeds"):
        compare_pairs([1.0], [2.0])
    with pytest.raises(UsageError, match="3 values and 2"):
        compare_pairs([1.0, 2.0, 3.0], [1.0, 2.0])
