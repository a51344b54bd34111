from __future__ import annotations

from typing import Any

import numpy as np

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import ClipFact, OrderFact
from torchdoctor.findings import RuledOut

NAME = "clipping-out-of-order"
RIGHT = ["zero_grad", "forward", "backward", "clip", "step"]
LATE = ["clip", "zero_grad", "forward", "backward", "step"]


def clipped(calls: list[str], *, late: bool = False, norms: Any = 3.0, applied: Any = 1.0) -> RunBuilder:
    return (
        RunBuilder(60)
        .optimizer("SGD", lr=0.1)
        .fact(OrderFact("0", calls))
        .fact(ClipFact("norm", 1.0, 2.0, 4, after_step=late))
        .scalar(signals.CLIP_NORM, norms)
        .scalar(signals.GRADIENT_GLOBAL_L2, applied)
    )


def test_clipping_after_the_step() -> None:
    norms = np.linspace(2, 5, 60)
    run = clipped(LATE, late=True, norms=np.roll(norms, 1), applied=norms).fact(OrderFact("0", [*RIGHT[:3], "step"]))
    (found,) = findings(run.build(), NAME)
    assert "already applied" in found.evidence[1].text and "clip_grad_norm_" in (found.fix.code or "")


def test_the_right_order_is_ruled_out() -> None:
    (said,) = clipped(RIGHT).detect(NAME)
    assert isinstance(said, RuledOut)


def test_a_generator_that_is_used_up() -> None:
    assert findings(clipped(RIGHT, norms=0.0).build(), NAME)
    assert not findings(clipped(RIGHT, norms=0.0, applied=0.0).build(), NAME)


def test_clipping_before_unscaling() -> None:
    wrong = ["forward", "backward", "clip", "unscale", "step"]
    right = ["forward", "backward", "unscale", "clip", "step"]
    assert findings(clipped(wrong).scalar(signals.SCALE, 65536.0).build(), NAME)
    assert not findings(clipped(right).scalar(signals.SCALE, 65536.0).build(), NAME)
    assert not findings(clipped(wrong).scalar(signals.SCALE, 1.0).build(), NAME)


def test_a_threshold_of_infinity_measures_and_does_not_clip() -> None:
    measured = RunBuilder(60).optimizer("SGD", lr=0.1).fact(OrderFact("0", RIGHT)).scalar(signals.CLIP_NORM, 3.0)
    assert not measured.fact(ClipFact("norm", np.inf, 2.0, 4)).detect(NAME)


def test_order_of_calls_without_a_clip_rules_nothing_out() -> None:
    assert not clipped(["zero_grad", "forward", "backward", "step"]).detect(NAME)


def test_two_optimizers_in_turn_are_left_alone() -> None:
    assert not findings(clipped(LATE, late=True).optimizer("SGD", key="1", lr=0.1).build(), NAME)
