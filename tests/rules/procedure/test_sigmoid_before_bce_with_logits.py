from __future__ import annotations

import pytest

from building import RunBuilder, findings
from torchdoctor.facts import GraphFact, LossCallFact, ModuleFact
from torchdoctor.findings import Proof, RuledOut, Severity

NAME = "sigmoid-before-bce-with-logits"


def graph(*ops: str, opaque: bool = False) -> GraphFact:
    nodes = [{"op": f"{op}Backward0", "depth": i, "file": "m.py", "line": i + 1} for i, op in enumerate(ops)]
    return GraphFact(root=nodes[0]["op"], loss_shape=[], nodes=nodes, operators={}, opaque=opaque)


def call(low: float, high: float) -> LossCallFact:
    return LossCallFact(
        function="binary_cross_entropy_with_logits",
        phase="train",
        input_shape=[32],
        input_dtype="float32",
        target_shape=[32],
        target_dtype="float32",
        input_low=low,
        input_high=high,
    )


@pytest.mark.parametrize(
    "ops",
    [
        ("BinaryCrossEntropyWithLogits", "Sigmoid", "Addmm"),
        ("Mul", "BinaryCrossEntropyWithLogits", "Squeeze", "ToCopy", "Sigmoid"),
        ("Mean", "Neg", "LogSigmoid", "View", "Sigmoid"),
        ("BinaryCrossEntropyWithLogits", "Softmax"),
    ],
    ids=" ".join,
)
def test_a_squashed_output_that_feeds_the_loss(ops: tuple[str, ...]) -> None:
    (found,) = findings(RunBuilder().fact(graph(*ops)).fact(call(0.2, 0.9)).build(), NAME)
    assert found.severity is Severity.ERROR and found.proof is Proof.STRUCTURE
    assert "before the loss" in found.fix.text
    assert found.where and found.fix.code and "binary_cross_entropy_with_logits" in found.fix.code


def test_a_sigmoid_that_is_the_last_module() -> None:
    run = RunBuilder().fact(graph("BinaryCrossEntropyWithLogits", "Sigmoid", "Addmm")).fact(call(0.2, 0.9))
    run.fact(ModuleFact("0", "Linear", order=0)).fact(ModuleFact("1", "Sigmoid", "sigmoid", order=1))
    (found,) = findings(run.build(), NAME)
    assert "at the end of the model" in found.fix.text


@pytest.mark.parametrize(
    "ops",
    [
        ("BinaryCrossEntropyWithLogits", "Addmm", "Mul", "Sigmoid"),
        ("BinaryCrossEntropy", "Sigmoid", "Addmm"),
        ("BinaryCrossEntropyWithLogits", "Mul", "Sigmoid"),
    ],
    ids=" ".join,
)
def test_gates_and_the_loss_for_probabilities_are_fine(ops: tuple[str, ...]) -> None:
    assert not findings(RunBuilder().fact(graph(*ops)).fact(call(0.2, 0.9)).build(), NAME)


def test_behind_a_compiled_graph_only_a_range_that_lasts_counts() -> None:
    hidden = graph("CompiledFunction", opaque=True)
    always = RunBuilder().fact(hidden)
    for step, high in enumerate((0.7, 0.9, 0.99)):
        always.fact(call(0.1 / (step + 1), high), step=step)
    assert [f.proof for f in findings(always.build(), NAME)] == [Proof.STATISTICS]
    small = RunBuilder().fact(hidden)
    for step in range(3):
        small.fact(call(0.01, 0.2), step=step)
    assert not findings(small.build(), NAME)
    assert not findings(RunBuilder().fact(hidden).fact(call(0.1, 0.9)).build(), NAME)


def test_negative_scores_rule_it_out() -> None:
    (said,) = RunBuilder().fact(graph("BinaryCrossEntropyWithLogits", "Addmm")).fact(call(-3, 2)).detect(NAME)
    assert isinstance(said, RuledOut)
