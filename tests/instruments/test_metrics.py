"""Figures of merit against scikit-learn, against closed forms, and intervals against repeated draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as known

from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.calibration import calibrate, fit_temperature
from torchdoctor.instruments.evaluating.metrics import (
    Counts,
    confuse,
    effective,
    f1_estimate,
    judge_confusion,
    judge_numbers,
    resample,
    wilson,
)
from torchdoctor.instruments.evaluating.ranking import auroc, average_precision, midranks, precision_at, rank
from torchdoctor.instruments.evaluating.residuals import follow
from torchdoctor.instruments.evaluating.slicing import as_values, cut, fisher, judge_slices, rank_sum

ALIKE = {"rtol": 1e-9, "atol": 1e-12}


@pytest.fixture
def draw() -> np.random.Generator:
    return np.random.default_rng(7)


def labelled(draw: np.random.Generator, count: int = 400, classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    label = draw.integers(0, classes, count)
    return label, np.where(draw.random(count) < 0.6, label, draw.integers(0, classes, count))


def test_confusion_and_scores_by_class(draw: np.random.Generator) -> None:
    label, predicted = labelled(draw)
    counts = Counts.of(label, predicted, 6)
    expected = known.precision_recall_fscore_support(label, predicted, labels=range(6), zero_division=np.nan)
    assert (confuse(label, predicted, 6) == known.confusion_matrix(label, predicted, labels=range(6))).all()
    for found, wanted in zip((counts.precision, counts.recall), expected[:2], strict=True):
        np.testing.assert_allclose(found, wanted, **ALIKE)
    np.testing.assert_allclose(counts.f1[:5], expected[2][:5], **ALIKE)
    assert (counts.support == expected[3]).all()


def test_figures_of_the_whole_confusion(draw: np.random.Generator) -> None:
    label, predicted = labelled(draw)
    found = judge_confusion(label, predicted, 5, len(label), 0.95)
    assert found["balanced_accuracy"].value == pytest.approx(known.balanced_accuracy_score(label, predicted))
    assert found["macro_f1"].value == pytest.approx(known.f1_score(label, predicted, average="macro"))
    assert found["matthews"].value == pytest.approx(known.matthews_corrcoef(label, predicted))
    for estimate in found.values():
        assert estimate.low < estimate.value < estimate.high
        assert estimate.high - estimate.low < 0.2


def test_all_right_is_not_certain() -> None:
    label = np.arange(20) % 4
    for estimate in judge_confusion(label, label, 4, 20, 0.95).values():
        assert estimate.value == 1 and estimate.low == wilson(20, 20).low


def test_wilson_in_closed_form() -> None:
    expected = stats.binomtest(8, 10).proportion_ci(method="wilson")
    assert (wilson(8, 10).low, wilson(8, 10).high) == pytest.approx((expected.low, expected.high))


def test_wilson_at_the_ends() -> None:
    z = stats.norm.ppf(0.975)
    none, all_right = wilson(0, 20), wilson(20, 20)
    assert (none.value, none.low) == (0.0, 0.0) and none.high == pytest.approx(z * z / (20 + z * z))
    assert all_right.high == 1.0 and all_right.low == pytest.approx(20 / (20 + z * z))
    assert math.isnan(wilson(0, 0).value)


def test_an_interval_of_f1_holds_it(draw: np.random.Generator) -> None:
    """True F1 of a known confusion: inside 95 % of the intervals, give or take."""
    cells = np.array([0.5, 0.1, 0.15, 0.25])  # neither, named only, true only, both
    truth, inside = 2 * 0.25 / (0.35 + 0.4), 0
    for _ in range(400):
        _, named, true, both = draw.multinomial(120, cells)
        found = f1_estimate(both, both + true, both + named, 0.95)
        inside += found.low <= truth <= found.high
    assert 365 <= inside <= 395


def test_elements_of_a_sample_count_together() -> None:
    alike = effective(np.array([10.0, 0.0] * 50), np.full(100, 10.0))
    assert alike == pytest.approx(100, rel=0.02)
    assert effective(np.array([1.0, 0.0] * 50), np.ones(100)) == 100
    mixed = effective(np.full(100, 5.0), np.full(100, 10.0))
    assert mixed == 1000


def test_auroc_and_average_precision_with_ties(draw: np.random.Generator) -> None:
    true = draw.random(300) < 0.3
    score = np.round(draw.normal(size=300) + true, 1)
    found = rank(score, true)
    assert found is not None
    assert found.value == pytest.approx(known.roc_auc_score(true, score))
    assert average_precision(score, true) == pytest.approx(known.average_precision_score(true, score))
    np.testing.assert_allclose(midranks(score), stats.rankdata(score))
    assert rank(score, np.ones(300, bool)) is None


def test_auroc_over_classes(draw: np.random.Generator) -> None:
    label = draw.integers(0, 4, 300)
    scores = draw.normal(size=(300, 4)) + 1.5 * np.eye(4)[label]
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    ranked = [r for c in range(4) if (r := rank(shares[:, c], label == c)) is not None]
    assert auroc(ranked, 0.95).value == pytest.approx(known.roc_auc_score(label, shares, multi_class="ovr"))


def test_the_interval_of_an_auroc_holds_it(draw: np.random.Generator) -> None:
    truth, inside = stats.norm.cdf(1 / math.sqrt(2)), 0
    for _ in range(300):
        true = draw.random(150) < 0.3
        found = rank(draw.normal(size=150) + true, true)
        assert found is not None
        interval = auroc([found], 0.95)
        inside += interval.low <= truth <= interval.high
    assert 274 <= inside <= 297


def test_a_perfect_order_is_not_certain() -> None:
    found = rank(np.arange(10.0), np.arange(10) >= 5)
    assert found is not None
    interval = auroc([found], 0.95)
    assert interval.value == 1 and 0.4 < interval.low < 0.8


def test_precision_at_k_draws_lots_among_equals() -> None:
    score, true = np.array([3.0, 2.0, 2.0, 2.0, 1.0]), np.array([True, True, False, False, True])
    assert precision_at(score, true, 1) == 1
    assert precision_at(score, true, 2) == pytest.approx((1 + 1 / 3) / 2)
    assert precision_at(score, true, 5) == pytest.approx(3 / 5)
    assert math.isnan(precision_at(score, true, 6))


def test_numbers(draw: np.random.Generator) -> None:
    target = 1e6 + draw.normal(size=500)
    predicted = target + 0.5 * draw.normal(size=500)
    found = judge_numbers(target, predicted, 0.95)
    assert found["r2"].value == pytest.approx(known.r2_score(target, predicted))
    assert found["mae"].value == pytest.approx(known.mean_absolute_error(target, predicted))
    assert found["rmse"].value == pytest.approx(known.root_mean_squared_error(target, predicted))
    assert found["r2"].low < 0.75 + 0.05 and found["r2"].high > 0.7
    assert found["mean_residual"].low < 0 < found["mean_residual"].high


def test_the_bootstrap_is_as_wide_as_the_theory(draw: np.random.Generator) -> None:
    for count in (300, 9000):
        values = draw.normal(size=count)
        rows = np.stack([np.ones(count), values], 1)
        (mean,) = resample(rows, lambda sums: sums[:, 1:] / sums[:, :1], 0.95)
        assert (mean.high - mean.low) / 2 == pytest.approx(1.96 * values.std() / math.sqrt(count), rel=0.15)


def settings(**changed: object) -> dict[str, object]:
    return {"about": "", "of_named": True, "bins": 10, "binning": "uniform", "level": 0.95} | changed


def test_calibration_error_in_closed_form() -> None:
    said = np.array([0.95] * 100 + [0.65] * 100)
    right = np.array([True] * 80 + [False] * 20 + [True] * 60 + [False] * 40)
    found = calibrate(said, right, **settings())  # type: ignore[arg-type]
    assert found.ece == pytest.approx((0.15 + 0.05) / 2)
    assert [(b.count, b.share) for b in found.bins] == [(100, 0.6), (100, 0.8)]
    assert found.word == "overconfident" and found.is_marked
    assert found.ece_low < found.ece < found.ece_high
    assert 0 < found.debiased < found.ece
    assert found.binning == "10 bins of equal width"


@pytest.mark.parametrize("binning", ["uniform", "quantile"])
def test_a_calibrated_model_is_seldom_called_off(draw: np.random.Generator, binning: str) -> None:
    off, debiased, plain = 0, 0.0, 0.0
    for _ in range(40):
        said = draw.beta(5, 1.5, size=400)
        found = calibrate(said, draw.random(400) < said, **settings(binning=binning))  # type: ignore[arg-type]
        off += found.is_off
        debiased, plain = debiased + found.debiased, plain + found.ece
    assert off <= 2
    assert debiased < 0.8 * plain


def test_the_temperature_is_found(draw: np.random.Generator) -> None:
    logits = draw.normal(size=(20_000, 5)) * 2
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    label = (shares.cumsum(1) < draw.random((20_000, 1))).sum(1)
    found = fit_temperature(logits * 2.5, label)
    assert found is not None
    assert found.value == pytest.approx(2.5, rel=0.05)
    assert found.loss_mended < found.loss == pytest.approx(known.log_loss(label, _softmax(2.5 * logits)))
    perfect = fit_temperature(np.eye(5)[label] * 5.0, label)
    assert perfect is None


def _softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def test_tests_against_scipy(draw: np.random.Generator) -> None:
    assert fisher(7, 20, 15, 100) == pytest.approx(stats.hypergeom.sf(6, 100, 15, 20))
    assert fisher(0, 20, 15, 100) == pytest.approx(1)
    held, others = np.round(draw.normal(size=40) + 0.5, 1), np.round(draw.normal(size=90), 1)
    expected = stats.mannwhitneyu(held, others, alternative="greater", method="asymptotic").pvalue
    assert rank_sum(held, others) == pytest.approx(expected)


def test_numbers_are_cut_and_names_are_not() -> None:
    parts = dict(cut("length", np.arange(100.0), 4))
    assert list(parts) == ["length 0 to 24", "length 25 to 49", "length 50 to 74", "length 75 to 99"]
    assert [int(p.sum()) for p in cut_masks(parts)] == [25] * 4
    assert list(dict(cut("site", np.array(["b", "a", "a"]), 4))) == ["site = a", "site = b"]
    assert list(dict(cut("x", np.array([1.0, np.nan, 2.0]), 4))) == ["x missing", "x = 1", "x = 2"]
    with pytest.raises(UsageError, match="one value a sample"):
        as_values(np.zeros((3, 2)), "x")


def cut_masks(parts: dict[str, np.ndarray]) -> list[np.ndarray]:
    return list(parts.values())


def test_slices_without_a_difference_are_seldom_called_worse(draw: np.random.Generator) -> None:
    alarms = 0
    for _ in range(100):
        right = (draw.random(300) < 0.85).astype(float)
        attributes = {name: draw.integers(0, 6, 300) for name in "abc"}
        alarms += any(s.worse for s in judge_slices(attributes, right, np.ones(300), None, 5, 0.95))
    assert alarms <= 8


def test_a_slice_that_fails_is_found(draw: np.random.Generator) -> None:
    site = draw.choice(["n", "s"], 400, p=[0.8, 0.2])
    right = (draw.random(400) < np.where(site == "s", 0.6, 0.9)).astype(float)
    found = judge_slices({"site": site}, right, np.ones(400), None, 5, 0.95)
    assert [s.name for s in found if s.worse] == ["site = s"]
    error = np.abs(draw.normal(size=400)) * np.where(site == "s", 2, 1)
    found = judge_slices({"site": site}, error, np.ones(400), error, 5, 0.95)
    assert [s.name for s in found if s.worse] == ["site = s"]
    many = np.full(400, 20.0)
    found = judge_slices({"site": site}, 20 * right, many, None, 5, 0.95)
    assert [s.name for s in found if s.worse] == ["site = s"]


def test_trends_of_residuals(draw: np.random.Generator) -> None:
    x, noise = draw.normal(size=800), draw.normal(size=800)
    timid, fine = follow(2 * x + noise, x, 0.95), follow(2 * x + noise, 2 * x, 0.95)
    assert timid is not None and fine is not None
    assert "too timid" in timid.words[0] and timid.slope.low < 2 < timid.slope.high
    assert fine.words == []
    fan = follow(3 * np.abs(x) + noise * np.abs(x), 3 * np.abs(x), 0.95)
    assert fan is not None and "grows" in fan.words[-1]
    bent = follow(x**2 + 0.1 * noise, np.zeros(800) + 1 + 0.001 * x, 0.95)
    assert bent is not None and any(p.off for p in bent.parts)
    assert follow(x, np.ones(800), 0.95) is None
