from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from torchdoctor import shelf
from torchdoctor.errors import NotARunError, RunError, UsageError


def make(folder: Path, name: str, age: float = 0.0, record: str | None = None) -> Path:
    """A folder with a run.json, last written `age` seconds before the year 2001."""
    path = folder / name
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"status": "finished"}) if record is None else record)
    (path / "scalars.arrow").write_bytes(b"x" * 1000)
    for file in path.iterdir():
        os.utime(file, (978_307_200 - age, 978_307_200 - age))
    return path


def test_runs_are_listed_newest_first_and_nothing_else_is(tmp_path: Path) -> None:
    make(tmp_path, "old", 100)
    make(tmp_path, "new", 1)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    found = shelf.entries(tmp_path)
    assert [e.path.name for e in found] == ["new", "old"]
    assert found[0].status == "finished"
    assert found[0].bytes > 1000
    assert shelf.entries(tmp_path / "missing") == []


@pytest.mark.parametrize("record", ["", "{", "[]", "null", "[" * 100_000, '{"status": 3}'])
def test_a_broken_record_is_no_error(tmp_path: Path, record: str) -> None:
    make(tmp_path, "a", record=record)
    (entry,) = shelf.entries(tmp_path)
    assert entry.status in ("unknown", "3")


def test_a_folder_means_its_newest_run(tmp_path: Path) -> None:
    make(tmp_path, "old", 100)
    new = make(tmp_path, "new", 1)
    assert shelf.resolve(tmp_path) == (new, f"{new}, the newest of 2 runs in {tmp_path}")
    assert shelf.resolve(new) == (new, None)
    assert shelf.resolve(new / "run.json") == (new, None)
    with pytest.raises(NotARunError, match="nothing at"):
        shelf.resolve(tmp_path / "missing")


def test_retention_keeps_the_newest_and_the_young(tmp_path: Path) -> None:
    for i in range(4):
        make(tmp_path, str(i), age=i * 3600)
    held, now = shelf.entries(tmp_path), 978_307_200.0
    assert [e.path.name for e in shelf.select(held, 1, None, now)] == ["1", "2", "3"]
    assert [e.path.name for e in shelf.select(held, None, timedelta(minutes=90), now)] == ["2", "3"]
    assert [e.path.name for e in shelf.select(held, 3, timedelta(minutes=90), now)] == ["3"]


def test_removing_deletes_the_run_and_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "precious"
    outside.mkdir()
    (outside / "data").write_text("x")
    run = make(tmp_path / "runs", "a")
    (run / "link").symlink_to(outside)
    shelf.remove(shelf.entry(run))
    assert not run.exists()
    assert (outside / "data").exists()


def test_what_is_no_run_is_never_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    with pytest.raises(NotARunError):
        shelf.remove(shelf.Entry(folder, {}, 0.0, 0))
    run = make(tmp_path, "run")
    (tmp_path / "link").symlink_to(run)
    with pytest.raises(NotARunError):
        shelf.remove(shelf.Entry(tmp_path / "link", {}, 0.0, 0))
    monkeypatch.chdir(run)
    with pytest.raises(RunError, match="current folder"):
        shelf.remove(shelf.entry(run))
    assert folder.exists()
    assert run.exists()


@pytest.mark.parametrize(
    ("text", "age"),
    [
        ("30d", timedelta(days=30)),
        ("12h", timedelta(hours=12)),
        ("1.5 W", timedelta(weeks=1.5)),
        ("90m", timedelta(minutes=90)),
    ],
)
def test_ages(text: str, age: timedelta) -> None:
    assert shelf.parse_age(text) == age


@pytest.mark.parametrize("text", ["", "30", "d", "-3d", "3y", "nand"])
def test_wrong_ages_are_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(UsageError, match="such as 30d"):
        shelf.parse_age(text)
