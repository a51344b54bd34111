from __future__ import annotations

from typing import Any

import pytest

from building import RunBuilder, findings
from torchdoctor.facts import GraphFact, LossCallFact
from torchdoctor.findings import Proof, RuledOut, Severity

NAME = "softmax-before-cross-entropy"


def graph(
    *ops: str, inputs: list[list[int]] | None = None, depths: list[int] | None = None, **fields: Any
) -> GraphFact:
    """A chain of operators from the loss down, or with `inputs` any graph."""
    nodes = []
    for i, op in enumerate(ops):
        node: dict[str, Any] = {
            "op": f"{op}Backward0",
            "depth": depths[i] if depths else i,
            "file": "m.py",
            "line": i + 1,
        }
        if inputs is not None:
            node["inputs"] = inputs[i]
        nodes.append(node)
    return GraphFact(root=nodes[0]["op"], loss_shape=[], nodes=nodes, operators={}, **fields)


def call(**fields: Any) -> LossCallFact:
    given = {
        "function": "cross_entropy",
        "phase": "train",
        "input_shape": [32, 10],
        "input_dtype": "float32",
        "target_shape": [32],
        "target_dtype": "int64",
        "classes": 10,
        "input_low": -2.0,
        "input_high": 3.0,
        "rows_sum_to_one": False,
        "file": "m.py",
        "line": 9,
    }
    return LossCallFact(**{**given, **fields})


@pytest.mark.parametrize(
    "ops",
    [
        ("NllLoss", "LogSoftmax", "Softmax", "Addmm"),
        ("NllLoss", "LogSoftmax", "View", "Softmax", "View", "Addmm"),
        ("NllLoss2D", "LogSoftmax", "Transpose", "Softmax", "UnsafeView"),
        ("Div", "Neg", "Sum", "Mul", "LogSoftmax", "Clamp", "Softmax"),
    ],
    ids=" ".join,
)
def test_a_softmax_that_feeds_the_losss_own(ops: tuple[str, ...]) -> None:
    (found,) = findings(RunBuilder().fact(graph(*ops)).fact(call(rows_sum_to_one=True)).build(), NAME)
    assert found.severity is Severity.ERROR and found.proof is Proof.STRUCTURE
    assert any(place.file == "m.py" and place.line == ops.index("Softmax") + 1 for place in found.where)
    assert "1.46" in " ".join(e.text for e in found.evidence)


def test_values_alone_prove_it_where_the_graph_is_compiled() -> None:
    run = RunBuilder().fact(graph("CompiledFunction", opaque=True)).fact(call(rows_sum_to_one=True)).build()
    assert [f.severity for f in findings(run, NAME)] == [Severity.ERROR]


def test_log_softmax_twice_is_only_a_remark() -> None:
    run = RunBuilder().fact(graph("NllLoss", "LogSoftmax", "LogSoftmax", "Addmm")).fact(call()).build()
    assert [f.severity for f in findings(run, NAME)] == [Severity.INFO]


@pytest.mark.parametrize(
    "ops",
    [
        ("NllLoss", "LogSoftmax", "Addmm"),
        ("NllLoss", "Log", "Softmax", "Addmm"),
        ("NllLoss", "LogSoftmax", "Mul", "Softmax"),
        ("KlDiv", "LogSoftmax", "Div", "Addmm"),
        ("NllLoss", "LogSoftmax", "Addmm", "Bmm", "Softmax"),
    ],
    ids=" ".join,
)
def test_a_softmax_elsewhere_is_fine(ops: tuple[str, ...]) -> None:
    assert not findings(RunBuilder().fact(graph(*ops)).fact(call()).build(), NAME)


def test_an_entropy_bonus_beside_the_loss_is_fine_with_and_without_edges() -> None:
    ops = ("Sub", "NllLoss", "Mul", "LogSoftmax", "Sum", "Addmm", "Softmax", "Addmm")
    edges = [[1, 2], [3], [4], [5], [6], [], [7], []]
    depths = [0, 1, 1, 2, 2, 3, 3, 4]
    for inputs in (edges, None):
        run = RunBuilder().fact(graph(*ops, inputs=inputs, depths=depths)).fact(call()).build()
        assert not findings(run, NAME)


def test_one_row_or_one_class_proves_nothing() -> None:
    for fields in ({"input_shape": [1, 10]}, {"classes": 1, "input_shape": [32, 1]}):
        run = RunBuilder().fact(graph("NllLoss", "LogSoftmax")).fact(call(rows_sum_to_one=True, **fields)).build()
        assert not findings(run, NAME)


def test_raw_scores_rule_it_out() -> None:
    (said,) = RunBuilder().fact(graph("NllLoss", "LogSoftmax", "Addmm")).fact(call()).detect(NAME)
    assert isinstance(said, RuledOut) and "-2" in said.text
