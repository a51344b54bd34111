from __future__ import annotations

from typing import Any

import pytest

from building import RunBuilder, findings
from torchdoctor.facts import GraphFact, InputsFact, LossCallFact
from torchdoctor.findings import Finding, Proof, RuledOut, Severity

NAME = "shape-broadcast-in-loss"


def call(shape: list[int], target: list[int], function: str = "mse_loss", phase: str = "train") -> LossCallFact:
    return LossCallFact(function, phase, shape, "float32", target, "float32", file="t.py", line=20)


def graph(*nodes: tuple[str, list[int] | None], parameters: int = -1) -> GraphFact:
    """A chain from the loss down; the last operator uses parameters."""
    listed: list[dict[str, Any]] = [
        {"op": f"{op}Backward0", "depth": i, "shape": shape, "file": "t.py", "line": 9}
        for i, (op, shape) in enumerate(nodes)
    ]
    listed[parameters]["parameters"] = ["out.weight"]
    return GraphFact(root=listed[0]["op"], loss_shape=[], nodes=listed, operators={})


PLAIN = graph(("MseLoss", []), ("Addmm", [32, 1]))


def found(*facts: Any) -> list[Finding]:
    builder = RunBuilder()
    for fact in facts:
        builder.fact(fact)
    return findings(builder.build(), NAME)


@pytest.mark.parametrize(
    ("shape", "target", "fix"),
    [
        ([32, 1], [32], "pred.squeeze(-1), target"),
        ([32], [32, 1], "pred, target.squeeze(-1)"),
        ([32, 1, 1], [32, 1], "pred.squeeze(-1), target"),
    ],
)
def test_both_shapes_grow(shape: list[int], target: list[int], fix: str) -> None:
    (said,) = found(PLAIN, call(shape, target))
    assert said.severity is Severity.ERROR and said.proof is Proof.STRUCTURE
    assert said.fix.code == f"loss = F.mse_loss({fix})" and said.where[0].line == 20


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ([32, 1], [32, 1]),
        ([32], [32]),
        ([32], []),
        ([32, 1], [1]),
        ([32, 4], [32, 1]),
        ([1, 1], [1]),
        ([8, 3, 4, 4], [3, 4, 4]),
    ],
)
def test_equal_shapes_and_one_sided_expansion_are_fine(shape: list[int], target: list[int]) -> None:
    assert not found(PLAIN, call(shape, target))


def test_losses_that_want_different_shapes_are_not_looked_at() -> None:
    assert not found(PLAIN, call([32, 10, 7], [32, 7], function="cross_entropy"))


def test_the_expand_that_torch_put_in_is_seen_without_the_call() -> None:
    (said,) = found(graph(("MseLoss", []), ("Expand", [32, 32]), ("Addmm", [32, 1])))
    assert "(32, 1)" in said.title


def test_by_hand() -> None:
    (said,) = found(
        graph(("Mean", []), ("Pow", [32, 32]), ("Sub", [32, 32]), ("Addmm", [32, 1])),
        InputsFact("train", "target", [32], "float32"),
    )
    assert said.severity is Severity.ERROR and said.where[0].line == 9


@pytest.mark.parametrize(
    "chain",
    [
        (("Mean", []), ("Pow", [32, 1]), ("Sub", [32, 1]), ("Addmm", [32, 1])),
        (
            ("Mean", []),
            ("Abs", [32, 32]),
            ("Sub", [32, 32]),
            ("Unsqueeze", [32, 1]),
            ("Squeeze", [32]),
            ("Addmm", [32, 1]),
        ),
        (("Mean", []), ("Sub", [32, 32]), ("Transpose", [1, 32]), ("Addmm", [32, 1])),
        (("Mean", []), ("Pow", [32, 32]), ("Sub", [32, 32]), ("Addmm", [32, 32])),
        (("Mean", []), ("Pow", None), ("Sub", None), ("Addmm", None)),
    ],
    ids=["same shape", "pairs on purpose", "transposed on purpose", "square outputs", "shapes unknown"],
)
def test_other_hand_written_losses_are_fine(chain: tuple[tuple[str, list[int] | None], ...]) -> None:
    assert not found(graph(*chain))


def test_in_validation_alone_it_is_a_warning() -> None:
    assert [f.severity for f in found(PLAIN, call([32, 1], [32], phase="validation"))] == [Severity.WARNING]


def test_equal_shapes_rule_it_out() -> None:
    assert [type(s) for s in RunBuilder().fact(PLAIN).fact(call([32], [32])).detect(NAME)] == [RuledOut]
