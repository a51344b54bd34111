"""A model too small for its task, and what looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import TRAIN, InputsFact, LayersFact, LoaderFact, LossCallFact, ModelFact

NAME = "capacity-too-low"
NOISE = np.random.default_rng(0).normal(0, 1, 300)
FLAT = np.r_[np.linspace(2.3, 1.4, 60), np.full(240, 1.4)] + 0.05 * NOISE


def run(agreement: float = 0.6, **changes: Any) -> RunBuilder:
    given = {"loss": FLAT, "validation": 1.42, "moved": 2e-3, "rate": 0.01, "width": 4} | changes
    builder = RunBuilder(300).scalar(signals.LOSS_TRAIN, given["loss"]).optimizer("Adam", lr=0.01)
    builder.scalar(signals.LOSS_VALIDATION, [given["validation"]] * 5, steps=[60, 120, 180, 240, 299])
    builder.scalar(signals.LEARNING_RATE, given["rate"], key="0.0")
    builder.scalar(signals.RESIDUAL_AGREEMENT, agreement + 0.05 * NOISE)
    builder.parameters({"fc1.weight": (given["width"], 64), "fc2.weight": (10, given["width"])})
    builder.matrix(signals.UPDATE_RATIO, {"fc1.weight": given["moved"], "fc2.weight": given["moved"]})
    builder.fact(LossCallFact("cross_entropy", TRAIN, [64, 10], "float32", [64], "int64", "mean", classes=10))
    return builder.fact(LoaderFact("train", TRAIN, 20, 1300, 64, 0, True, "digits"))


def test_flat_equal_and_wrong_in_the_same_way() -> None:
    (said,) = findings(run().build(), NAME)
    assert "1,300 training samples" in said.title


@pytest.mark.parametrize(
    "builder",
    [
        run(agreement=0.0),
        run(validation=2.0),
        run(width=512),
        run(moved=1e-6),
        run(rate=np.geomspace(0.01, 1e-6, 300)),
        run(loss=np.linspace(2.3, 1.0, 300)),
        run(loss=FLAT - 1.2, validation=0.2),
    ],
    ids=["noise", "gap", "large", "still", "decayed", "falling", "good"],
)
def test_what_looks_like_it(builder: RunBuilder) -> None:
    assert not findings(builder.build(), NAME)


def autoencoder(code: int, same: bool = True, agreement: float = 0.5) -> RunBuilder:
    widths = {"up.weight": (96, 64), "code.weight": (code, 96), "down.weight": (64, code)}
    layers = [
        {"name": n, "op": "AddmmBackward0", "fan_in": s[1], "fan_out": s[0], "kernel": []}
        for n, s in reversed(widths.items())
    ]
    builder = RunBuilder(300).scalar(signals.LOSS_TRAIN, FLAT / 2).optimizer("Adam", lr=0.01)
    builder.scalar(signals.LEARNING_RATE, 0.01, key="0.0").parameters(widths).fact(LayersFact(layers, []))
    builder.scalar(signals.RESIDUAL_AGREEMENT, agreement + 0.05 * NOISE)
    builder.matrix(signals.UPDATE_RATIO, dict.fromkeys(widths, 2e-3))
    builder.fact(LossCallFact("mse_loss", TRAIN, [64, 64], "float32", [64, 64], "float32", "mean"))
    builder.fact(InputsFact(TRAIN, "input", [64, 64], "float32", mean=0.01, std=1.0))
    return builder.fact(InputsFact(TRAIN, "target", [64, 64], "float32", mean=0.01 if same else 0.5, std=1.0))


def test_a_code_far_narrower_than_what_it_has_to_carry() -> None:
    (said,) = findings(autoencoder(2).build(), NAME)
    assert "code has 2 units" in (said.fix.code or "")


def test_a_wide_code_another_target_and_residuals_of_noise() -> None:
    assert not findings(autoencoder(40).build(), NAME)
    assert not findings(autoencoder(2, same=False).build(), NAME)
    assert not findings(autoencoder(2, agreement=0.02).build(), NAME)


def test_a_slow_descent_shows_over_the_last_half() -> None:
    late = np.r_[np.linspace(2.3, 1.8, 150), np.linspace(1.8, 1.42, 90), np.full(60, 1.42)]
    assert not findings(run(loss=late + 0.03 * NOISE, validation=1.42).build(), NAME)


def test_a_model_without_a_hidden_layer_has_nothing_to_widen() -> None:
    only = [{"name": "fc.weight", "op": "AddmmBackward0", "fan_in": 64, "fan_out": 10, "kernel": []}]
    assert not findings(run().fact(LayersFact(only, [])).build(), NAME)


def test_models_trained_one_after_another_are_not_judged_by_one_curve() -> None:
    assert findings(run().fact(ModelFact("net", "Net", 50, 50, 3)).build(), NAME)
    late = run().fact(ModelFact("net", "Net", 50, 50, 3), 1)
    assert findings(late.build(), NAME)
    assert not findings(late.fact(ModelFact("net'", "Net", 50, 50, 3), 100).build(), NAME)
