from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from recording import record
from torchdoctor.cli import group


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, the older one 40 days old."""
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "torchdoctor-runs"
    for name, days in (("old", 40), ("new", 0)):
        run = record(runs / name, git={"commit": "abc", "diff": "+x\n" * 300})
        then = time.time() - days * 86_400
        for file in run.rglob("*"):
            os.utime(file, (then, then))
    return runs


def runs(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(group, ["runs", *arguments], input=answer, env={"COLUMNS": "100"})


@pytest.mark.parametrize("arguments", [(), ("list",), ("list", "torchdoctor-runs")])
def test_listing(folder: Path, arguments: tuple[str, ...]) -> None:
    result = runs(*arguments)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines if "finished" in line] == ["new", "old"]
    assert "2 runs in torchdoctor-runs" in result.output


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_names_are_never_broken_and_arguments_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.chdir(tmp_path)
    words = {
        "diabetes_long-20261118-125443-27475": ["--lr", "0.3"],
        "long-" + "x" * 30: ["--first", "0.1", "--data", "/d" * 200, "--last", "7"],
        "plain": [],
        "hostile": ["[red]\x1b[2J\n--x"],
    }
    for name, arguments in words.items():
        record(tmp_path / "torchdoctor-runs" / name, argv=["train.py", *arguments])
    output = CliRunner().invoke(group, ["runs"], env={"COLUMNS": str(width)}).output
    lines = {line.split()[0]: line for line in output.splitlines() if "finished" in line}
    assert lines.keys() == words.keys(), "each name whole, and first in one line"
    assert "--lr 0.3" in lines["diabetes_long-20261118-125443-27475"]
    cut = lines["long-" + "x" * 30]
    assert "--fi" in cut and "..." in cut and "st 7" in cut
    assert "[red]" in lines["hostile"] and "\x1b" not in output
    assert width < 80 or max(map(len, output.splitlines())) <= width
    assert ("started" in output) == (width >= 100)


def test_listing_nothing_says_how_to_get_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = runs()
    assert result.exit_code == 0
    assert "torchdoctor run train.py makes one" in result.output


@pytest.mark.parametrize("name", ["new", "torchdoctor-runs/new", None])
def test_showing_one(folder: Path, name: str | None) -> None:
    output = runs("show", *([name] if name else [])).output
    assert "finished" in output
    assert "train.py --lr 0.1" in output
    assert "commit abc" in output
    assert "+x" not in output
    assert re.search(r"final loss +0\.5$", output, re.MULTILINE)
    assert "torchdoctor diagnose torchdoctor-runs/new" in output


def test_removing_asks_first(folder: Path) -> None:
    assert "nothing was removed" in runs("remove", "old", answer="n\n").output
    assert (folder / "old").exists()
    assert "give -y" in runs("remove", "old").output
    assert "removed 1 run" in runs("remove", "old", answer="y\n").output
    assert not (folder / "old").exists()
    assert (folder / "new").exists()


def test_removing_by_age_and_number(folder: Path) -> None:
    assert "nothing to remove" in runs("remove", "--older-than", "60d", "--yes").output
    assert "nothing to remove" in runs("remove", "--keep", "2", "--yes").output
    assert runs("remove", "--older-than", "30d", "--yes").exit_code == 0
    assert sorted(p.name for p in folder.iterdir()) == ["new"]
    assert runs("remove", "torchdoctor-runs", "--keep", "0", "--yes").exit_code == 0
    assert list(folder.iterdir()) == []


def test_a_run_that_is_being_written_stays(folder: Path) -> None:
    from torchdoctor.store.writer import Recorder

    recorder = Recorder.create(folder / "live", {})
    try:
        result = runs("remove", "--keep", "0", "--yes")
        assert "live is still being recorded, so it stays" in result.output.replace("\n", " ")
        assert (folder / "live").exists()
    finally:
        recorder.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["remove"], "say which"),
        (["remove", "torchdoctor-runs"], "--older-than"),
        (["remove", "elsewhere"], "no run at elsewhere"),
        (["remove", "--older-than", "soon"], "such as 30d"),
        (["show", "elsewhere"], "nothing at elsewhere"),
    ],
)
def test_wrong_use_is_one_sentence_and_harms_nothing(folder: Path, arguments: list[str], words: str) -> None:
    result = runs(*arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert len(list(folder.iterdir())) == 2


def test_a_link_is_never_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder / "new")
    result = runs("remove", "link", "--yes")
    assert result.exit_code == 2
    assert (folder / "new").exists()
