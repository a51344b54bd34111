"""A sweep's losses, read without torch: smoothing, divergence, the three rules, and when not to believe them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchdoctor.instruments.learning_rate.curve import (
    Descent,
    Suggestions,
    Sweep,
    band,
    combine,
    default_smoothing,
    noise_left,
    smooth,
    smooth_both_ways,
    suggest,
    suggest_for_all,
    trace,
)
from torchdoctor.instruments.learning_rate.trust import doubt


def valley(steps: int = 241, noise: float = 0.0, seed: int = 0, end: float = 1e0) -> Sweep:
    """At rest up to 1e-4, down by one to 1e-2 (fastest at 1e-3), and up again by two a decade."""
    places = np.linspace(-6, math.log10(end), steps)
    down = -(1 - np.cos(np.pi * np.clip((places + 4) / 2, 0, 1))) / 2
    up = 2 * np.clip(places + 2, 0, None)
    random = np.random.default_rng(seed)
    before = 5 + random.normal(size=steps)
    losses = before + down + up + noise * random.normal(size=steps)
    return Sweep(seed, 10**places, losses, before, diverged=end >= 1)


def names(*sweeps: Sweep, smoothing: float = 0.5, counts: tuple[np.ndarray, ...] = ()) -> list[str]:
    traces = [trace(s, smoothing) for s in sweeps]
    return [d.name for d in doubt(sweeps, traces, [suggest(t) for t in traces], counts)]


def test_the_average_has_no_bias() -> None:
    assert smooth(np.full(5, 3.0), 0.9) == pytest.approx([3.0] * 5)
    assert smooth(np.array([1.0, 4.0]), 0.5) == pytest.approx([1.0, (0.5 * 1 + 4) / 1.5])


def test_to_both_sides_it_does_not_lag() -> None:
    line = np.arange(201.0)
    assert smooth_both_ways(line, 0.9)[100] == pytest.approx(100)
    assert smooth(line, 0.9)[100] == pytest.approx(91, abs=0.1)
    assert smooth_both_ways(line, 0.0) == pytest.approx(line)


def test_the_noise_that_is_left() -> None:
    values = smooth_both_ways(np.random.default_rng(0).normal(size=40_000), 0.8)
    assert np.std(values) == pytest.approx(noise_left(0.8), rel=0.05)
    assert default_smoothing(100) == pytest.approx(0.9)


def test_each_rule_on_a_curve_that_is_known() -> None:
    found = suggest(trace(valley(), 0.0))
    tenth_done = -4 + 2 * math.acos(0.8) / math.pi
    assert math.log10(found.steepest or 0) == pytest.approx(-3, abs=0.03)
    assert math.log10(found.turn or 0) == pytest.approx(-2, abs=0.03)
    assert math.log10(found.valley or 0) == pytest.approx(tenth_done + 2 / 3 * (-2 - tenth_done), abs=0.03)
    assert math.log10(found.divergence or 0) == pytest.approx(-1.75, abs=0.03)
    assert math.log10(found.tenth or 0) == pytest.approx(-2.75, abs=0.03)
    expected = (math.log10(found.valley or 0) - 2.75 - 2) / 3
    assert math.log10(found.recommended or 0) == pytest.approx(expected, abs=0.03)


def test_what_offset_and_unit_the_loss_has_does_not_matter() -> None:
    plain = valley(noise=0.05)
    other = Sweep(0, plain.rates, 7 * plain.losses - 1000, 7 * plain.before - 1000, True)
    assert suggest(trace(other, 0.9)).recommended == pytest.approx(suggest(trace(plain, 0.9)).recommended)


@pytest.mark.parametrize("seed", range(5))
def test_noise_moves_it_little(seed: int) -> None:
    smoothing = default_smoothing(241)
    noisy, calm = (suggest(trace(valley(noise=n, seed=seed), smoothing)).recommended for n in (0.2, 0.0))
    assert abs(math.log10((noisy or 0) / (calm or 1))) < 0.3


def test_an_explosion_does_not_reach_back() -> None:
    calm = valley()
    losses = calm.losses.copy()
    losses[-3:] = 1e9
    wild = Sweep(0, calm.rates, losses, calm.before, True)
    assert suggest(trace(wild, 0.9)).recommended == pytest.approx(suggest(trace(calm, 0.9)).recommended, rel=0.1)


def test_a_rate_amid_the_rules_is_recommended() -> None:
    assert Suggestions(0.001, 0.01, 0.001, 0.1).recommended == pytest.approx(0.01)
    assert Suggestions(0.001, None, 0.001, 0.1).recommended == pytest.approx(0.01)
    assert Suggestions(0.001, 5.0, 0.01, 0.1).recommended == pytest.approx(10 ** (-4 / 3)), "never above the turn"
    assert Suggestions().recommended is None
    assert combine([Suggestions(0.1), Suggestions(0.001), Suggestions(0.01, 0.2)]) == Suggestions(pytest.approx(0.01))


def test_without_divergence_there_is_no_tenth_of_it() -> None:
    found = suggest(trace(valley(end=10**-2.5), 0.0))
    assert found.tenth is None and found.divergence is None and found.recommended is not None


def test_the_end_of_a_sweep_that_was_cut_is_no_turn() -> None:
    cut, whole = (trace(valley(end=end), 0.0) for end in (10**-2.5, 1.0))
    found = combine(suggest_for_all([cut, cut, whole]))
    assert found.turn is None and found.recommended == found.valley
    assert suggest_for_all([cut, whole, whole]) == [suggest(cut), suggest(whole), suggest(whole)], "most diverged"
    turned = trace(valley(end=10**-1.9), 0.0)
    assert turned.ends is None and suggest_for_all([turned]) == [suggest(turned)], "it rises again, if not by half"


def test_a_fall_that_only_pairs_of_losses_show_is_none() -> None:
    good = valley(end=10**-2.5)
    faint = Sweep(0, good.rates, good.before + 0.005 * good.changes, good.before, False)
    assert names(faint) == ["unmoved"]
    assert names(Sweep(0, faint.rates, faint.losses + 1000, faint.before + 1000, False)) == ["unmoved"]
    same = np.full(len(good.rates), 5.0)
    assert names(Sweep(0, good.rates, same + 0.0005 * good.changes, same, False)) == ["unmoved"]
    assert names(Sweep(0, good.rates, same + good.changes, same, False)) == ["range-too-low"]


def test_a_loss_that_never_falls_suggests_nothing() -> None:
    rates, before = np.geomspace(1e-5, 1, 50), np.ones(50)
    assert suggest(trace(Sweep(0, rates, before + np.linspace(0.01, 1, 50), before, True), 0.5)) == Suggestions()


def test_divergence_is_seen_while_it_happens() -> None:
    descent = Descent(0.5)
    assert not any(descent.diverges(change, scale=2.0) for change in np.linspace(0, -1, 30))
    rises = [descent.diverges(change, scale=2.0) for change in np.linspace(-1, 3, 40)]
    first = rises.index(True)
    assert 1 < np.linspace(-1, 3, 40)[first] < 1.5
    assert Descent(0.5).diverges(math.nan, 1.0) and Descent(0.5, None).diverges(math.inf, 1.0)


def test_noise_alone_is_no_divergence() -> None:
    random = np.random.default_rng(1)
    for scale in (0.0, 1.0, 100.0):
        descent = Descent(0.9)
        assert not any(descent.diverges(change, scale) for change in random.normal(size=500))
    never = Descent(0.9, None)
    assert not any(never.diverges(change, 1.0) for change in np.geomspace(1, 1e6, 50))


def test_a_good_curve_is_trusted() -> None:
    assert names(*(valley(noise=0.05, seed=s) for s in range(3)), smoothing=0.9) == []


def test_doubts() -> None:
    good = valley(noise=0.05)
    rates, before, random = good.rates, good.before, np.random.default_rng(0)
    assert names(Sweep(0, rates, before + 0.1 * random.normal(size=len(rates)), before, False), smoothing=0.9) == [
        "flat"
    ]
    assert names(Sweep(0, rates, before, before, False)) == ["flat"]
    assert names(valley(end=10**-2.5)) == ["range-too-low"]
    late = slice(100, None)
    assert "range-too-high" in names(Sweep(0, rates[late], good.losses[late], before[late], True))
    assert names(valley(steps=19)) == ["too-short"]
    assert names(good, good) == ["same-order"]
    moved = [Sweep(i, s.rates * 10 ** (1.5 * i), s.losses, s.before, True) for i in range(3) for s in [valley(seed=i)]]
    assert names(*moved) == ["noisy"]
    assert names(*(valley(noise=0.5, seed=s, steps=81) for s in range(3)), smoothing=0.5) == ["noisy"]


def test_batches_in_an_order_are_seen_by_their_losses() -> None:
    good = valley(noise=0.05)
    ordered = np.sort(good.before)
    assert names(Sweep(0, good.rates, ordered + good.changes, ordered, True)) == ["biased-batches"]


def test_batches_of_one_class_each_are_seen_by_their_counts() -> None:
    random = np.random.default_rng(0)
    drawn = [random.multinomial(16, [0.1] * 10, size=40) for _ in range(100)]
    assert not any(names(valley(noise=0.05), counts=(counts,)) for counts in drawn)
    alike = np.eye(10, dtype=int)[random.integers(0, 10, size=40)] * 16
    assert names(valley(noise=0.05), counts=(alike,)) == ["biased-batches"]
    rare = random.multinomial(8, np.full(500, 1 / 500), size=40)
    assert names(valley(noise=0.05), counts=(rare,)) == []


def test_the_band_spans_the_seeds() -> None:
    long, short = valley(noise=0.1, seed=1), valley(noise=0.1, seed=2)
    short = Sweep(2, short.rates[:100], short.losses[:100], short.before[:100], True)
    drawn = band([trace(long, 0.5), trace(short, 0.5)])
    assert len(drawn.rates) == 241 and np.isfinite(drawn.middle).all()
    assert (drawn.low <= drawn.middle).all() and (drawn.middle <= drawn.high).all()
    assert (drawn.low[100:] == drawn.high[100:]).all()
