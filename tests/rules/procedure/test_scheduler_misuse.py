from __future__ import annotations

from typing import Any

import numpy as np

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import LoaderFact, PhaseFact, SchedulerFact
from torchdoctor.findings import Severity

NAME = "scheduler-misuse"
UPDATES, EPOCH = 200, 20
STEPS = np.arange(UPDATES)


def scheduled(kind: str, rates: Any, calls: int, settings: dict[str, Any], **given: Any) -> RunBuilder:
    every = UPDATES // max(calls, 1)
    at = {"called_at": [every * (i + 1) for i in range(min(calls, 8))], "last_at": UPDATES} | given
    return (
        RunBuilder(UPDATES)
        .scalar(signals.LEARNING_RATE, rates, key="0.0")
        .optimizer("SGD", lr=0.1, initial_lr=0.1)
        .fact(SchedulerFact(f"{kind}@0", kind, "0", settings=settings, calls=calls, **at))
        .fact(LoaderFact("train", "train", EPOCH, 1280, 64, 0, True, "TensorDataset"))
        .fact(PhaseFact(UPDATES, UPDATES, UPDATES, 0, 0, 0, None))
    )


def test_an_exponential_decay_for_epochs_stepped_per_batch() -> None:
    (found,) = findings(scheduled("ExponentialLR", 0.1 * 0.9**STEPS, UPDATES, {"gamma": 0.9}).build(), NAME)
    assert found.severity is Severity.ERROR
    by_epoch = 0.1 * 0.9 ** (STEPS // EPOCH)
    assert not findings(scheduled("ExponentialLR", by_epoch, UPDATES // EPOCH, {"gamma": 0.9}).build(), NAME)


def test_a_steep_decay_in_batches_is_not_a_matter_of_the_unit() -> None:
    steep = scheduled("StepLR", 0.1 * 0.01 ** (STEPS // 40), UPDATES, {"step_size": 40, "gamma": 0.01})
    assert not findings(steep.build(), NAME)


def test_a_cosine_over_the_epochs_stepped_per_batch() -> None:
    swinging = 0.05 + 0.05 * np.cos(np.pi * STEPS / 10)
    assert findings(scheduled("CosineAnnealingLR", swinging, UPDATES, {"T_max": 10}).build(), NAME)
    once = 0.05 + 0.05 * np.cos(np.pi * STEPS / UPDATES)
    assert not findings(scheduled("CosineAnnealingLR", once, UPDATES, {"T_max": UPDATES}).build(), NAME)


def test_warm_restarts_swing_on_purpose() -> None:
    restarts = 0.05 + 0.05 * np.cos(np.pi * (STEPS % 20) / 20)
    assert not findings(scheduled("CosineAnnealingWarmRestarts", restarts, UPDATES, {"T_0": 20}).build(), NAME)


def test_one_cycle_stepped_per_epoch() -> None:
    rates = 0.004 * (1 + STEPS // EPOCH)
    assert findings(scheduled("OneCycleLR", rates, 10, {"total_steps": UPDATES}).build(), NAME)
    stopped = scheduled("OneCycleLR", rates, 10, {"total_steps": 100 * UPDATES})
    assert not findings(stopped.build(), NAME)


def test_stepped_before_the_optimizer_but_not_wound_forward() -> None:
    rates = 0.1 * 0.5 ** (1 + STEPS // 50)
    early = {"called_at": [0, 50, 100, 150], "last_at": 150}
    assert findings(scheduled("MultiStepLR", rates, 4, {"milestones": [1, 2, 3]}, **early).build(), NAME)
    wound = {"called_at": [0, 0, 0, 100, 200], "last_at": 200}
    assert not findings(scheduled("MultiStepLR", rates, 5, {"milestones": [1, 2, 3]}, **wound).build(), NAME)


def test_past_its_end() -> None:
    mirrored = 0.05 + 0.05 * np.cos(np.pi * (STEPS // EPOCH) / 6)
    assert findings(scheduled("CosineAnnealingLR", mirrored, 10, {"T_max": 6}).build(), NAME)
    idle = np.maximum(0, 0.1 * (1 - STEPS / 120))
    assert findings(scheduled("LambdaLR", idle, UPDATES, {}).build(), NAME)


def test_built_and_never_stepped() -> None:
    assert findings(scheduled("StepLR", 0.1, 0, {"step_size": 3, "gamma": 0.1}).build(), NAME)
    assert not findings(scheduled("StepLR", 0.1, 0, {"step_size": 3, "gamma": 0.1}).live().build(), NAME)


def test_a_warm_up_that_begins_at_zero_has_not_run_down() -> None:
    warming = 0.1 * np.minimum(STEPS / 20, (UPDATES - STEPS) / (UPDATES - 20))
    assert not findings(scheduled("LambdaLR", warming, UPDATES, {}).build(), NAME)


def test_milestones_for_epochs_stepped_per_batch() -> None:
    down = 0.1 * 0.1 ** np.searchsorted([4, 8], STEPS, side="right")
    assert findings(scheduled("MultiStepLR", down, UPDATES, {"milestones": [4, 8], "gamma": 0.1}).build(), NAME)
    meant = 0.1 * 0.1 ** np.searchsorted([80, 160], STEPS, side="right")
    assert not findings(scheduled("MultiStepLR", meant, UPDATES, {"milestones": [80, 160], "gamma": 0.1}).build(), NAME)
