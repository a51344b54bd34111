"""Layers that follow one another without an activation."""

from __future__ import annotations

from typing import Any

import pytest

from building import RunBuilder, findings
from torchdoctor.facts import LayersFact
from torchdoctor.findings import RuledOut, Severity

NAME = "missing-nonlinearity"


def stack(widths: list[int], between: list[list[str]], module_type: str = "Linear", **fields: Any) -> RunBuilder:
    """Layers of these widths, with the operators that lie between each two, first layer first."""
    names = [f"fc{i}.weight" for i in range(len(widths) - 1)]
    layers = [
        {"name": n, "op": "AddmmBackward0", "fan_in": widths[i], "fan_out": widths[i + 1], "groups": 1, "kernel": []}
        | {"plain_matrix": False}
        | fields
        for i, n in enumerate(names)
    ]
    links = [
        {"above": names[i + 1], "below": names[i], "ops": [f"{o}Backward0" for o in ops]}
        for i, ops in enumerate(between)
    ]
    shapes = {n: (widths[i + 1], widths[i]) for i, n in enumerate(names)}
    fact = LayersFact(list(reversed(layers)), list(reversed(links)))
    return RunBuilder(50).parameters(shapes, module_type).fact(fact)


def test_a_network_without_any_activation() -> None:
    (said,) = findings(stack([2, 64, 64, 2], [["Mul"], []]).build(), NAME)
    assert said.severity is Severity.WARNING and "is linear" in said.title
    assert said.fix.code == "x = F.relu(model.fc0(x))"


def test_two_places_in_a_larger_network() -> None:
    builder = stack([8, 64, 64, 64, 2], [["NativeBatchNorm"], [], ["Relu"]])
    (said,) = findings(builder.build(), NAME)
    assert said.severity is Severity.WARNING and "is linear" not in said.title


def test_right_before_the_output_it_is_a_remark() -> None:
    assert [f.severity for f in findings(stack([8, 64, 64, 2], [["Relu"], []]).build(), NAME)] == [Severity.INFO]


@pytest.mark.parametrize(
    "builder",
    [
        stack([64, 8, 64], [[]]),
        stack([64, 64, 10], [["Relu"]]),
        stack([64, 64, 10], [["NativeLayerNorm"]]),
        stack([64, 64, 10], [[]], "LSTM"),
        stack([64, 64, 64], [[]], "Conv2d", groups=64),
        stack([64, 64, 64], [[]], "Conv2d", kernel=[1, 7]),
    ],
)
def test_bottlenecks_factorised_layers_and_activations(builder: RunBuilder) -> None:
    assert not findings(builder.build(), NAME)


def test_activations_everywhere_rule_it_out() -> None:
    assert [type(s) for s in stack([8, 64, 64, 2], [["Relu"], ["Gelu"]]).detect(NAME)] == [RuledOut]
