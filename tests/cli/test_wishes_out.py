"""Why no run can be written to a folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchdoctor.cli.wishes import find_obstacle
from torchdoctor.opening import absolute


def test_a_folder_below_a_device_is_not_taken_for_a_deleted_one() -> None:
    assert find_obstacle(Path(os.devnull, "runs")) == f"cannot write runs to {os.devnull}/runs: {os.devnull} is a file"


def test_a_deleted_current_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_obstacle(absolute("runs")) == "cannot write runs to runs: the current folder has been deleted"
