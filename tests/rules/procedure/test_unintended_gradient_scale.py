from __future__ import annotations

from typing import Any

import numpy as np

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import GraphFact, LossCallFact, PhaseFact
from torchdoctor.findings import Severity
from torchdoctor.rules.procedure import unintended_gradient_scale

NAME = "unintended-gradient-scale"
DIVERGING = np.concatenate([np.geomspace(64, 1e9, 40), np.full(60, np.nan)])
FALLING = np.linspace(64, 3, 100)


def trained(loss: Any, factor: float, first: float = 0.4, kind: str = "SGD", reduction: str = "sum") -> RunBuilder:
    call = LossCallFact("mse_loss", "train", [64, 1], "float32", [64, 1], "float32", reduction)
    return (
        RunBuilder(100)
        .scalar(signals.LOSS_TRAIN, loss)
        .scalar(signals.LOSS_CALLED, np.asarray(loss) / factor)
        .matrix(signals.UPDATE_RATIO, {"fc.weight": np.geomspace(first, 10 * first, 100)})
        .parameters({"fc.weight": (10, 8)})
        .optimizer(kind, lr=0.05)
        .fact(call)
        .fact(PhaseFact(100, 100, 100, 0, 0, 0, None, loss_sites=["train.py:9"]))
    )


def test_a_sum_that_diverges() -> None:
    (found,) = findings(trained(DIVERGING, 64).build(), NAME)
    assert found.severity is Severity.ERROR and 'reduction="mean"' in (found.fix.code or "")


def test_a_run_without_a_loss_says_nothing() -> None:
    assert list(unintended_gradient_scale.detect(RunBuilder(100).optimizer("SGD", lr=0.05).build())) == []


def test_a_sum_with_a_rate_to_match_is_fine() -> None:
    assert not findings(trained(FALLING, 64, first=1e-3).build(), NAME)


def test_adam_does_not_mind() -> None:
    assert not findings(trained(DIVERGING, 64, kind="Adam").build(), NAME)


def test_a_mean_that_diverges_has_another_cause() -> None:
    assert not findings(trained(DIVERGING, 1, reduction="mean").build(), NAME)


def test_updates_too_long_even_for_the_mean_have_another_cause() -> None:
    assert not findings(trained(DIVERGING, 64, first=50.0).build(), NAME)


def test_accumulation_without_division() -> None:
    run = trained(DIVERGING, 1, reduction="mean").scalar(signals.LOSS_EVENTS, 16.0)
    (found,) = findings(run.build(), NAME)
    assert found.fix.code == "(loss / 16).backward()"
    divided = trained(DIVERGING, 1 / 16, reduction="mean").scalar(signals.LOSS_EVENTS, 16.0)
    assert not findings(divided.build(), NAME)
    coping = trained(FALLING, 1, first=1e-3, reduction="mean").scalar(signals.LOSS_EVENTS, 16.0)
    assert findings(coping.build(), NAME)[0].severity is Severity.INFO


def test_a_sum_by_hand_is_seen_in_the_graph() -> None:
    nodes = [
        {"op": "NegBackward0", "depth": 0, "shape": []},
        {"op": "SumBackward0", "depth": 1, "shape": []},
        {"op": "GatherBackward0", "depth": 2, "shape": [16, 25, 1]},
    ]
    run = (
        RunBuilder(100)
        .scalar(signals.LOSS_TRAIN, DIVERGING)
        .matrix(signals.UPDATE_RATIO, {"fc.weight": np.geomspace(0.4, 4.0, 100)})
        .parameters({"fc.weight": (10, 8)})
        .optimizer("SGD", lr=0.5)
        .fact(GraphFact("NegBackward0", [], nodes, {}))
    )
    assert findings(run.build(), NAME)


def test_accumulation_that_keeps_the_loss_up() -> None:
    bounce = 1.0 + 3 * np.exp(-np.arange(100) / 8) + 0.1 * np.random.default_rng(0).normal(size=100)
    run = trained(bounce, 1, first=1e-3, reduction="mean").scalar(signals.LOSS_EVENTS, 8.0)
    run.scalar(signals.LEARNING_RATE, 0.05, "0.0").scalar(signals.GRADIENT_GLOBAL_L2, 8.0)
    (found,) = findings(run.build(), NAME)
    assert found.severity is Severity.WARNING and found.fix.code == "(loss / 8).backward()"
    steep = run.scalar(signals.GRADIENT_GLOBAL_L2, 80.0)
    assert findings(steep.build(), NAME)[0].severity is Severity.INFO
