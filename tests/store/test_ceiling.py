"""Reading has a ceiling, and says what it left out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recording import record
from torchdoctor.facts import BirthFact
from torchdoctor.report.found import describe_health
from torchdoctor.store import ceiling
from torchdoctor.store.names import FileName
from torchdoctor.store.reader import open_run


def copies(run: Path, table: str, number: int, *, empty: bool = False) -> None:
    name = next(n for path in run.iterdir() if (n := FileName.parse(path.name)) is not None and n.table == table)
    for i in range(number):
        copy = run / str(FileName(table, name.rank, name.session, name.pid, 1000 + i))
        copy.touch() if empty else shutil.copy(run / str(name), copy)


def test_files_without_a_byte_are_passed_over(tmp_path: Path) -> None:
    run = record(tmp_path / "run")
    steps, facts = open_run(run).steps, len(open_run(run).seen)
    copies(run, "scalars", 5000, empty=True)
    opened = open_run(run)
    assert (opened.steps, len(opened.seen), opened.info["unread"]) == (steps, facts, {})


def test_more_files_than_the_ceiling_are_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling, "MAX_FILES", 30)
    run = record(tmp_path / "run")
    copies(run, "scalars", 100)
    opened = open_run(run)
    assert 70 <= sum(opened.info["unread"].values()) <= 100
    assert any("not read" in line for line in describe_health(opened))


def test_more_facts_than_the_ceiling_are_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = record(tmp_path / "run", facts=(BirthFact("mul", False, "nan"),))
    size = sum(path.stat().st_size for path in run.glob("facts-*"))
    monkeypatch.setattr(ceiling, "MAX_FACT_BYTES", 10 * size)
    copies(run, "facts", 40)
    opened = open_run(run)
    assert sum(opened.info["unread"].values()) >= 30 and opened.steps > 0
    assert any("not read" in line for line in describe_health(opened))
