from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import LossCallFact, NonfiniteFact
from torchdoctor.findings import Severity
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN, TARGET_MEAN, TARGET_STD, UPDATE_RATIO, WEIGHT_GLOBAL_L2

NAME = "learning-rate-too-high"
RANDOM = np.random.default_rng(0)
LOOKS = [0, 1, 2, 3, 5, 8, 12, 16, 20, 27, 36, 47, 61, 80, 104, 135, 176]
CLASSES = LossCallFact("cross_entropy", "train", [32, 10], "float32", [32], "int64", reduction="mean", classes=10)


def trained(loss: np.ndarray, ratio: float | list[float], lr: float = 1.0, known: bool = True) -> RunBuilder:
    """A run with that loss, and update ratios at the looks a governor would take."""
    steps = len(loss)
    looks = [s for s in LOOKS if s < steps]
    ratios = np.broadcast_to(np.asarray(ratio, float), (len(LOOKS),))[: len(looks)]
    builder = (
        RunBuilder(steps)
        .parameters({"a.weight": (64, 64), "a.bias": (64,), "b.weight": (10, 64)})
        .optimizer("Adam", lr=lr)
        .scalar(LEARNING_RATE, lr, key="0.0")
        .scalar(LOSS_TRAIN, loss)
        .matrix(UPDATE_RATIO, {"a.weight": ratios, "a.bias": 50 * ratios, "b.weight": 1.2 * ratios}, steps=looks)
    )
    return builder.fact(CLASSES) if known else builder


def noisy(values: np.ndarray, share: float = 0.08) -> np.ndarray:
    return values * np.exp(RANDOM.normal(0, share, len(values)))


DECAY = [3.0, 0.3, 0.2, 0.15, 0.1, *[0.02] * 12]


def test_explosion_to_nan() -> None:
    loss = np.full(60, np.nan)
    loss[:6] = [7.5, 27, 180, 5.9e3, 3.9e5, 2.7e7]
    (found,) = findings(trained(loss, 1.8, lr=0.1, known=False).build(), NAME)
    assert found.severity is Severity.ERROR
    assert "NaN" in found.title and "0.1" in found.title
    assert found.last_step == 6
    assert "diverging" in found.symptoms
    assert found.fix.code is not None and found.fix.code.startswith(
        "optimizer = torch.optim.Adam(model.parameters(), lr="
    )


def test_thrown_up_and_stuck_at_chance() -> None:
    loss = np.concatenate([[2.3, 11_000, 4_500, 2_200, 800, 125, 20, 5], noisy(np.full(190, 2.33), 0.02)])
    (found,) = findings(trained(loss, DECAY).build(), NAME)
    assert found.severity is Severity.ERROR and "stuck-at-chance" in found.symptoms


def test_grew_for_good() -> None:
    loss = np.concatenate([np.geomspace(2.3, 800, 30), noisy(np.full(170, 200.0), 0.4)])
    assert findings(trained(loss, DECAY).build(), NAME)


def test_learned_and_lost_again() -> None:
    loss = np.concatenate([np.geomspace(2.3, 0.7, 40), noisy(np.full(160, 2.34), 0.03)])
    (found,) = findings(trained(loss, 0.16).build(), NAME)
    assert "lost" in found.title


def test_stuck_from_the_first_update_on() -> None:
    loss = noisy(np.full(200, 2.34), 0.02)
    (found,) = findings(trained(loss, [0.96, *DECAY[1:]]).build(), NAME)
    assert found.severity is Severity.WARNING
    assert findings(trained(loss, 0.01).build(), NAME) == [], "a stuck run with usual updates has another cause"


