"""The recorder: what it takes is there live and on disk, and nothing that happens to it reaches the caller."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from store.samples import (
    COLUMNS,
    GRADIENT,
    LOSS,
    QUICK,
    WEIGHT,
    assert_same_run,
    parameter,
    play,
    record,
    recording,
)
from torchdoctor import signals
from torchdoctor.errors import NewerRunError, RunError
from torchdoctor.facts import HealthFact, InputsFact, OrderFact
from torchdoctor.run import HISTORY_ROWS
from torchdoctor.store.format import Limits
from torchdoctor.store.reader import open_run
from torchdoctor.store.writer import Recorder


@pytest.mark.parametrize("steps", [1, 37, 2048, 5003])
def test_the_run_is_the_same_live_and_afterwards(tmp_path: Path, steps: int) -> None:
    live = record(tmp_path / "run", steps)
    stored = open_run(tmp_path / "run")
    assert_same_run(live, stored)
    assert stored.steps == steps and stored.finished
    trace = stored.scalar(signals.LOSS_TRAIN)
    assert len(trace) == (steps if steps <= HISTORY_ROWS else -(-steps // trace.merged))
    assert np.isnan(trace.values).any()


def test_it_is_the_same_after_compaction_and_thinning_too(tmp_path: Path) -> None:
    live = record(tmp_path / "run", 12_000, pause=0.02, limits=QUICK)
    assert "thinned" in open_run(tmp_path / "run").info
    assert_same_run(live, open_run(tmp_path / "run"))


def test_columns_come_in_forward_order_unknown_ones_last(tmp_path: Path) -> None:
    record(tmp_path / "run", 20)
    columns = open_run(tmp_path / "run").matrix(signals.GRADIENT_L2).columns
    known = [c for i, c in reversed(list(enumerate(COLUMNS))) if i % 3]
    assert columns == (*known, *COLUMNS[::3], "late.weight")


def test_a_live_view_is_a_snapshot(tmp_path: Path) -> None:
    with recording(tmp_path / "run") as recorder:
        play(recorder, 3000)
        early = recorder.run()
        play(recorder, 3000, first=3000)
        late = recorder.run()
        assert (early.steps, late.steps) == (3000, 6000)
        lengths = {early.load(name, key).steps[-1] for name, key in early.available if name in (LOSS, GRADIENT)}
        assert lengths == {2999}
        assert not early.finished and early.info["status"] == "running"


@pytest.mark.filterwarnings("error")
def test_a_live_view_can_be_taken_from_any_thread_while_recording(tmp_path: Path) -> None:
    seen: list[int] = []
    stop = threading.Event()
    with recording(tmp_path / "run", limits=QUICK) as recorder:

        def look() -> None:
            while not stop.is_set():
                run = recorder.run()
                rows = {len(run.load(name, "")) for name in (GRADIENT, "weight.l2") if (name, "") in run.available}
                assert rows
                trace = run.scalar(signals.LOSS_TRAIN)
                seen.append(int(trace.steps[-1]))

        play(recorder, 1)
        thread = threading.Thread(target=look)
        thread.start()
        play(recorder, 4000, first=1, pause=0.01)
        stop.set()
        thread.join()
        live = recorder.run()
    assert seen == sorted(seen) and len(seen) > 3
    assert_same_run(live, open_run(tmp_path / "run"))


def test_scalars_of_one_signal_are_kept_apart_by_key(tmp_path: Path) -> None:
    with recording(tmp_path / "run") as recorder:
        for step in range(10):
            recorder.scalar("input.mean", step, 1.0 * step, "train")
            recorder.scalar("input.mean", step, -1.0 * step, "validation")
    run = open_run(tmp_path / "run")
    assert run.keys(signals.INPUT_MEAN) == ["train", "validation"]
    np.testing.assert_array_equal(run.scalar(signals.INPUT_MEAN, "validation").values, -np.arange(10.0))


def test_a_fact_is_written_when_it_differs_from_the_last_of_its_kind_and_subject(tmp_path: Path) -> None:
    with recording(tmp_path / "run") as recorder:
        for step in range(6):
            recorder.fact(OrderFact("0", ["step"] if step < 3 else ["zero_grad", "step"]), step)
            recorder.fact(parameter("a", 0), step, "a")
            recorder.fact(parameter("b", 1), step, "b")
            recorder.fact(InputsFact("train", "input", [1], "f", mean=float("nan")), step)
    run = open_run(tmp_path / "run")
    assert [(step, fact.calls) for step, fact in run.facts_at(OrderFact)] == [(0, ["step"]), (3, ["zero_grad", "step"])]
    assert list(run.parameters) == ["a", "b"]
    assert len(run.facts(InputsFact)) == 1


def test_facts_that_never_end_stay_bounded_first_and_last_kept(tmp_path: Path) -> None:
    with recording(tmp_path / "run") as recorder:
        for step in range(5000):
            recorder.fact(HealthFact(overhead=step / 1e6, budget=0.03), step)
        live = recorder.run()
    steps = [step for step, _ in live.facts_at(HealthFact)]
    assert len(steps) < 200 and steps[0] == 0 and steps[-1] == 4999
    assert list(open_run(tmp_path / "run").seen) == list(live.seen)


@pytest.mark.filterwarnings("error")
def test_float64_and_half_rows_are_taken_as_float32(tmp_path: Path) -> None:
    with recording(tmp_path / "run") as recorder:
        recorder.matrix(0, ("a",), {GRADIENT: np.array([0.1], np.float64)})
        recorder.matrix(1, ("a",), {GRADIENT: np.array([0.5], np.float16)})
        recorder.matrix(2, ("a",), {GRADIENT: np.array([1e300], np.float64)})
    values = open_run(tmp_path / "run").matrix(signals.GRADIENT_L2).values
    assert values.dtype == np.float32 and values[:, 0].tolist() == [np.float32(0.1), 0.5, np.inf]


def test_column_sets_without_end_do_not_make_files_without_end(tmp_path: Path) -> None:
    with recording(tmp_path / "run", limits=Limits(groups=4)) as recorder:
        for step in range(300):
            at = (f"expert{step % 7}", f"expert{(3 * step) % 11}x")
            recorder.matrix(step, at, {GRADIENT: np.full(2, step, np.float32), WEIGHT: np.full(2, -step, np.float32)})
        live = recorder.run()
    stats = list((tmp_path / "run").glob("stats-*.arrow"))
    assert len(stats) < 40
    assert_same_run(live, open_run(tmp_path / "run"))
    trace = live.matrix(signals.GRADIENT_L2)
    assert len(trace.columns) == 18 and trace.column("expert5").values[5] == 5
    assert live.matrix(signals.WEIGHT_L2).column("expert5").values[5] == -5


def test_resuming_opens_new_segments_behind_the_old_ones(tmp_path: Path) -> None:
    record(tmp_path / "run", 300)
    before = {p.name for p in (tmp_path / "run").glob("*.arrow")}
    with recording(tmp_path / "run") as recorder:
        play(recorder, 200, first=300)
    run = open_run(tmp_path / "run")
    assert before < {p.name for p in (tmp_path / "run").glob("*.arrow")}
    assert run.steps == 500
    np.testing.assert_array_equal(run.scalar(signals.LOSS_TRAIN).steps, np.arange(500))
    assert len(run.info["sessions"]) == 2 and run.info["status"] == "finished"


def test_a_resumed_run_that_counts_from_nought_again_is_put_behind(tmp_path: Path) -> None:
    for _ in range(3):
        record(tmp_path / "run", 100)
    run = open_run(tmp_path / "run")
    np.testing.assert_array_equal(run.scalar(signals.LOSS_TRAIN).steps, np.arange(300))
    np.testing.assert_array_equal(run.matrix(signals.WEIGHT_L2).steps, np.arange(300))
    assert [step for step, _ in run.facts_at(OrderFact)] == [0]


def test_sessions_that_were_thinned_join_too(tmp_path: Path) -> None:
    for _ in range(2):
        record(tmp_path / "run", 6000, pause=0.02, limits=QUICK)
    run = open_run(tmp_path / "run")
    trace = run.scalar(signals.LOSS_TRAIN)
    assert run.steps == 12_000 and len(trace) <= HISTORY_ROWS
    assert (np.diff(trace.steps) > 0).all() and trace.steps[-1] == 11_999
    assert np.isnan(trace.values).sum() == 2
    assert trace.last(10).values[-1] == 1 / 6000


def test_info_is_updated_and_odd_values_in_it_do_no_harm(tmp_path: Path) -> None:
    with recording(tmp_path / "run") as recorder:
        recorder.update_info(seeds={"torch": 3}, odd={(1, 2): object()}, path_like=Path("x"))
        assert recorder.run().info["seeds"] == {"torch": 3}
    info = open_run(tmp_path / "run").info
    assert info["seeds"] == {"torch": 3} and info["path_like"] == "x" and info["status"] == "finished"


@pytest.mark.parametrize("status", ["finished", "interrupted", "crashed"])
def test_closing_says_how_it_ended_and_calls_after_it_do_nothing(tmp_path: Path, status: str) -> None:
    with recording(tmp_path / "run") as recorder:
        play(recorder, 10)
        recorder.close(status)
        recorder.close("finished")
        play(recorder, 10, first=10)
        assert recorder.run().steps == 10
    assert open_run(tmp_path / "run").info["status"] == status
    assert open_run(tmp_path / "run").steps == 10


def test_what_cannot_be_written_to_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="--out"):
        Recorder.create(tmp_path / "file" / "run", {})
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("")
    with pytest.raises(RunError, match="not empty"):
        Recorder.create(tmp_path / "thesis", {})
    record(tmp_path / "run", 3)
    text = (tmp_path / "run" / "run.json").read_text().replace('"format": 1', '"format": 99')
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.raises(NewerRunError):
        Recorder.create(tmp_path / "run", {})


def test_recording_and_reading_need_no_torch() -> None:
    code = "import sys, torchdoctor.store.writer, torchdoctor.store.reader, torchdoctor.store.environment as e;"
    code += "e.describe(['x']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
