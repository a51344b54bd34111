from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import SchedulerFact
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN

NAME = "learning-rate-decayed-too-early"
STEPS = 400
RANDOM = np.random.default_rng(0)


def trained(loss: np.ndarray, rate: np.ndarray) -> RunBuilder:
    noisy = loss * (1 + 0.03 * RANDOM.normal(size=len(loss)))
    return RunBuilder(len(loss)).optimizer("Adam").scalar(LOSS_TRAIN, noisy).scalar(LEARNING_RATE, rate, key="0.0")


def falling(until: int, floor: float) -> np.ndarray:
    """From 2.3 in a straight line down to the floor, and flat from there on."""
    return np.concatenate([np.linspace(2.3, floor, until), np.full(STEPS - until, floor)])


def stairs(width: int, factor: float) -> np.ndarray:
    return 0.1 * factor ** (np.arange(STEPS) // width).astype(float)


@pytest.mark.parametrize("width", [40, 80])
def test_a_rate_cut_while_the_loss_falls(width: int) -> None:
    (found,) = findings(trained(falling(width, 1.5), stairs(width, 0.1)).build(), NAME)
    assert found.symptoms == ("flat-after-drop",)
    assert found.first_step == 2 * width


def test_most_of_the_run_without_a_rate() -> None:
    loss = np.concatenate([np.linspace(2.3, 1.5, 10), np.full(STEPS - 10, 1.5)])
    builder = trained(loss, stairs(60, 0.1))
    assert len(findings(builder.build(), NAME)) == 1
    builder.fact(SchedulerFact("s", "ReduceLROnPlateau", "0"))
    assert findings(builder.build(), NAME) == []


@pytest.mark.parametrize(
    "builder",
    [
        trained(falling(40, 1.5), np.full(STEPS, 0.1)),
        trained(falling(40, 0.2), stairs(40, 0.1)),
        trained(np.linspace(2.3, 1.2, STEPS), stairs(60, 0.1)),
        trained(falling(100, 1.5), 0.05 * (1 + np.cos(np.pi * np.arange(STEPS) / STEPS))),
        trained(falling(60, 1.5), stairs(180, 0.1)),
        trained(falling(40, 1.5), 0.05 * (1 + np.cos(2 * np.pi * np.arange(STEPS) / 100))),
    ],
    ids=["constant", "near its floor", "still falling", "cosine over the run", "cut on a plateau", "cycles"],
)
def test_other_schedules_are_silent(builder: RunBuilder) -> None:
    assert findings(builder.build(), NAME) == []