def test_thrown_by_the_first_updates_and_slow_to_come_back() -> None:
    loss = np.concatenate([[2.3, 16, 14, 12, 10, 8, 6, 4, 3], noisy(np.geomspace(2.2, 0.8, 240))])
    (found,) = findings(trained(loss, [1.4, *DECAY[1:]]).build(), NAME)
    assert found.severity is Severity.WARNING
    assert findings(trained(loss, 0.1).build(), NAME) == []
    recovered = np.concatenate([[2.3, 16, 14, 12, 10, 8, 6, 4, 3], noisy(np.geomspace(2.2, 0.05, 240))])
    assert findings(trained(recovered, [1.4, *DECAY[1:]]).build(), NAME) == []


def test_a_regression_that_ends_at_the_variance_of_its_targets() -> None:
    call = LossCallFact("mse_loss", "train", [32, 1], "float32", [32, 1], "float32", reduction="mean")
    loss = np.concatenate([[9.0, 400, 3000, 900, 100, 20, 5], noisy(np.full(200, 1.02), 0.1)])
    run = trained(loss, DECAY, known=False).fact(call)
    run = run.scalar(TARGET_MEAN, 2.8, "train").scalar(TARGET_STD, 1.0, "train").build()
    assert findings(run, NAME)[0].severity is Severity.ERROR


def test_nan_within_a_few_steps_of_huge_updates() -> None:
    loss = np.full(40, np.nan)
    loss[:2] = [2.3, 2.4]
    assert findings(trained(loss, 20.0).build(), NAME)
    assert findings(trained(loss, 1e-3).build(), NAME) == [], "NaN after usual updates has another cause"


@pytest.mark.parametrize(
    ("loss", "ratio"),
    [
        (noisy(np.geomspace(2.3, 0.05, 300)), DECAY[1] * np.geomspace(1, 0.03, 17)),
        (noisy(np.concatenate([np.geomspace(2.3, 1.0, 80), np.linspace(1, 4, 40), np.geomspace(4, 0.1, 200)])), 0.05),
        (noisy(np.geomspace(2.3, 0.05, 300), 1.0), 0.13),
        (np.where(np.arange(300) % 60 == 59, 30.0, noisy(np.geomspace(2.3, 0.2, 300))), 0.03),
        (noisy(np.full(300, 0.69), 0.3), 0.01),
        (noisy(np.geomspace(2.3, 1.2, 50)), 0.1),
        (np.abs(RANDOM.normal(0, 0.7, 400)) ** 2 + 0.01, 0.13),
    ],
    ids=["falls", "one-cycle hump", "batch of four", "lone spikes", "irreducible", "fifty steps", "noise floor"],
)
def test_sound_runs_are_silent(loss: np.ndarray, ratio: float | np.ndarray) -> None:
    assert findings(trained(loss, ratio, lr=0.01).build(), NAME) == []
    assert findings(trained(loss, ratio, lr=0.01, known=False).build(), NAME) == []


def test_a_lucky_first_batch_is_no_divergence() -> None:
    loss = noisy(np.geomspace(1.0, 0.05, 300), 0.8)
    loss[0] = 0.02
    assert findings(trained(loss, [0.14, 0.1, 0.08, 0.06, 0.05, *[0.01] * 12], known=False).build(), NAME) == []


def test_negative_losses_are_silent_unless_they_blow_up() -> None:
    likelihood = np.linspace(1.5, -40, 300) + RANDOM.normal(0, 2, 300)
    assert findings(trained(likelihood, 0.05, known=False).build(), NAME) == []
    contrastive = -np.abs(RANDOM.normal(3, 1, 300))
    assert findings(trained(contrastive, 0.05, known=False).build(), NAME) == []
    blown = np.concatenate([np.linspace(1.5, -3, 100), noisy(np.full(200, 1e6), 0.5)])
    assert findings(trained(blown, 0.2, known=False).build(), NAME)


def test_returns_that_grow_with_the_reward_are_silent() -> None:
    policy = RANDOM.normal(0, 1, 300) * np.linspace(1, 300, 300)
    assert findings(trained(policy, 0.03, known=False).build(), NAME) == []


