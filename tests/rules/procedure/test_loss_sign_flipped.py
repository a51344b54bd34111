from __future__ import annotations

from typing import Any

import numpy as np

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import GraphFact, LossCallFact, WiringFact
from torchdoctor.findings import Severity

NAME = "loss-sign-flipped"
RISING = np.linspace(2.3, 90, 100)
FALLING = np.linspace(2.3, 0.2, 100)


def call(function: str = "cross_entropy", **given: Any) -> LossCallFact:
    return LossCallFact(function, "train", [32, 10], "float32", [32], "int64", "mean", classes=10, **given)


def graph(*operators: str) -> GraphFact:
    """An unbranched graph, the root first, scalars down to the last but one."""
    nodes = [
        {"op": f"{op}Backward0", "depth": i, "shape": [] if i < len(operators) - 1 else [32, 10]}
        for i, op in enumerate(operators)
    ]
    return GraphFact(f"{operators[0]}Backward0", [], nodes, {})


def trained(loss: Any, called: Any = None, **optimizer: Any) -> RunBuilder:
    run = RunBuilder(100).scalar(signals.LOSS_TRAIN, loss).optimizer("SGD", lr=0.1, **optimizer)
    return run if called is None else run.scalar(signals.LOSS_CALLED, called).fact(call())


def test_a_negated_criterion() -> None:
    run = trained(-RISING, RISING).fact(graph("Neg", "NllLoss", "LogSoftmax"))
    (found,) = findings(run.build(), NAME)
    assert found.severity is Severity.ERROR and found.fix.code == "loss = -loss\nloss.backward()"


def test_maximize_alone_climbs_and_with_a_negation_descends() -> None:
    assert findings(trained(RISING, RISING, maximize=True).fact(graph("NllLoss", "LogSoftmax")).build(), NAME)
    assert not findings(trained(-FALLING, FALLING, maximize=True).fact(graph("Neg", "NllLoss")).build(), NAME)


def test_a_negative_rate() -> None:
    assert findings(trained(RISING, RISING).scalar(signals.LEARNING_RATE, -0.1, key="0.0").build(), NAME)


def test_a_plain_descent_and_a_density_below_zero_are_fine() -> None:
    assert not findings(trained(FALLING, FALLING).fact(graph("NllLoss", "LogSoftmax")).build(), NAME)
    assert not findings(trained(np.linspace(1, -3, 100)).fact(graph("Neg", "Mean", "Sub", "Log")).build(), NAME)


def test_a_log_likelihood_by_hand() -> None:
    assert findings(trained(-RISING).fact(graph("Mean", "Gather", "LogSoftmax")).build(), NAME)
    assert not findings(trained(FALLING).fact(graph("Neg", "Mean", "Gather", "LogSoftmax")).build(), NAME)


def test_a_reward_times_log_probabilities_is_left_alone() -> None:
    policy = graph("Neg", "Mean", "Mul", "LogSoftmax")
    policy.nodes[2]["shape"] = [32]
    assert not findings(trained(-RISING).fact(policy).build(), NAME)


def test_two_optimizers_and_attacks_on_an_input_are_left_alone() -> None:
    assert not findings(trained(-RISING, RISING).optimizer("SGD", key="1", lr=0.1).build(), NAME)
    attack = trained(-RISING, RISING).fact(WiringFact(3, 2, unheld=["fc.weight", "fc.bias"]))
    assert not findings(attack.build(), NAME)


def test_a_steady_rise_with_small_updates_is_a_warning() -> None:
    run = trained(RISING, RISING).matrix(signals.UPDATE_RATIO, {"fc.weight": 1e-3}).parameters({"fc.weight": (10, 8)})
    run.scalar(signals.ACCURACY_TRAIN, np.linspace(0.1, 0.0, 100))
    (found,) = findings(run.build(), NAME)
    assert found.severity is Severity.WARNING


def test_a_steady_rise_under_a_memory_that_never_forgets_is_not_the_sign() -> None:
    run = trained(RISING, RISING, momentum=0.9999).matrix(signals.UPDATE_RATIO, {"fc.weight": 1e-3})
    run.parameters({"fc.weight": (10, 8)}).scalar(signals.ACCURACY_TRAIN, np.linspace(0.1, 0.0, 100))
    assert not findings(run.build(), NAME)


def test_a_loss_that_large_updates_throw_up_until_it_breaks_is_not_the_sign() -> None:
    rising = np.where(np.arange(100) < 15, np.geomspace(2.3, 1e30, 100), np.nan)
    ratio = np.where(np.arange(100) < 15, 2.0, 0.0)
    run = trained(rising, rising).matrix(signals.UPDATE_RATIO, {"fc.weight": ratio}).parameters({"fc.weight": (10, 8)})
    run.scalar(signals.ACCURACY_TRAIN, np.linspace(0.1, 0.0, 100))
    assert not findings(run.build(), NAME)
