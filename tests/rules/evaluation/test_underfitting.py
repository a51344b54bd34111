"""Runs that end too soon, and models that cannot express what is in the data."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor.facts import LossCallFact
from torchdoctor.findings import Finding, Severity
from torchdoctor.signals import LOSS_TRAIN, RESIDUAL_AGREEMENT


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