def test_adversarial_losses_only_count_when_they_end_in_nan() -> None:
    steps = 300
    builder = (
        RunBuilder(steps)
        .parameters({"g.weight": (64, 64), "d.weight": (1, 64)})
        .optimizer("Adam", key="0", lr=1e-3)
        .optimizer("Adam", key="1", lr=1e-3)
        .scalar(LEARNING_RATE, 1e-3, key="0.0")
        .scalar(LEARNING_RATE, 1e-3, key="1.0")
        .scalar(LOSS_TRAIN, noisy(np.linspace(1.4, 0.2, steps)), key="0")
        .scalar(LOSS_TRAIN, noisy(np.linspace(0.7, 9.0, steps)), key="1")
        .matrix(UPDATE_RATIO, {"g.weight": 0.05, "d.weight": 0.05})
    )
    assert findings(builder.build(), NAME) == []


def test_bad_data_is_not_blamed_on_the_rate() -> None:
    loss = np.geomspace(2.3, 1.0, 100)
    loss[40:] = np.nan
    run = trained(loss, 0.05).fact(NonfiniteFact("input", "input", "train", 3, 3), step=40).build()
    assert findings(run, NAME) == []


def test_a_loss_that_is_faded_in_ends_higher_without_large_updates() -> None:
    assert findings(trained(noisy(np.linspace(0.5, 4.0, 300)), 2e-3, known=False).build(), NAME) == []


def test_without_measured_updates_only_the_unmistakable_counts() -> None:
    def bare(loss: list[float]) -> RunBuilder:
        values = np.full(60, np.nan)
        values[: len(loss)] = loss
        return RunBuilder(60).scalar(LEARNING_RATE, 0.5, key="0.0").scalar(LOSS_TRAIN, values)

    assert findings(bare([1.0, 40, 1e4, 1e9]).build(), NAME)
    assert findings(bare([1.0, 1.1, 0.9, 3.0]).build(), NAME) == []


def test_long_runs_are_read_the_same() -> None:
    loss = np.concatenate([np.geomspace(2.3, 5000, 50), noisy(np.full(20_000, 2.35), 0.02)])
    (found,) = findings(trained(loss, DECAY).build(), NAME)
    assert found.first_step < 50


def test_folds_that_follow_one_another_are_judged_apart() -> None:
    fold = np.concatenate([[2.3, 900, 60, 9], noisy(np.full(96, 2.33), 0.02)])
    run = trained(np.concatenate([fold, fold]), DECAY)
    run.scalar(LEARNING_RATE, 1.0, key="0.0", steps=range(100))
    run.optimizer("Adam", key="1").scalar(LEARNING_RATE, 1.0, key="1.0", steps=range(100, 200))
    assert len(findings(run.build(), NAME)) == 1
    run.scalar(LEARNING_RATE, 1.0, key="1.0", steps=range(50, 200))
    assert findings(run.build(), NAME) == []


def test_half_of_what_was_learned_is_lost_for_good() -> None:
    loss = np.r_[np.linspace(2.3, 0.4, 40), np.linspace(0.4, 1.7, 10), np.full(250, 1.7)]
    (found,) = findings(trained(noisy(loss), 0.1).build(), NAME)
    assert "lost" in found.title
    assert not findings(trained(noisy(np.r_[loss[:50], np.linspace(1.7, 0.3, 250)]), 0.1).build(), NAME)


def test_the_lowest_of_many_noisy_batches_is_nothing_learned() -> None:
    loss = noisy(np.full(600, 2.3), 0.3)
    loss[100:105] = 1.6
    assert not findings(trained(loss, 0.03).build(), NAME)


@pytest.mark.parametrize(("end", "told"), [(1.2, True), (0.02, False)], ids=["weights stay", "weights melt"])
def test_updates_that_are_large_only_beside_melting_weights(end: float, told: bool) -> None:
    run = trained(noisy(np.full(200, 2.3), 0.01), 0.5).scalar(WEIGHT_GLOBAL_L2, np.geomspace(1.0, end, 200))
    assert bool(findings(run.build(), NAME)) is told
