"""Recordings for tests of the store, and how two views of one are compared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from torchdoctor import signals
from torchdoctor.facts import OrderFact, ParameterFact
from torchdoctor.run import Run, Trace
from torchdoctor.store.format import Limits
from torchdoctor.store.names import FileName
from torchdoctor.store.writer import Recorder

LOSS = signals.LOSS_TRAIN.name
GRADIENT = signals.GRADIENT_L2.name
WEIGHT = signals.WEIGHT_L2.name

COLUMNS = tuple(f"layer{i}.weight" for i in range(12))
QUICK = Limits(segment_batches=6, thin_steps=1500)
"""Small enough that a few thousand steps compact and thin."""


def parameter(name: str, order: int | None) -> ParameterFact:
    return ParameterFact(name, [4, 4], "float32", "cpu", name.rpartition(".")[0], "Linear", order)


def play(recorder: Recorder, steps: int, first: int = 0, pause: float = 0.0) -> None:
    """A training: a loss with one NaN, a rate, gradients every step, other columns now and then, some facts."""
    random = np.random.default_rng(first)
    for i, name in enumerate(COLUMNS):
        recorder.fact(parameter(name, len(COLUMNS) - i if i % 3 else None), first, name)
    for step in range(first, first + steps):
        recorder.scalar(LOSS, step, float("nan") if step == first + steps // 2 else 1 / (1 + step))
        recorder.scalar(signals.LEARNING_RATE.name, step, 0.1, "0.0")
        values = random.random((3, len(COLUMNS)), np.float32)
        recorder.matrix(step, COLUMNS, {GRADIENT: values[0], WEIGHT: values[1]})
        if step % 10 == 0:
            other = (*COLUMNS[:4], "late.weight")
            recorder.matrix(step, other, {GRADIENT: values[2][:5], signals.UPDATE_RATIO.name: values[2][:5]})
        if step % 500 == 0:
            recorder.fact(OrderFact("0", ["zero_grad", "backward", f"step {step}"]), step)
        if pause and step % 100 == 0:
            time.sleep(pause)


@contextmanager
def recording(folder: Path, **options: Any) -> Iterator[Recorder]:
    recorder = Recorder.create(folder, {"argv": ["train.py"]}, **{"flush_seconds": 0.05, **options})
    try:
        yield recorder
    finally:
        recorder.close()


def record(folder: Path, steps: int, pause: float = 0.0, **options: Any) -> Run:
    """A finished recording; returns its live view."""
    with recording(folder, **options) as recorder:
        play(recorder, steps, pause=pause)
        live = recorder.run(finished=True)
    assert recorder.dropped == {}
    return live


def assert_same_trace(a: Trace, b: Trace) -> None:
    assert (a.columns, a.merged) == (b.columns, b.merged)
    for name in ("steps", "values", "low", "high"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    for name in ("head", "tail"):
        one, other = getattr(a, name), getattr(b, name)
        assert (one is None) == (other is None), name
        if one is not None:
            assert_same_trace(one, other)


def assert_same_run(a: Run, b: Run) -> None:
    """Equal to the bit in every signal and fact."""
    assert a.available == b.available
    assert a.steps == b.steps
    assert list(a.seen) == list(b.seen)
    for name, key in a.available:
        assert_same_trace(a.load(name, key), b.load(name, key))


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def read_everything(run: Run) -> dict[tuple[str, str], int]:
    return {name: len(run.load(*name)) for name in run.available}


def write_stream(folder: Path, table: str, schema: pa.Schema, *batches: pa.RecordBatch, **options: Any) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write(batch)
    name = FileName(table, 0, 7, 1, len(list(folder.iterdir())))
    (folder / str(name)).write_bytes(sink.getvalue().to_pybytes())
