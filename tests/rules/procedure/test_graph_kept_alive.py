from __future__ import annotations

import numpy as np

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.findings import RuledOut, Severity

NAME = "graph-kept-alive"
LOOKS = [3, 5, 8, 12, 20, 50, 100]


def looked(kept: list[float], nodes: object = 40.0, reach: object = 0.0) -> RunBuilder:
    return (
        RunBuilder(120)
        .scalar(signals.GRAPH_NODES, nodes, steps=LOOKS)
        .scalar(signals.GRAPH_REACH, reach, steps=LOOKS)
        .scalar(signals.GRAPHS_KEPT, kept, steps=LOOKS)
        .scalar(signals.GRAPHS_MARKED, [1, 3, 5, 6, 7, 8, 9], steps=LOOKS)
    )


def test_a_total_of_losses_holds_every_graph() -> None:
    (found,) = findings(looked([1, 3, 5, 6, 7, 8, 9]).build(), NAME)
    assert found.severity is Severity.WARNING and "loss.item()" in (found.fix.code or "")


def test_a_total_that_is_reset_every_epoch_is_told_too() -> None:
    assert findings(looked([1, 3, 5, 6, 0, 1, 2]).build(), NAME)


def test_the_best_loss_so_far_may_be_kept() -> None:
    assert not findings(looked([1, 1, 1, 1, 1, 1, 1]).build(), NAME)


def test_freed_graphs_rule_it_out() -> None:
    (said,) = looked([0] * 7).detect(NAME)
    assert isinstance(said, RuledOut)


def test_a_state_carried_on_makes_the_graph_grow() -> None:
    steps = np.array(LOOKS, float)
    (found,) = findings(looked([0] * 7, nodes=40 + 12 * steps, reach=steps).build(), NAME)
    assert found.severity is Severity.ERROR and "detach" in (found.fix.code or "")


def test_a_part_computed_once_reaches_back_but_does_not_grow() -> None:
    assert not findings(looked([0] * 7, reach=np.array(LOOKS, float)).build(), NAME)


def test_longer_sequences_grow_but_do_not_reach_back() -> None:
    assert not findings(looked([0] * 7, nodes=40 + np.array(LOOKS, float)).build(), NAME)


def test_torchs_own_error_is_explained() -> None:
    run = (
        RunBuilder(2)
        .scalar(signals.GRAPH_NODES, [40, 80])
        .scalar(signals.GRAPH_REACH, [1.0], steps=[1])
        .info(exception={"type": "RuntimeError", "message": "Trying to backward through the graph a second time (...)"})
    )
    assert findings(run.build(), NAME)
    again = RunBuilder(2).scalar(signals.GRAPH_NODES, [40, 80]).scalar(signals.GRAPH_REACH, [0.0], steps=[1])
    again.info(
        exception={"type": "RuntimeError", "message": "Trying to backward through the graph a second time (...)"}
    )
    assert not findings(again.build(), NAME)


def test_an_update_in_the_midst_of_a_step_is_no_state_carried_over() -> None:
    message = "... has been modified by an inplace operation ..."
    for earlier, expected in ((True, 1), (False, 0)):
        run = RunBuilder(2).scalar(signals.GRAPH_NODES, [40, 80]).scalar(signals.GRAPH_REACH, [1.0], steps=[1])
        run.info(exception={"type": "RuntimeError", "message": message, "explanation": {"earlier_step": earlier}})
        assert len(findings(run.build(), NAME)) == expected
