"""Runs that end too soon, and models that cannot express what is in the data."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor.facts import LayersFact, LossCallFact
from torchdoctor.findings import Finding, Severity
from torchdoctor.signals import ACCURACY_TRAIN, LOSS_TRAIN, RESIDUAL_AGREEMENT


def built(loss: np.ndarray) -> RunBuilder:
    call = LossCallFact("cross_entropy", "train", [32, 10], "float32", [32], "int64", reduction="mean", classes=10)
    return RunBuilder(len(loss)).scalar(LOSS_TRAIN, loss).fact(call).optimizer("SGD", lr=0.05)


def only(builder: RunBuilder) -> Finding | None:
    found = [f for f in builder.detect("underfitting") if isinstance(f, Finding)]
    return found[0] if found else None


@pytest.mark.parametrize("steps", [60, 120, 400])
def test_a_loss_that_falls_at_full_pace_to_the_end_is_a_run_too_short(steps: int) -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, steps)
    found = only(built(np.linspace(2.3, 1.9, steps) + noise))
    assert found is not None and found.severity is Severity.WARNING
    assert "still falling" in found.summary


def test_a_short_run_that_has_got_far_is_silent() -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, 60)
    assert only(built(2.3 * np.exp(-np.arange(60) / 15) + 0.05 + noise)) is None


@pytest.mark.parametrize(("agreement", "severity"), [(0.18, Severity.WARNING), (0.0, Severity.INFO)])
def test_a_flat_poor_loss_is_a_warning_only_where_alike_samples_err_alike(agreement: float, severity: Severity) -> None:
    rng = np.random.default_rng(1)
    looks = np.arange(30, 300, 15)
    run = built(1.9 + 0.4 * np.exp(-np.arange(300) / 10) + rng.normal(0, 0.03, 300))
    run.scalar(RESIDUAL_AGREEMENT, agreement + rng.normal(0, 0.05, len(looks)), steps=looks)
    found = only(run)
    assert found is not None and found.severity is severity


@pytest.mark.parametrize(("level", "agreement"), [(2.3, 0.15), (1.2, 0.5)])
def test_a_linear_model_whose_errors_agree(level: float, agreement: float) -> None:
    rng, looks = np.random.default_rng(2), np.arange(30, 300, 15)
    run = built(level + rng.normal(0, 0.03, 300))
    run.scalar(RESIDUAL_AGREEMENT, agreement + rng.normal(0, 0.03, len(looks)), steps=looks)
    found = only(run)
    assert found is None or found.severity is Severity.INFO
    layer = {"name": "fc.weight", "op": "AddmmBackward0", "fan_in": 64, "fan_out": 10, "kernel": []}
    found = only(run.fact(LayersFact([layer], [])))
    assert found is not None and found.severity is Severity.WARNING


@pytest.mark.parametrize(("right", "severity"), [(0.4, Severity.WARNING), (0.85, Severity.INFO)])
def test_a_classifier_that_is_right_and_only_gets_surer_is_not_poor(right: float, severity: Severity) -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, 300)
    run = built(np.linspace(2.3, 1.7, 300) + noise).scalar(ACCURACY_TRAIN, [right] * 4, steps=[50, 150, 250, 299])
    found = only(run)
    assert found is not None and found.severity is severity
