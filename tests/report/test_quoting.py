"""Source lines in a page: those that ran, from where the user stands."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import pytest

from torchdoctor.findings import Place
from torchdoctor.report.headlines import heading
from torchdoctor.report.quoting import CHANGED, MOST_BYTES, describe_place

SCRIPT = "import torch\n\nloss = 1\nloss.backward()\noptimizer.step()\n"
STARTED = 1_000_000.0


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    os.utime(path, (STARTED - 10, STARTED - 10))
    return path


def place(path: Path, line: int = 4) -> Place:
    return Place(file=str(path), line=line)


def test_the_line_is_quoted_with_those_around(script: Path) -> None:
    told = describe_place(place(script), {"started": STARTED})
    assert ">    4  loss.backward()" in told["source"] and "3  loss = 1" in told["source"]
    assert told["at"] == "train.py:4" and not told["note"]


def test_a_file_that_changed_since_is_not_quoted(script: Path) -> None:
    os.utime(script, (STARTED + 10, STARTED + 10))
    told = describe_place(place(script), {"started": STARTED, "argv": ["train.py"]})
    assert told["source"] == "" and told["note"] == CHANGED


@pytest.mark.parametrize(("name", "quoted"), [("train.py", True), ("model.py", False)])
def test_the_script_itself_is_known_by_its_digest(script: Path, name: str, quoted: bool) -> None:
    os.utime(script, (STARTED + 10, STARTED + 10))
    digest = hashlib.sha256(script.read_bytes()).hexdigest()
    told = describe_place(place(script), {"started": STARTED, "argv": [name], "script_sha256": digest})
    assert bool(told["source"]) == quoted


@pytest.mark.parametrize("file", ["/etc/passwd.py", "notes.txt", "missing.py"])
def test_other_files_are_not_opened(script: Path, tmp_path: Path, file: str) -> None:
    (tmp_path / "notes.txt").write_text(SCRIPT)
    assert describe_place(Place(file=str(tmp_path / file), line=1), {})["source"] == ""


def test_pipes_are_not_waited_for(script: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "long.py").write_text(SCRIPT + "#" * MOST_BYTES)
    (tmp_path / "elsewhere.py").symlink_to("/etc/passwd")
    (tmp_path / "circle.py").symlink_to("circle.py")
    kept = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits for somebody to write"))
    signal.alarm(5)
    try:
        for name in ("pipe.py", "long.py", "elsewhere.py", "circle.py"):
            assert describe_place(Place(file=str(tmp_path / name), line=1), {})["source"] == "", name
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, kept)


@pytest.mark.parametrize("line", [-1, 0, 6])
def test_lines_that_are_not_there_are_not_quoted(script: Path, line: int) -> None:
    assert describe_place(place(script, line), {})["source"] == ""


def test_headings_begin_with_a_capital_and_names_stay_as_they_are() -> None:
    assert heading("gradients are not cleared") == "Gradients are not cleared"
    assert heading("fc1.weight gets no gradient") == "fc1.weight gets no gradient"
