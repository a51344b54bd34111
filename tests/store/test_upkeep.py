"""A run of any length stays under its cap, keeps its extremes, and is whole at every moment on the way there."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from store.samples import COLUMNS, GRADIENT, LOSS, assert_same_run, play, recording, size_of
from torchdoctor import signals
from torchdoctor.facts import LabelsFact
from torchdoctor.store import compaction, streams
from torchdoctor.store import format as fmt
from torchdoctor.store.format import Limits
from torchdoctor.store.names import DIGEST, SCALARS, FileName
from torchdoctor.store.reader import open_run, read_histograms
from torchdoctor.store.segments import SegmentSet
from torchdoctor.store.writer import Recorder


class Watch:
    """The largest size a folder ever had, and whether it could be read at every look."""

    def __init__(self, folder: Path) -> None:
        self.largest = 0
        self.reads = 0
        self._folder = folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.is_set():
            try:
                self.largest = max(self.largest, size_of(self._folder))
            except FileNotFoundError:
                continue
            steps = open_run(self._folder).scalar(signals.LOSS_TRAIN).steps
            assert len(steps) == 0 or (steps[0] < 100 and (np.diff(steps) > 0).all())
            self.reads += 1
            time.sleep(0.01)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.filterwarnings("error")
def test_a_long_run_stays_under_its_cap_and_keeps_its_extremes(tmp_path: Path) -> None:
    cap, steps = 3_000_000, 40_000
    folder = tmp_path / "run"
    spikes = {7_321: 1e6, 20_000: -1e6, 33_333: 2e6}
    with recording(folder, cap_bytes=cap) as recorder:
        watch = Watch(folder)
        for first in range(0, steps, 500):
            play(recorder, 500, first)
            for step in spikes.keys() & set(range(first, first + 500)):
                recorder.scalar("user", step, spikes[step], "spiky")
                recorder.matrix(step, COLUMNS, {"weight.mean": np.full(12, spikes[step], np.float32)})
            recorder.scalar("user", first, 0.0, "spiky")
            time.sleep(0.02)
        live = recorder.run()
        watch.stop()
    assert recorder.dropped == {} and watch.reads > 5
    assert max(watch.largest, size_of(folder)) < cap
    run = open_run(folder)
    assert_same_run(live, run)
    assert run.steps == steps
    spiky = run.scalar(signals.USER, "spiky")
    assert (spiky.low.min(), spiky.high.max()) == (-1e6, 2e6)
    weights = run.matrix(signals.WEIGHT["mean"])
    assert (weights.low.min(), weights.high.max()) == (-1e6, 2e6)
    assert np.isnan(run.scalar(signals.LOSS_TRAIN).values).sum() >= 1
    np.testing.assert_array_equal(run.matrix(signals.WEIGHT_L2).first(100).steps, np.arange(100))
    np.testing.assert_array_equal(run.matrix(signals.WEIGHT_L2).last(50).steps, np.arange(steps - 50, steps))
    assert run.info["thinned"]["before_step"] > 0 and run.info["thinned"]["looks_per_row"] > 1


def test_small_batches_are_joined_and_nothing_else_changes(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with recording(folder, limits=Limits(segment_batches=10), flush_seconds=0.02) as recorder:
        play(recorder, 3000, pause=0.03)
        time.sleep(0.3)
        live = recorder.run()
    files = sorted(folder.glob("scalars-*.arrow"))[:-1]
    assert files
    found = [streams.scan(data) for data in map(streams.map_file, files) if data is not None]
    assert {stream.batches for stream in found if stream is not None} == {1}
    assert_same_run(live, open_run(folder))


def test_a_compaction_that_is_stopped_leaves_the_segment_as_it_was(tmp_path: Path) -> None:
    segments = SegmentSet(tmp_path, 0, Limits(segment_batches=4))
    schema = fmt.SCALARS_SCHEMA
    rows = [streams.pa.array(np.arange(3)), streams.pa.array(np.zeros(3, np.int32)), streams.pa.array(np.ones(3))]
    closed = None
    while closed is None:
        closed = segments.append(SCALARS, "", schema, streams.pa.record_batch(rows, schema=schema))
    path = tmp_path / str(closed.name)
    before = path.read_bytes()
    real, compaction.PIECE_BYTES = compaction.PIECE_BYTES, 1
    try:
        job = compaction.compact(segments, closed.name)
        next(job)
        assert [p.name for p in tmp_path.glob("*.tmp")] == [f"{path.name}.tmp"]
        job.close()
    finally:
        compaction.PIECE_BYTES = real
    assert path.read_bytes() == before and not list(tmp_path.glob("*.tmp"))
    assert closed.small
    list(compaction.compact(segments, closed.name))
    stream = streams.scan(streams.pa.py_buffer(path.read_bytes()))
    assert stream is not None and (stream.rows, stream.batches) == (12, 1)


def test_what_a_killed_process_left_half_written_is_removed_on_resuming(tmp_path: Path) -> None:
    with recording(tmp_path / "run") as recorder:
        play(recorder, 5)
    left = tmp_path / "run" / f"{FileName(DIGEST, 0, 0, 1, 3)}.tmp"
    other = tmp_path / "run" / f"{FileName(DIGEST, 1, 0, 1, 3)}.tmp"
    left.write_bytes(b"half")
    other.write_bytes(b"of another rank")
    with recording(tmp_path / "run"):
        pass
    assert not left.exists() and other.exists()


def test_histograms_thin_out_evenly_and_keep_to_their_share(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    cap = 4_000_000
    counts = np.ones((len(COLUMNS), signals.HISTOGRAM_BINS), np.float32)
    with recording(folder, cap_bytes=cap, limits=Limits(segment_batches=20)) as recorder:
        for step in range(1500):
            recorder.histogram(step, GRADIENT, COLUMNS, counts * step)
            if step % 50 == 0:
                time.sleep(0.06)
        time.sleep(0.3)
    assert sum(p.stat().st_size for p in folder.glob("histograms-*")) < 0.2 * cap
    (found,) = read_histograms(folder, GRADIENT, most=10_000)
    gaps = np.diff(found.steps)
    assert found.steps[0] == 0 and found.steps[-1] > 1400
    assert 20 < len(found.steps) < 400 and gaps.max() <= 4 * np.median(gaps)
    assert (found.counts[:, 0, 0] == found.steps).all()


def test_facts_without_end_are_rewritten_within_their_share(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    cap = 1_500_000
    with recording(folder, cap_bytes=cap) as recorder:
        for step in range(2000):
            recorder.fact(LabelsFact("train", {str(i): step + i for i in range(100)}, 1), step)
            if step % 50 == 0:
                time.sleep(0.05)
        live = recorder.run()
    assert recorder.dropped == {}
    assert size_of(folder) < cap and list(folder.glob("ledger-*"))
    assert list(open_run(folder).seen) == list(live.seen)
    assert live.facts_at(LabelsFact)[0][0] == 0 and live.facts_at(LabelsFact)[-1][0] == 1999


def test_what_cannot_fit_is_dropped_and_said_and_the_live_view_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "run"
    cap = 400_000
    columns = tuple(f"p{i}" for i in range(3000))
    with recording(folder, cap_bytes=cap) as recorder:
        for step in range(400):
            recorder.matrix(step, columns, {GRADIENT: np.full(3000, step, np.float32)})
            recorder.scalar(LOSS, step, 1.0)
            if step % 20 == 0:
                time.sleep(0.06)
        live = recorder.run()
    assert size_of(folder) < cap
    assert live.matrix(signals.GRADIENT_L2).steps[-1] == 399
    assert any("over the cap" in reason for reason in recorder.dropped)
    assert "size limit" in caplog.text
    assert open_run(folder).info["dropped"]


def test_a_cap_applies_to_a_resumed_run_too(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for _ in range(3):
        with recording(folder, cap_bytes=2_000_000) as recorder:
            play(recorder, 6000, pause=0.02)
    assert size_of(folder) < 2_000_000
    assert open_run(folder).steps == 18_000


def test_a_failing_rename_leaves_a_run_that_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        if self.name.startswith("digest-"):
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    recorder = Recorder.create(tmp_path / "run", {}, flush_seconds=0.05, limits=Limits(thin_steps=500))
    play(recorder, 3000, pause=0.03)
    live = recorder.run()
    recorder.close()
    assert not list((tmp_path / "run").glob("digest-*"))
    assert any("upkeep" in reason for reason in recorder.dropped)
    assert_same_run(live, open_run(tmp_path / "run"))
