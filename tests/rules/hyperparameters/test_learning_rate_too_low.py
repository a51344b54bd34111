from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import LossCallFact
from torchdoctor.findings import Severity
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN, UPDATE_RATIO

NAME = "learning-rate-too-low"
RANDOM = np.random.default_rng(0)
CLASSES = LossCallFact("cross_entropy", "train", [32, 10], "float32", [32], "int64", reduction="mean", classes=10)


def trained(
    loss: np.ndarray, ratio: float | dict[str, float], lr: float | np.ndarray = 1e-5, known: bool = True
) -> RunBuilder:
    ratios = ratio if isinstance(ratio, dict) else {"a.weight": ratio, "b.weight": 2 * ratio}
    builder = (
        RunBuilder(len(loss))
        .parameters(dict.fromkeys(ratios, (64, 64)))
        .optimizer("Adam", lr=1e-5)
        .scalar(LEARNING_RATE, lr, key="0.0")
        .scalar(LOSS_TRAIN, loss)
        .matrix(UPDATE_RATIO, ratios, steps=range(0, len(loss), 7))
    )
    return builder.fact(CLASSES) if known else builder


def noisy(values: np.ndarray, size: float = 0.03) -> np.ndarray:
    return values + RANDOM.normal(0, size, len(values))


@pytest.mark.parametrize("steps", [100, 400, 20_000])
def test_a_slow_straight_line(steps: int) -> None:
    (found,) = findings(trained(noisy(np.linspace(2.31, 2.1, steps)), 5e-5).build(), NAME)
    assert found.severity is Severity.WARNING
    assert "1.0e-5" in found.title
    assert "slow-descent" in found.symptoms


def test_no_movement_at_all() -> None:
    (found,) = findings(trained(noisy(np.full(300, 2.31)), 2e-6).build(), NAME)
    assert found.symptoms == ("flat-from-start",)


def test_the_suggested_rate_brings_updates_to_the_usual() -> None:
    (found,) = findings(trained(noisy(np.linspace(2.31, 2.25, 400)), 1e-5).build(), NAME)
    assert found.fix.code == "optimizer = torch.optim.Adam(model.parameters(), lr=0.001)"


@pytest.mark.parametrize(
    "builder",
    [
        trained(noisy(np.geomspace(2.3, 0.3, 400)), 1e-3),
        trained(noisy(np.linspace(2.31, 2.1, 400)), 8e-4),
        trained(noisy(np.geomspace(2.3, 0.9, 400)), 5e-5),
        trained(noisy(np.linspace(0.40, 0.36, 400), 0.01), 3e-5),
        trained(noisy(np.linspace(0.693, 0.60, 400), 0.01), 3e-5, known=False),
        trained(noisy(np.linspace(2.31, 2.2, 400)), 5e-5, lr=np.linspace(1e-7, 1e-4, 400)),
        trained(noisy(np.linspace(2.31, 2.2, 400)), {"a.weight": 1e-8, "b.weight": 2e-3}),
        trained(noisy(np.full(400, 2.3)), 0.0),
        trained(noisy(np.linspace(-1.0, -1.2, 400)), 3e-5, known=False),
        trained(noisy(np.linspace(2.31, 2.25, 20)), 3e-5),
    ],
    ids=[
        "falls", "usual updates", "falls with small updates", "fine-tuning", "preference tuning", "still warming up",
        "one layer moves", "nothing moves", "negative loss", "twenty steps",
    ],
)  # fmt: skip
def test_other_runs_are_silent(builder: RunBuilder) -> None:
    assert findings(builder.build(), NAME) == []


def test_two_optimizers_are_not_judged() -> None:
    run = trained(noisy(np.linspace(2.31, 2.2, 400)), 5e-5).optimizer("Adam", key="1").build()
    assert findings(run, NAME) == []


def test_weights_that_stood_still_under_a_loss_by_hand() -> None:
    loss = noisy(np.full(400, 35.0), 0.5)
    assert len(findings(trained(loss, 4e-7, known=False).build(), NAME)) == 1
    assert findings(trained(loss, 3e-5, known=False).build(), NAME) == []
