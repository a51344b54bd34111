from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from torchdoctor import shelf
from torchdoctor.errors import NotARunError, UsageError
from torchdoctor.store.writer import Recorder

THEN = 978_307_200.0


def make(folder: Path, name: str, age: float = 0.0) -> Path:
    """An empty run, last written `age` seconds before THEN."""
    Recorder.create(folder / name, {}).close()
    os.utime(folder / name / "run.json", (THEN - age, THEN - age))
    return folder / name


def test_runs_are_listed_newest_first_and_nothing_else_is(tmp_path: Path) -> None:
    make(tmp_path, "old")
    make(tmp_path, "new")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "old")
    assert [e.name for e in shelf.newest_first(tmp_path)] == ["new", "old"]
    assert shelf.newest_first(tmp_path / "missing") == []


def test_a_folder_means_its_newest_run(tmp_path: Path) -> None:
    old = make(tmp_path, "old")
    assert shelf.resolve(tmp_path) == (old, f"{old}, the only run in {tmp_path}")
    new = make(tmp_path, "new")
    assert shelf.resolve(tmp_path) == (new, f"{new}, the newest of 2 runs in {tmp_path}")
    assert shelf.resolve(old) == (old, None)
    assert shelf.resolve(new / "run.json") == (new / "run.json", None)
    with pytest.raises(NotARunError, match="nothing at"):
        shelf.resolve(tmp_path / "missing")


def test_retention_keeps_the_newest_and_the_young(tmp_path: Path) -> None:
    for i in (3, 2, 1, 0):
        make(tmp_path, str(i), age=i * 3600)
    held = shelf.newest_first(tmp_path)
    assert [e.name for e in shelf.select(held, 1, None, THEN)] == ["1", "2", "3"]
    assert [e.name for e in shelf.select(held, None, timedelta(minutes=90), THEN)] == ["2", "3"]
    assert [e.name for e in shelf.select(held, 3, timedelta(minutes=90), THEN)] == ["3"]


@pytest.mark.parametrize(
    ("text", "age"),
    [("30d", timedelta(days=30)), ("12h", timedelta(hours=12)), ("1.5 W", timedelta(weeks=1.5))],
)
def test_ages(text: str, age: timedelta) -> None:
    assert shelf.parse_age(text) == age


@pytest.mark.parametrize("text", ["", "30", "d", "-3d", "3y", "nand", "9" * 400 + "d", "9999999999999d"])
def test_wrong_ages_are_refused_with_the_way_out(text: str) -> None:
    with pytest.raises(UsageError, match="such as 30d"):
        shelf.parse_age(text)
