from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import signals
from torchdoctor.facts import OptimizerFact
from torchdoctor.run import HISTORY_ROWS, RAW_ROWS


def test_signals_and_facts_come_back() -> None:
    run = (
        RunBuilder(steps=10)
        .scalar(signals.LOSS_TRAIN, np.arange(10.0))
        .scalar(signals.LOSS_VALIDATION, [3.0, 2.0], steps=[4, 9])
        .matrix(signals.GRADIENT_L2, {"a": 1e-9, "b": np.arange(10.0)})
        .parameters({"a": (2, 3), "b": (4,)})
        .optimizer("SGD", lr=0.1)
        .build()
    )
    assert run.scalar(signals.LOSS_TRAIN).values.tolist() == list(range(10))
    assert run.scalar(signals.LOSS_VALIDATION).steps.tolist() == [4, 9]
    assert run.matrix(signals.GRADIENT_L2).columns == ("a", "b")
    assert run.matrix(signals.GRADIENT_L2).column("b").values[3] == 3
    assert list(run.parameters) == ["a", "b"]
    assert run.last_fact(OptimizerFact).groups == [{"lr": 0.1}]


def test_long_traces_are_merged_and_keep_extremes_and_ends() -> None:
    values = np.zeros(10_000)
    values[5003] = 7.0
    trace = RunBuilder(steps=10_000).scalar(signals.LOSS_TRAIN, values).build().scalar(signals.LOSS_TRAIN)
    assert len(trace) <= HISTORY_ROWS
    assert trace.high.max() == 7.0
    assert trace.values.max() < 7.0
    assert trace.steps[-1] == 9_999
    assert len(trace.first()) == len(trace.last()) == RAW_ROWS


def test_wrong_lengths_and_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="steps="):
        RunBuilder(steps=10).scalar(signals.LOSS_TRAIN, [1.0, 2.0])
    with pytest.raises(TypeError, match="matrix"):
        RunBuilder(steps=10).scalar(signals.GRADIENT_L2, 1.0)
