"""Whatever happens to a recorder, nothing of it reaches the caller."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from store.samples import (
    COLUMNS,
    GRADIENT,
    LOSS,
    assert_same_run,
    play,
    recording,
)
from torchdoctor import signals
from torchdoctor.errors import RunError
from torchdoctor.facts import HealthFact, OrderFact
from torchdoctor.store import files
from torchdoctor.store import segments as segments_module
from torchdoctor.store.format import Limits
from torchdoctor.store.history import History
from torchdoctor.store.reader import open_run
from torchdoctor.store.writer import Recorder


def test_a_full_queue_drops_and_counts(tmp_path: Path) -> None:
    limits = Limits(queued_scalars=50, queued_bytes=20_000, queued_facts=5)
    with recording(tmp_path / "run", flush_seconds=30.0, limits=limits) as recorder:
        for step in range(200):
            recorder.scalar(LOSS, step, 1.0)
            recorder.matrix(step, COLUMNS, {GRADIENT: np.ones(12, np.float32)})
            recorder.histogram(step, GRADIENT, COLUMNS, np.ones((12, signals.HISTOGRAM_BINS), np.float32))
            recorder.fact(HealthFact(overhead=float(step), budget=0.03), step)
        dropped = recorder.dropped
        live = recorder.run()
    assert dropped["scalars: queue full"] == 150
    assert dropped["facts: queue full"] == 195
    assert dropped["matrices: queue full"] > 100 and dropped["histograms: queue full"] > 100
    assert len(live.scalar(signals.LOSS_TRAIN)) == 50
    assert open_run(tmp_path / "run").info["dropped"]["scalars: queue full"] == 150


ODD_CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("scalar", (LOSS, 1, None)),
    ("scalar", (LOSS, 1, "many")),
    ("scalar", (LOSS, None, 1.0)),
    ("scalar", (LOSS, 2**80, 1.0)),
    ("scalar", ("\ud800", 1, 1.0)),
    ("scalar", (LOSS, 1, 10**400)),
    ("scalar", (("not", "a name"), 1, 1.0)),
    ("matrix", (1, ("a", "b"), {GRADIENT: np.ones(3, np.float32)})),
    ("matrix", (1, ("a", "a"), {GRADIENT: np.ones(2, np.float32)})),
    ("matrix", (1, ("a",), {GRADIENT: None})),
    ("matrix", (1, None, None)),
    ("matrix", (1, ("\ud800",), {GRADIENT: np.ones(1, np.float32)})),
    ("histogram", (1, GRADIENT, ("a",), np.ones(3))),
    ("histogram", (1, GRADIENT, ("a",), None)),
    ("fact", (None, 1)),
    ("fact", (OrderFact(optimizer=3, calls=object()), 1)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "arguments"), ODD_CALLS)
def test_odd_values_are_dropped_and_counted_and_spoil_nothing_else(
    tmp_path: Path, call: str, arguments: tuple[Any, ...]
) -> None:
    with recording(tmp_path / "run") as recorder:
        play(recorder, 20)
        getattr(recorder, call)(*arguments)
        play(recorder, 20, first=20)
        live = recorder.run()
    assert sum(recorder.dropped.values()) >= 1
    assert_same_run(live, open_run(tmp_path / "run"))
    assert live.steps == 40 and len(live.matrix(signals.GRADIENT_L2)) == 40


def test_a_disk_that_fills_up_is_counted_said_once_and_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    room = 30_000
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        nonlocal room
        take = min(len(data), room)
        if take == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room -= take
        return real(descriptor, bytes(data)[:take])

    monkeypatch.setattr(files.os, "write", write)
    caplog.set_level(logging.WARNING, "torchdoctor")
    with recording(tmp_path / "run") as recorder:
        play(recorder, 400, pause=0.06)
        live = recorder.run()
        before = sum(recorder.dropped.values())
        assert before > 0 and any("No space left" in reason for reason in recorder.dropped)
        room = 10**9
        play(recorder, 100, first=400, pause=0.06)
    assert live.steps == 400 and len(live.matrix(signals.GRADIENT_L2)) == 400
    stored = open_run(tmp_path / "run")
    steps = stored.scalar(signals.LOSS_TRAIN).steps
    assert steps[0] == 0 and steps[-1] == 499 and (np.diff(steps) > 0).all() and len(steps) < 500
    assert sum(stored.info["dropped"].values()) >= before
    assert sum("No space left" in r.getMessage() for r in caplog.records) == 1


def _cut_short(run: Path) -> None:
    for file in run.glob("*.arrow"):
        os.truncate(file, 0)


def _put_a_link_in_its_place(run: Path) -> None:
    run.rename(run.with_name("elsewhere"))
    run.with_name("target").mkdir()
    run.symlink_to(run.with_name("target"))


def _put_another_in_its_place(run: Path) -> None:
    run.rename(run.with_name("elsewhere"))
    run.mkdir()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("harm", [_cut_short, _put_a_link_in_its_place, _put_another_in_its_place, shutil.rmtree])
def test_harm_to_the_folder_is_said_and_memory_holds_the_whole_run(
    harm: Callable[[Path], None], last: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`last`: nothing is recorded after it, so that it shows when the recording is closed."""
    run = tmp_path / "run"
    with recording(run, flush_seconds=0.05) as recorder:
        play(recorder, 200)
        deadline = time.monotonic() + 10
        while not list(run.glob("scalars*.arrow")) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.1)
        harm(run)
        play(recorder, 0 if last else 200, first=200)
    steps = 200 if last else 400
    assert recorder.damage is not None
    assert sum("recording is incomplete" in r.getMessage() for r in caplog.records) >= 1
    memory = recorder.run(finished=True)
    assert memory.steps == steps and len(memory.scalar(signals.LOSS_TRAIN)) == steps
    target = run.with_name("target")
    assert not target.exists() or not list(target.iterdir())


