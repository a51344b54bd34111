"""Reading: lazy, and never surprised by a file that is torn, missing, foreign or made to harm."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from store.samples import (
    COLUMNS,
    GRADIENT,
    LOSS,
    QUICK,
    assert_same_trace,
    parameter,
    play,
    record,
    recording,
    write_stream,
)
from torchdoctor import signals
from torchdoctor.errors import NewerRunError, NotARunError, RunError
from torchdoctor.facts import OrderFact, ParameterFact
from torchdoctor.store import format as fmt
from torchdoctor.store import streams
from torchdoctor.store.intake import row_batch
from torchdoctor.store.names import DIGEST, FACTS, STATS, FileName
from torchdoctor.store.reader import open_run, ranks, read_histograms


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda p: None, NotARunError, "there is no .*torchdoctor runs"),
        (lambda p: p.write_text("x"), NotARunError, "is a file"),
        (lambda p: p.mkdir(), NotARunError, "is empty"),
        (lambda p: (p.mkdir(), (p / "a.txt").write_text("")), NotARunError, "holds no run"),
        (lambda p: (p.mkdir(), (p / "run.json").write_text("")), RunError, "damaged"),
        (lambda p: (p.mkdir(), (p / "run.json").write_text('{"format": 1, "tor')), RunError, "damaged"),
        (lambda p: (p.mkdir(), (p / "run.json").write_text("[" * 100_000)), RunError, "damaged"),
        (lambda p: (p.mkdir(), (p / "run.json").write_text("[]")), NotARunError, "not written by torchdoctor"),
        (lambda p: (p.mkdir(), (p / "run.json").write_text('{"id": "wandb"}')), NotARunError, "not written by"),
        (lambda p: (p.mkdir(), (p / "run.json").write_text('{"format": "1", "torchdoctor": ""}')), NotARunError, "not"),
        (
            lambda p: (p.mkdir(), (p / "run.json").write_text('{"format": 2, "torchdoctor": "9.1"}')),
            NewerRunError,
            "torchdoctor 9.1.*upgrade",
        ),
    ],
)
def test_what_is_no_run_gets_one_sentence_and_the_way_out(
    make: Callable[[Path], Any], error: type[RunError], says: str, tmp_path: Path
) -> None:
    make(tmp_path / "given")
    with pytest.raises(error, match=says) as caught:
        open_run(tmp_path / "given")
    assert type(caught.value) is error
    text = str(caught.value)
    assert str(tmp_path / "given") in text and "\n" not in text and len(text) < 400


def test_data_without_its_run_json_is_said_to_be_so(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "run")
    (tmp_path / "run" / "run.json").unlink()
    with pytest.raises(NotARunError, match=r"holds recorded data but no run\.json"):
        open_run(tmp_path / "run")


def test_a_folder_of_runs_names_the_newest(tmp_path: Path) -> None:
    for name in ("older", "newer"):
        record(tmp_path / "torchdoctor-runs" / name, 2)
    with pytest.raises(NotARunError, match=r"2 runs in it; the newest is .*newer"):
        open_run(tmp_path / "torchdoctor-runs")


def test_a_runs_own_json_means_the_run(small: Path) -> None:
    assert open_run(small / "run.json").steps == open_run(str(small)).steps == 20


def test_each_rank_has_its_own_view_and_nought_is_the_run(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for rank in (0, 1, 3):
        with recording(folder, rank=rank) as recorder:
            play(recorder, 10 + rank)
            recorder.update_info(mine=rank)
    assert ranks(folder) == [0, 1, 3]
    assert [open_run(folder, rank=r).steps for r in (0, 1, 3)] == [10, 11, 13]
    assert open_run(folder).info["mine"] == 0 and open_run(folder, rank=3).info["mine"] == 3
    with pytest.raises(RunError, match="no rank 2; it holds ranks 0, 1, 3"):
        open_run(folder, rank=2)


def test_the_rank_comes_from_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    with recording(tmp_path / "run") as recorder:
        play(recorder, 3)
    assert ranks(tmp_path / "run") == [5]
    assert open_run(tmp_path / "run", rank=5).steps == 3


def test_a_run_that_trains_can_be_read_and_does_not_change_under_the_reader(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with recording(folder, limits=QUICK) as recorder:
        play(recorder, 1000)
        recorder.run()
        while not list(folder.glob("stats-*")) or recorder._writes:
            pass
        early = open_run(folder)
        assert not early.finished and early.info["status"] == "running"
        first = early.load(GRADIENT, "")
        play(recorder, 400, first=1000, pause=0.05)
        later = early.load(signals.WEIGHT_L2.name, "")
        assert first.steps[-1] == later.steps[-1] == early.steps - 1
        play(recorder, 8000, first=1400, pause=0.02)
        assert len(early.load(LOSS, "")) > 0, "its segments are gone, so it looks again"


def test_a_killed_digest_counts_nothing_twice(thinned: Path, tmp_path: Path) -> None:
    """Between the digest's renaming and the old files' deletion both are there; a half-written one is ignored."""
    folder = tmp_path / "run"
    shutil.copytree(thinned, folder)
    expected = open_run(folder).load(GRADIENT, "")
    digests = sorted(folder.glob("digest-*"))
    newest = FileName.parse(digests[-1].name)
    assert newest is not None
    old = folder / str(FileName(STATS, 0, newest.session, newest.pid, newest.number - 1))
    shutil.copy(next(p for p in folder.glob("stats-*") if p != old), old)
    (folder / f"{digests[-1].name}.tmp").write_bytes(digests[-1].read_bytes()[:1000])
    later = FileName(DIGEST, 0, newest.session, newest.pid, newest.number + 500)
    (folder / f"{later}.tmp").write_bytes(digests[-1].read_bytes())
    assert_same_trace(open_run(folder).load(GRADIENT, ""), expected)


def test_signals_are_read_only_when_asked_for(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(small)
    read: list[Any] = []
    real = streams.read_batches

    def spy(data: Any, stream: Any, fields: Any = None, start: int = 0) -> Any:
        read.append(tuple(fields))
        return real(data, stream, fields, start)

    monkeypatch.setattr("torchdoctor.store.sessions.read_batches", spy)
    run.matrix(signals.GRADIENT_L2)
    assert read and all(len(fields) == 3 for fields in read)
    read.clear()
    run.matrix(signals.GRADIENT_L2)
    assert not read


def test_histograms_come_back_by_column_set(tmp_path: Path) -> None:
    with recording(tmp_path / "run") as recorder:
        for step in range(30):
            columns = COLUMNS[:2] if step < 20 else COLUMNS[:3]
            counts = np.full((len(columns), signals.HISTOGRAM_BINS), step, np.float32)
            recorder.histogram(step, GRADIENT, columns, counts)
    first, second = read_histograms(tmp_path / "run", GRADIENT)
    assert (first.columns, second.columns) == (COLUMNS[:2], COLUMNS[:3])
    assert first.steps.tolist() == list(range(20)) and second.counts.shape == (10, 3, signals.HISTOGRAM_BINS)
    assert (first.counts[7] == 7).all()
    few = read_histograms(tmp_path / "run", GRADIENT, most=5)[0]
    assert len(few.steps) == 5 and few.steps[0] == 0 and few.steps[-1] == 19
    assert read_histograms(tmp_path / "run", "weight.l2") == []


def test_facts_of_a_newer_version_are_left_out_and_the_rest_stays(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(small, folder)
    text = json.dumps({**parameter("new", 1).to_dict(), "sparsity": 0.5})
    rows = [(21, 0.0, "tensor_parallel_plan", "", "{}"), (22, 0.0, "parameter", "new", text)]
    write_stream(folder, FACTS, fmt.FACTS_SCHEMA, row_batch(rows, fmt.FACTS_SCHEMA))
    run = open_run(folder)
    assert run.facts(ParameterFact)[-1] == parameter("new", 1)
    assert len(run.facts(OrderFact)) == 1
