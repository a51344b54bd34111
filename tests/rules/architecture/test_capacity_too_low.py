"""A model too small for its task, and what looks like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import TRAIN, LoaderFact, LossCallFact

NAME = "capacity-too-low"
NOISE = np.random.default_rng(0).normal(0, 1, 300)
FLAT = np.r_[np.linspace(2.3, 1.4, 60), np.full(240, 1.4)] + 0.05 * NOISE


def run(agreement: float = 0.6, **changes: Any) -> RunBuilder:
    given = {"loss": FLAT, "validation": 1.42, "moved": 2e-3, "rate": 0.01, "width": 4} | changes
    builder = RunBuilder(300).scalar(signals.LOSS_TRAIN, given["loss"]).optimizer("Adam", lr=0.01)
    builder.scalar(signals.LOSS_VALIDATION, [given["validation"]] * 5, steps=[60, 120, 180, 240, 299])
    builder.scalar(signals.LEARNING_RATE, given["rate"], key="0.0")
    builder.scalar(signals.RESIDUAL_AGREEMENT, agreement + 0.05 * NOISE)
    builder.parameters({"fc1.weight": (given["width"], 64), "fc2.weight": (10, given["width"])})
    builder.matrix(signals.UPDATE_RATIO, {"fc1.weight": given["moved"], "fc2.weight": given["moved"]})
    builder.fact(LossCallFact("cross_entropy", TRAIN, [64, 10], "float32", [64], "int64", "mean", classes=10))
    return builder.fact(LoaderFact("train", TRAIN, 20, 1300, 64, 0, True, "digits"))


def test_flat_equal_and_wrong_in_the_same_way() -> None:
    (said,) = findings(run().build(), NAME)
    assert "1,300 training samples" in said.title


@pytest.mark.parametrize(
    "builder",
    [
        run(agreement=0.0),
        run(validation=2.0),
        run(width=512),
        run(moved=1e-6),
        run(rate=np.geomspace(0.01, 1e-6, 300)),
        run(loss=np.linspace(2.3, 1.0, 300)),
        run(loss=FLAT - 1.2, validation=0.2),
    ],
    ids=["noise", "gap", "large", "still", "decayed", "falling", "good"],
)
def test_what_looks_like_it(builder: RunBuilder) -> None:
    assert not findings(builder.build(), NAME)
