"""What rules share: the loss curve, the loss graph, places in the user's code."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import signals
from torchdoctor.facts import CallSiteFact, GraphFact, NonfiniteFact
from torchdoctor.findings import Place
from torchdoctor.rules import outcomes
from torchdoctor.rules.loss_curve import broken_at, first_loss, loss_curve
from torchdoctor.rules.loss_graph import LossGraph, forward_name
from torchdoctor.rules.places import call_places, known, receiver


def curve(values: object, **keyed: object) -> RunBuilder:
    builder = RunBuilder(100).scalar(signals.LOSS_TRAIN, values)
    for key, other in keyed.items():
        builder.scalar(signals.LOSS_TRAIN, other, key=key.removeprefix("k"))
    return builder


class TestLossCurve:
    def test_begin_end_and_fall(self) -> None:
        loss = loss_curve(curve(np.linspace(2.0, 1.0, 100)).build())
        assert loss is not None and loss.fell == pytest.approx(0.465, abs=0.01) and not loss.stuck
        assert loss.fell_until(50) < loss.fell

    def test_noise_around_a_level_is_stuck(self) -> None:
        noisy = 2.3 + 0.1 * np.random.default_rng(0).standard_normal(100)
        loss = loss_curve(curve(noisy).build())
        assert loss is not None and loss.stuck

    def test_a_likelihood_below_zero_can_fall(self) -> None:
        loss = loss_curve(curve(np.linspace(-1.0, -3.0, 100)).build())
        assert loss is not None and not loss.stuck

    def test_several_losses_have_no_curve_and_leftovers_do_not_count(self) -> None:
        assert loss_curve(curve(1.0, k0=1.0, k1=2.0).build()) is None
        loss = loss_curve(curve(1.0, k0=np.linspace(4, 2, 100)).build())
        assert loss is not None and loss.begin > 3

    def test_where_it_broke(self) -> None:
        values = np.ones(100)
        values[40:] = np.nan
        run = curve(values).build()
        assert broken_at(run) == 40 and first_loss(run, "") == (0, 1.0)

    def test_an_overflowing_gradient_under_a_scaler_is_no_break(self) -> None:
        run = curve(1.0).fact(NonfiniteFact("gradient", "w", "train", 3, 0), step=2).build()
        assert broken_at(run) is None

    def test_nothing_finite_at_all(self) -> None:
        loss = loss_curve(curve(float("nan")).build())
        assert loss is not None and loss.stuck and loss.broke_at == 0


def test_sources_look_through_reshaping_only() -> None:
    ops = ["LogSoftmaxBackward0", "ViewBackward0", "TransposeBackward0", "SoftmaxBackward0", "AddmmBackward0"]
    nodes = [{"op": op, "depth": i} for i, op in enumerate(ops)]
    graph = LossGraph(GraphFact("LogSoftmaxBackward0", [], nodes, {}))
    assert [o.name for o in graph.sources(graph.operators[0])] == ["Softmax"]
    assert [o.name for o in graph.sources(graph.operators[3])] == ["Addmm"]


def test_a_branched_graph_without_edges_is_not_guessed_at() -> None:
    nodes = [
        {"op": "AddBackward0", "depth": 0},
        {"op": "LogSoftmaxBackward0", "depth": 1},
        {"op": "MulBackward0", "depth": 1},
        {"op": "SoftmaxBackward0", "depth": 2},
    ]
    graph = LossGraph(GraphFact("AddBackward0", [], nodes, {}))
    assert graph.inputs(graph.operators[1]) == []
    assert len(graph.inputs(graph.operators[0])) == 2


def test_names_of_operators() -> None:
    assert forward_name("SoftmaxBackward0") == "Softmax" and forward_name("NllLoss2DBackward0") == "NllLoss2D"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("opt.step()", "opt"),
        ("self.optimizers[0].step()", "self.optimizers[0]"),
        ("scaler.step(self.opt)", "self.opt"),
        ("go()", "x"),
    ],
)
def test_how_the_user_spells_it(code: str, name: str) -> None:
    run = RunBuilder(1).fact(CallSiteFact("step", "t.py", 3, code)).build()
    assert receiver(run, "step", "x") == name
    assert call_places(run, "step", "backward") == (Place(file="t.py", line=3),)
    assert receiver(RunBuilder(1).build(), "step", "x") == "x"


def test_places_that_say_nothing_or_repeat_are_left_out() -> None:
    assert known(Place(), Place(file="a", line=1), Place(file="a", line=1)) == (Place(file="a", line=1),)


def test_batch_sizes_that_are_not_known_are_left_out() -> None:
    assert outcomes.is_by_sample(RunBuilder(10).scalar(signals.BATCH_SIZE, np.nan, "train").build())
