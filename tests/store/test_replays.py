"""Replays kept with their run: the newest of them, small, and read with distrust."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recording import record
from torchdoctor.facts import BirthFact
from torchdoctor.report.replayed import compare_words, conclude, describe_replay
from torchdoctor.store.listing import remove_run
from torchdoctor.store.replays import MAX_LINE, MOST, REPLAYS, Replayed, keep_replay, read_replays

BIRTH = BirthFact("log", False, "inf", [[0.0, 0.5]], [0.0], [[32]], "float32", samples=[25], count=1, total=32)
REPLAY = Replayed(1.8e9, 60, "step-000060-nonfinite", ["train.py"], compared=True, birth=BIRTH)


def test_the_newest_come_first_and_no_more_than_are_kept(tmp_path: Path) -> None:
    for step in range(2 * MOST + 5):
        keep_replay(tmp_path, replace(REPLAY, step=step))
    found = read_replays(tmp_path)
    assert [r.step for r in found] == list(range(2 * MOST + 4, MOST + 4, -1))
    assert found[0].birth == BIRTH
    assert len((tmp_path / REPLAYS).read_bytes().splitlines()) <= 2 * MOST


def test_a_long_way_does_not_make_a_long_file(tmp_path: Path) -> None:
    keep_replay(tmp_path, replace(REPLAY, birth=replace(BIRTH, chain=["x" * 900] * 5000)))
    (found,) = read_replays(tmp_path)
    assert found.birth is not None and found.birth.samples == [25]
    assert (tmp_path / REPLAYS).stat().st_size <= MAX_LINE


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ["a" * 900] * 90},
        {"command": ["\u2028" * 900] * 90, "differs": ["\U0001f600" * 900] * 90, "raised": "x" * 5000},
        {"birth": replace(BIRTH, chain=["x" * 900] * 99), "changed_sources": ["s" * 900] * 99},
    ],
    ids=range(3),
)
def test_what_is_kept_is_read_back_however_long_it_was(tmp_path: Path, fields: dict[str, Any]) -> None:
    keep_replay(tmp_path, replace(REPLAY, **fields))
    (found,) = read_replays(tmp_path)
    assert found.step == 60 and (tmp_path / REPLAYS).stat().st_size <= MAX_LINE + 1
    assert found.birth is not None and found.birth.samples == [25]


def test_replays_at_the_same_time_lose_none(tmp_path: Path) -> None:
    def keep(writer: int) -> None:
        for step in range(60):
            keep_replay(tmp_path, replace(REPLAY, step=step, capture=str(writer)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(keep, range(4)))
    found = read_replays(tmp_path)
    assert len(found) == MOST and found[0].step == 59
    for writer in range(4):  # none is missing in between
        steps = [r.step for r in found if r.capture == str(writer)]
        assert steps == list(range(59, 59 - len(steps), -1)), steps
    assert [p.name for p in tmp_path.iterdir()] == [REPLAYS]


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON",
        b"[1]",
        b"[" * 100_000,
        b"{}",
        b'{"step": "60", "when": 1, "capture": "c", "command": []}',
        b'{"step": true, "when": 1, "capture": "c", "command": []}',
        b'{"step": 1, "when": 1, "capture": "c", "command": [1]}',
        b'{"step": 1, "when": 1, "capture": "c", "command": [], "differs": {"a": 1}}',
        b'{"step": 1, "when": 1, "capture": "' + b"c" * MAX_LINE + b'", "command": []}',
        b"\xff\xfe\x00",
    ],
    ids=range(10),
)
def test_lines_that_are_no_replay_are_left_out(tmp_path: Path, line: bytes) -> None:
    keep_replay(tmp_path, REPLAY)
    with (tmp_path / REPLAYS).open("ab") as file:
        file.write(line + b"\n")
    assert [r.step for r in read_replays(tmp_path)] == [60]


def test_a_birth_that_is_none_is_left_out_and_odd_numbers_do_no_harm(tmp_path: Path) -> None:
    odd: dict[str, Any] = {"when": 1e300, "step": 10**50, "capture": "", "command": ["a\x1b[2J"], "apart": float("nan")}
    births = [{"operator": 1}, {"operator": "log", "backward": False, "result": "nan", "inputs": [[], [None, 1e999]]}]
    lines = [json.dumps(odd | {"birth": birth}) for birth in births]
    (tmp_path / REPLAYS).write_text("\n".join(lines) + "\n")
    second, first = read_replays(tmp_path)
    assert first.birth is None and second.birth is not None
    for each in (first, second):
        told = describe_replay(each)
        assert told["when"] == "" and "\x1b" not in told["command"]


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(json.dumps({"step": 1, "when": 1, "capture": "c", "command": []}))
    (tmp_path / REPLAYS).symlink_to(tmp_path / "elsewhere")
    assert read_replays(tmp_path) == []
    with pytest.raises(OSError):
        keep_replay(tmp_path, REPLAY)
    (tmp_path / REPLAYS).unlink()
    os.mkfifo(tmp_path / REPLAYS)
    assert read_replays(tmp_path) == []


def test_they_go_with_the_run(tmp_path: Path) -> None:
    folder = record(tmp_path / "run")
    keep_replay(folder, REPLAY)
    remove_run(folder)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("fields", "said", "mark"),
    [
        ({}, "It fails again.", "error"),
        (
            {"birth": None, "gone": True, "passed": 40, "change": "x"},
            "The failure is gone: no NaN or Inf in 40",
            "healthy",
        ),
        ({"failed_at": 61, "change": "x"}, "It fails all the same, at step 61.", "error"),
        ({"failed_step": 58}, "It was step 58 that broke; it showed at step 60.", "error"),
        ({"birth": None, "raised": "ValueError: x"}, "It fails again as it did: ValueError: x.", "error"),
        ({"birth": None, "reason": "all of it was finite"}, "It did not fail again: all of it was finite.", "info"),
    ],
)
def test_what_came_of_it_in_words(fields: dict[str, Any], said: str, mark: str) -> None:
    told = describe_replay(replace(REPLAY, **fields))
    assert told["conclusion"].startswith(said) and told["mark"] == mark
    assert conclude(replace(REPLAY, **fields)) == told["conclusion"]


def test_to_the_bit_or_not() -> None:
    assert compare_words(REPLAY).startswith("The same to the bit")
    assert "inputs, loss differ" in compare_words(replace(REPLAY, differs=["inputs", "loss"]))
    assert "losses of the 3 steps before it agree" in compare_words(
        replace(REPLAY, compared=False, losses=3, apart=1e-6)
    )
