"""Activations between the last layer and the loss, and softmax inside the network."""

from __future__ import annotations

from typing import Any

import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import TRAIN, GraphFact, LayersFact, LossCallFact
from torchdoctor.findings import Severity

NAME = "misplaced-activation"


def graph(*operators: str, shapes: dict[int, list[int]] | None = None) -> RunBuilder:
    nodes: list[dict[str, Any]] = [
        {"op": f"{op}Backward0", "depth": i, "inputs": [i + 1] if i + 1 < len(operators) else []}
        for i, op in enumerate(operators)
    ]
    for i, shape in (shapes or {}).items():
        nodes[i]["shape"] = shape
    nodes[-1]["parameters"] = ["out.weight"]
    return RunBuilder(100).fact(GraphFact(nodes[0]["op"], [], nodes, {}))


def regression(activation: str, low: float, high: float, std: float) -> RunBuilder:
    call = LossCallFact("mse_loss", TRAIN, [32], "float32", [32], "float32", target_low=low, target_high=high)
    builder = graph("MseLoss", "Squeeze", activation, "Addmm").fact(call)
    builder.scalar(signals.TARGET_MEAN, (low + high) / 2, key=TRAIN)
    return builder.scalar(signals.TARGET_STD, std, key=TRAIN)


@pytest.mark.parametrize("activation", ["Relu", "Sigmoid", "Tanh", "Gelu"])
def test_on_the_scores_of_cross_entropy(activation: str) -> None:
    (said,) = findings(graph("NllLoss", "LogSoftmax", "View", activation, "Addmm").build(), NAME)
    assert said.severity is not Severity.INFO


def test_relu_before_bce_with_logits() -> None:
    assert findings(graph("BinaryCrossEntropyWithLogits", "Squeeze", "Relu", "Addmm").build(), NAME)


@pytest.mark.parametrize(
    "operators",
    [
        ("NllLoss", "LogSoftmax", "Addmm"),
        ("NllLoss", "LogSoftmax", "Mul", "Tanh", "Div", "Addmm"),
        ("NllLoss", "LogSoftmax", "View", "Mean", "Relu", "Convolution"),
        ("NllLoss", "LogSoftmax", "Softmax", "Addmm"),
        ("BinaryCrossEntropy", "Sigmoid", "Addmm"),
    ],
)
def test_what_is_right_or_has_a_rule_of_its_own(operators: tuple[str, ...]) -> None:
    assert not findings(graph(*operators).build(), NAME)


def test_targets_outside_the_outputs_range() -> None:
    (said,) = findings(regression("Sigmoid", -2.1, 2.4, 1.0).build(), NAME)
    assert said.severity is Severity.ERROR
    assert findings(regression("Relu", -2.1, 2.4, 1.0).build(), NAME)


def test_targets_inside_it() -> None:
    assert not findings(regression("Sigmoid", 0.0, 1.0, 0.3).build(), NAME)
    assert not findings(regression("Relu", 0.0, 9.0, 2.0).build(), NAME)


def test_softmax_over_one_unit() -> None:
    builder = graph("NllLoss", "Log", "Softmax", "Addmm", shapes={2: [32, 1]})
    assert [f.severity for f in findings(builder.build(), NAME)] == [Severity.ERROR]


@pytest.mark.parametrize(("ops", "units", "found"), [(["Softmax"], 64, 1), (["Softmax"], 4, 0), (["Relu"], 64, 0)])
def test_softmax_between_layers(ops: list[str], units: int, found: int) -> None:
    layers = [
        {"name": n, "op": "AddmmBackward0", "fan_in": 64, "fan_out": units, "groups": 1, "plain_matrix": False}
        for n in ("fc1.weight", "fc2.weight")
    ]
    link = {"above": "fc2.weight", "below": "fc1.weight", "ops": [f"{o}Backward0" for o in ops]}
    builder = graph("NllLoss", "LogSoftmax", "Addmm").fact(LayersFact(layers, [link]))
    assert len(findings(builder.build(), NAME)) == found
