"""Lists of runs, and removing one: nothing that is not ours is ever touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from store.samples import play, record, recording, size_of
from torchdoctor.errors import NotARunError, RunError
from torchdoctor.store.listing import list_runs, remove_run


def test_runs_are_listed_oldest_first_with_what_matters(tmp_path: Path) -> None:
    record(tmp_path / "b", 30)
    with recording(tmp_path / "a") as recorder:
        play(recorder, 7)
        recorder.close("crashed")
    (tmp_path / "notes").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    (tmp_path / "file.txt").write_text("")
    first, second = list_runs(tmp_path)
    assert (first.name, first.status, first.steps) == ("b", "finished", 30)
    assert (second.name, second.status, second.steps) == ("a", "crashed", 7)
    assert first.path == tmp_path / "b" and first.size_bytes == size_of(tmp_path / "b")
    assert first.started is not None and abs(first.started - time.time()) < 60
    assert list_runs(tmp_path / "nowhere") == []


def test_a_run_is_running_until_its_process_is_gone(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from torchdoctor.store.writer import Recorder;"
        "Recorder.create(Path(sys.argv[1]), {}); print('begun', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert [e.status for e in list_runs(tmp_path)] == ["running"]
        with pytest.raises(RunError, match="still being recorded"):
            remove_run(tmp_path / "run")
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [e.status for e in list_runs(tmp_path)] == ["died"]


def test_on_another_machine_a_run_that_was_not_written_for_a_minute_has_died(tmp_path: Path) -> None:
    record(tmp_path / "run", 3)
    path = tmp_path / "run" / "run.json"
    text = path.read_text().replace('"finished"', '"running"').replace('"boot": "', '"boot": "other')
    path.write_text(text)
    assert [e.status for e in list_runs(tmp_path)] == ["running"]
    os.utime(path, (time.time() - 120, time.time() - 120))
    assert [e.status for e in list_runs(tmp_path)] == ["died"]


def test_removing_a_run_removes_its_folder_and_what_torchdoctor_put_there(tmp_path: Path) -> None:
    record(tmp_path / "run", 3)
    (tmp_path / "run" / "verdict.json").write_text("{}")
    (tmp_path / "run" / "captures").mkdir()
    (tmp_path / "run" / "captures" / "step-3.safetensors").write_text("")
    remove_run(tmp_path / "run")
    assert not (tmp_path / "run").exists() and tmp_path.exists()


def test_what_is_not_a_run_is_never_removed(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "run.json").write_text('{"best": "paper"}')
    for path in (tmp_path / "thesis", tmp_path / "nothing", tmp_path / "thesis" / "run.json", tmp_path):
        with pytest.raises(NotARunError):
            remove_run(path)
    assert (tmp_path / "thesis" / "run.json").exists()


def test_a_run_with_something_else_in_it_is_left_whole(tmp_path: Path) -> None:
    record(tmp_path / "run", 3)
    before = sorted(p.name for p in (tmp_path / "run").iterdir())
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"notes\.txt"):
        remove_run(tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == sorted([*before, "notes.txt"])


def test_links_are_never_followed(tmp_path: Path) -> None:
    record(tmp_path / "run", 3)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "data").write_text("keep")
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with pytest.raises(NotARunError, match="is a link"):
        remove_run(tmp_path / "link")
    (tmp_path / "run" / "captures").symlink_to(tmp_path / "precious")
    with pytest.raises(RunError, match="captures"):
        remove_run(tmp_path / "run")
    (tmp_path / "run" / "captures").unlink()
    (tmp_path / "run" / "captures").mkdir()
    (tmp_path / "run" / "captures" / "inner").symlink_to(tmp_path / "precious")
    remove_run(tmp_path / "run")
    assert (tmp_path / "precious" / "data").read_text() == "keep"
