"""The process in which a script is taken over: its end, and that of all it has started."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from torchdoctor.attach.target import FILE, Target
from torchdoctor.checks import checking
from torchdoctor.takeover.process import Attempt, take_over

STARTS_ANOTHER = """
import subprocess, time
from pathlib import Path

Path("pid").write_text(str(subprocess.Popen(["sleep", "60"]).pid))
time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_what_took_too_long_ends_with_all_that_it_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("torchdoctor.takeover.process.GRACE", 0.2)
    (tmp_path / "another.py").write_text(STARTS_ANOTHER)
    last, _ = take_over("another", Target(FILE, "another.py"), Attempt(), {}, 2.0, lambda _line: None)
    assert "longer than 2 s" in last["killed"]
    started = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 5
    while is_alive(started) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(started), os.kill(started, 9)


LISTED = {"listed": [{"name": n, "asks": f"is {n} well", "part": "model"} for n in ("one", "two")]}
MADE = {"made": {"name": "one", "passed": True, "text": "yes", "asks": "is one well", "part": "model"}}


@pytest.mark.parametrize(
    ("last", "why", "times"), [({"killed": "late"}, "9 s of --timeout were over", 1), ({}, "process ended", 2)]
)
def test_checks_that_were_not_made_are_told(
    last: dict[str, Any], why: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float] = []

    def take(_module: str, _target: Any, _attempt: Any, asked: Any, timeout: float, hear: Any) -> Any:
        calls.append(timeout)
        hear(LISTED)
        if "one" in asked["checks"] or not asked["checks"]:
            hear(MADE)
        return last, ""

    monkeypatch.setattr(checking, "take_over", take)
    report = checking.check_script(checking.Request(Target(FILE, "train.py"), timeout=9.0))
    assert len(calls) == times and sorted(calls, reverse=True) == calls
    (made, left) = report.checks
    assert (made["passed"], left["name"], left["passed"]) == (True, "two", None)
    assert why in left["text"]