def test_without_a_thread_to_write_it_no_run_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RunError, match="can't start new thread"):
        Recorder.create(tmp_path / "run", {})
    assert not (tmp_path / "run").exists()


def test_a_disk_that_never_answers_holds_up_neither_calls_nor_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = threading.Event()
    recorder = Recorder.create(tmp_path / "run", {}, flush_seconds=0.05)
    monkeypatch.setattr(segments_module, "write_all", lambda descriptor, data: stuck.wait(30))
    begin = time.monotonic()
    play(recorder, 300, pause=0.05)
    assert recorder.run().steps == 300
    recorder.update_info(note="x")
    calls = time.monotonic() - begin
    recorder.close()
    took = time.monotonic() - begin - calls
    stuck.set()
    assert calls < 1.5 and took < 2.0


def test_an_unexpected_failure_inside_is_counted_and_recording_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = History.extend
    failures = iter(range(1))

    def extend(self: History, *arguments: Any) -> None:
        if next(failures, None) is not None:
            raise RuntimeError("a bug of ours")
        real(self, *arguments)

    monkeypatch.setattr(History, "extend", extend)
    with recording(tmp_path / "run") as recorder:
        play(recorder, 30)
        recorder.run()
        play(recorder, 30, first=30)
    assert any("RuntimeError" in reason for reason in recorder.dropped)
    assert open_run(tmp_path / "run").scalar(signals.LOSS_TRAIN).steps[-1] == 59


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_inert(tmp_path: Path) -> None:
    with recording(tmp_path / "run") as recorder:
        play(recorder, 50)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                play(recorder, 5000, first=10_000)
                recorder.update_info(child=True)
                assert recorder.run().steps == 0
                recorder.close("crashed")
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        play(recorder, 50, first=50)
        live = recorder.run()
    stored = open_run(tmp_path / "run")
    assert stored.steps == 100 and stored.info["status"] == "finished" and "child" not in stored.info
    assert_same_run(live, stored)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_inert_even_if_the_thread_was_at_work(tmp_path: Path) -> None:
    with recording(tmp_path / "run") as recorder:
        locked, release = threading.Event(), threading.Event()

        def hold() -> None:
            with recorder._lock:
                locked.set()
                release.wait(30)

        threading.Thread(target=hold, daemon=True).start()
        locked.wait(10)
        child = os.fork()
        if child == 0:
            recorder.run()
            recorder.update_info(a=1)
            recorder.close()
            os._exit(0)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            time.sleep(0.01)
        else:
            os.kill(child, 9)
            os.waitpid(child, 0)
        release.set()
        assert done and status == 0


def test_a_batch_that_cannot_be_written_does_not_hold_up_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = segments_module.Segment.append
    failures = iter(range(1))

    def append(self: segments_module.Segment, batch: Any) -> None:
        if "stats-" in self.path.name and next(failures, None) is not None:
            raise RuntimeError("not to be serialised")
        real(self, batch)

    monkeypatch.setattr(segments_module.Segment, "append", append)
    with recording(tmp_path / "run") as recorder:
        play(recorder, 30)
        time.sleep(0.2)
        play(recorder, 30, first=30)
    assert any("not to be serialised" in reason for reason in recorder.dropped)
    run = open_run(tmp_path / "run")
    assert run.matrix(signals.GRADIENT_L2).steps[-1] == 59 and len(run.scalar(signals.LOSS_TRAIN)) == 60


def test_a_file_that_a_script_closed_is_not_taken_for_the_one_that_has_its_number_now(tmp_path: Path) -> None:
    batch = pa.record_batch({"step": pa.array([1, 2])})
    segment = segments_module.Segment(tmp_path / "ours", batch.schema)
    segment.append(batch)
    os.close(segment._descriptor)
    with (tmp_path / "theirs").open("w+") as theirs:
        assert theirs.fileno() == segment._descriptor
        with pytest.raises(OSError, match="has closed this file"):
            segment.append(batch)
        segment.close()
        theirs.write("still open")
    assert (tmp_path / "theirs").read_text() == "still open"
