"""Source lines in a page: those that ran, from where the user stands."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from torchdoctor.findings import Place
from torchdoctor.report.headlines import heading
from torchdoctor.report.quoting import CHANGED, describe_place

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


def test_headings_begin_with_a_capital_and_names_stay_as_they_are() -> None:
    assert heading("gradients are not cleared") == "Gradients are not cleared"
    assert heading("fc1.weight gets no gradient") == "fc1.weight gets no gradient"
