from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import RunBuilder
from torchdoctor.rules import curves
from torchdoctor.run import RAW_ROWS, Trace
from torchdoctor.signals import LOSS_TRAIN

RANDOM = np.random.default_rng(0)


def test_a_curve_holds_the_finite_part_and_says_where_it_broke() -> None:
    curve = curves.read(Trace.raw(range(5), [1.0, 2.0, np.nan, 3.0, np.inf]))
    assert curve.values.tolist() == [1, 2, 3]
    assert curve.broke_at == 2


def test_a_long_run_starts_one_by_one() -> None:
    run = RunBuilder(10_000).scalar(LOSS_TRAIN, np.arange(10_000.0)).build()
    curve = curves.read(run.scalar(LOSS_TRAIN))
    assert curve.steps[: RAW_ROWS - 1].tolist() == list(range(RAW_ROWS - 1))
    assert np.all(np.diff(curve.steps) > 0)
    assert len(curves.read(run.scalar(LOSS_TRAIN), closely=False)) < len(curve)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("offset", [-5.0, 0.0, 1e3])
def test_a_trend_is_found_on_every_scale_and_noise_alone_is_none(scale: float, offset: float) -> None:
    noise = RANDOM.normal(0, 1, 600)
    falling = curves.trend(scale * (np.linspace(3, 0, 600) + noise) + offset * scale)
    assert falling.sigmas < -4
    assert falling.change == pytest.approx(-3 * scale, rel=0.3)
    assert abs(curves.trend(scale * noise + offset * scale).sigmas) < 4


def test_false_trends_are_rare() -> None:
    random = np.random.default_rng(1)
    wrong = sum(abs(curves.trend(random.normal(size=200)).sigmas) > 4 for _ in range(500))
    assert wrong <= 10


def test_a_trend_needs_some_points() -> None:
    assert curves.trend(np.array([3.0, 2.0, 1.0])).sigmas == 0


def test_noise_ignores_the_trend_and_outliers() -> None:
    values = np.linspace(0, 100, 400) + RANDOM.normal(0, 0.5, 400)
    values[::50] += 30
    assert curves.noise(values) == pytest.approx(0.5, rel=0.3)


def test_a_running_median_removes_a_lone_spike() -> None:
    values = np.ones(20)
    values[7] = 1000
    assert curves.smooth(values, 5).max() == 1


def test_a_change_point_is_found_with_its_size() -> None:
    values = np.concatenate([np.full(40, 1.0), np.full(60, 5.0)]) + RANDOM.normal(0, 0.1, 100)
    change = curves.change_point(values)
    assert change is not None
    assert change.index == 40
    assert change.sigmas > 10
    assert curves.change_point(np.array([1.0, 2.0])) is None


def test_divergence_of_a_positive_loss() -> None:
    values = np.concatenate([np.full(20, 2.0), np.geomspace(3, 3000, 20)])
    found = curves.divergence(curves.Curve(np.arange(40), values), start=2.0, factor=3.0)
    assert found is not None
    assert found.growth == pytest.approx(1500)
    assert 20 <= found.onset <= 24
    assert curves.divergence(curves.Curve(np.arange(20), values[:20]), 2.0, 3.0) is None


def test_a_likelihood_through_zero_is_no_divergence() -> None:
    values = np.linspace(2.0, -40.0, 100) + RANDOM.normal(0, 1, 100)
    assert curves.divergence(curves.Curve(np.arange(100), values), float(values[0]), 3.0) is None


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=200))
def test_a_spark_is_short_finite_and_keeps_the_extremes(values: list[float]) -> None:
    drawn = curves.spark(values)
    assert len(drawn) <= curves.SPARK_POINTS
    assert all(math.isfinite(v) for v in drawn)


def test_figures_read_well() -> None:
    shown = [curves.figure(v) for v in (0.0, 0.5, 12.345, 4321.0, 1e-6, 2.5e9, math.nan, math.inf)]
    assert shown == ["0", "0.5", "12.3", "4,321", "1.0e-6", "2.5e9", "NaN", "Inf"]
