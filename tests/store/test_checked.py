"""Checks kept beside the runs: the newest of the same script is found, and a stranger's file is read with distrust."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchdoctor.store.checked import CHECKS, MAX_BYTES, MOST, Checked, Made, find_check, keep_check, script_of

INFO = {"argv": ["train.py", "--lr", "0.1"], "cwd": "/work/project"}
MADE = Made("first-loss", "model", "the first loss is about what chance gives", "1.39", True)
CHECKED = Checked(1.8e9, "/work/project/train.py", "ab" * 32, ["train.py"], checks=[MADE])


def keep(runs: Path, *checks: Checked) -> None:
    for each in checks:
        keep_check(runs, each)


def test_the_newest_of_the_same_script_is_found(tmp_path: Path) -> None:
    other = replace(CHECKED, script="/work/project/other.py", when=1.8e9 + 50)
    keep(tmp_path, replace(CHECKED, when=1.8e9 + 9, quick=True), CHECKED, other)
    found = find_check(tmp_path, INFO)
    assert found is not None and found.quick and found.checks == [MADE]
    assert find_check(tmp_path, {**INFO, "cwd": "/elsewhere"}) is None
    assert find_check(tmp_path / "none", INFO) is None


def test_only_so_many_are_kept(tmp_path: Path) -> None:
    keep(tmp_path, *(replace(CHECKED, when=1.8e9 + i) for i in range(MOST + 7)))
    names = sorted(p.name for p in (tmp_path / CHECKS).iterdir())
    assert len(names) == MOST and names[0].startswith("check-1800000007-")


@pytest.mark.parametrize(
    "info",
    [{}, {"argv": []}, {"argv": ["train.py"]}, {"argv": [1], "cwd": "/"}, {"argv": "train.py", "cwd": "/"}],
    ids=range(5),
)
def test_a_run_that_does_not_say_its_script_has_no_check(info: dict[str, Any], tmp_path: Path) -> None:
    keep(tmp_path, replace(CHECKED, script=""))
    assert script_of(info) == "" and find_check(tmp_path, info) is None


def test_the_home_folder_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    for argv in ("train.py", "./train.py", "/home/somebody/code/train.py", "~/code/train.py"):
        assert script_of({"argv": [argv], "cwd": "~/code"}) == "~/code/train.py"


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b"{",
        b"[" * 90_000,
        b" " * (MAX_BYTES + 2),
        json.dumps({"when": "now", "script": "/work/project/train.py", "digest": "", "command": []}).encode(),
        json.dumps({"when": 1, "script": "/work/project/train.py", "digest": "", "command": [], "checks": {}}).encode(),
    ],
    ids=range(6),
)
def test_what_is_no_check_is_left_out(data: bytes, tmp_path: Path) -> None:
    keep(tmp_path, CHECKED)
    (tmp_path / CHECKS / "check-1900000000-1.json").write_bytes(data)
    found = find_check(tmp_path, INFO)
    assert found is not None and found.when == CHECKED.when


def test_damaged_entries_are_left_out_and_links_are_not_followed(tmp_path: Path) -> None:
    keep(tmp_path / "real", CHECKED)
    (file,) = (tmp_path / "real" / CHECKS).iterdir()
    data = json.loads(file.read_text())
    data["checks"] += [{"name": "x", "part": "model", "asks": "a", "text": "t", "passed": "yes"}, 7, {"name": "y"}]
    file.write_text(json.dumps(data))
    found = find_check(tmp_path / "real", INFO)
    assert found is not None and found.checks == [MADE]
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / CHECKS).symlink_to(tmp_path / "real" / CHECKS)
    assert find_check(runs, INFO) is None
    with pytest.raises(OSError, match="link"):
        keep_check(runs, CHECKED)
