"""Features that no longer tell samples apart."""

from __future__ import annotations

import numpy as np

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import TRAIN, GraphFact, LossCallFact, ModuleFact
from torchdoctor.findings import RuledOut, Severity

NAME = "representation-collapse"
FALLING = np.geomspace(0.5, 0.002, 100)


def spread(output: object, features: object = 0.5, given: float = 0.6, loss: object = 1.1) -> RunBuilder:
    columns = {"features into out": features, "output of out": output, "input": given}
    builder = RunBuilder(100).scalar(signals.LOSS_TRAIN, loss)
    builder.matrix(signals.REPRESENTATION_SPREAD, columns)
    return builder.matrix(signals.REPRESENTATION_RANK, dict.fromkeys(columns, 1.0))


def pairs(builder: RunBuilder) -> RunBuilder:
    nodes = [{"op": "MseLossBackward0", "depth": 0, "inputs": [1, 2]}]
    nodes += [{"op": "AddmmBackward0", "depth": 1, "inputs": [], "parameters": ["out.weight"]} for _ in range(2)]
    return builder.fact(GraphFact("MseLossBackward0", [], nodes, {}))


def classes(builder: RunBuilder) -> RunBuilder:
    return builder.fact(LossCallFact("cross_entropy", TRAIN, [32, 3], "float32", [32], "int64", classes=3))


def test_two_views_drawn_to_one_point() -> None:
    (said,) = findings(pairs(spread(FALLING, loss=np.geomspace(1, 1e-6, 100))).build(), NAME)
    assert said.severity is Severity.ERROR and "collapsed" in said.title


def test_views_that_stay_apart_rule_it_out() -> None:
    assert [type(s) for s in pairs(spread(0.6)).detect(NAME)] == [RuledOut]


def test_all_samples_alike_from_the_start() -> None:
    (said,) = findings(classes(spread(0.0, 1e-8)).build(), NAME)
    assert said.severity is Severity.ERROR and "same output" in said.title


def test_a_model_that_learns_or_constant_inputs_or_fading_sigmoids_are_no_collapse() -> None:
    assert not findings(classes(spread(0.001, 0.001, loss=np.linspace(1, 0.1, 100))).build(), NAME)
    assert not findings(classes(spread(0.0, 0.0, given=0.0)).build(), NAME)
    deep = classes(spread(0.0, 1e-8))
    for i in range(3):
        deep.fact(ModuleFact(f"act{i}", "Sigmoid", "sigmoid", i))
    assert not findings(deep.build(), NAME)


def test_features_that_fade_while_the_loss_is_stuck() -> None:
    assert [f.severity for f in findings(classes(spread(0.3, 0.004)).build(), NAME)] == [Severity.WARNING]
