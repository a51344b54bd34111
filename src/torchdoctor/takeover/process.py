"""A script is taken over in a process of its own; what that tells is heard as it comes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torchdoctor.attach.target import Target
from torchdoctor.launching import own_module

POLL = 0.05
GRACE = 6.0
"""Seconds until what was asked to end is killed; starts of the script are given five."""
OVER = "the script's own loop was over first"
Line = dict[str, Any]


@dataclass(frozen=True)
class Attempt:
    """`cuts`: walks through loaders are cut short; `early`: the loop is taken over as soon as it is known."""

    cuts: bool = True
    early: bool = False
    quick: bool = False

    def after(self, last: Line) -> Attempt | None:
        """Another that may do better than one that ended with these words before the loop was taken over."""
        raised = _raised(last)
        if self.cuts and raised.startswith("StopIteration"):
            return replace(self, cuts=False)
        if last.get("trained") and not raised and not self.early:
            return replace(self, early=True)
        return None


def explain(last: Line) -> str:
    """Why the loop was not taken over."""
    if "refused" in last:
        return str(last["refused"])
    if raised := _raised(last):
        return f"the script failed before its training could be taken over ({raised})"
    if last.get("trained"):
        return "the script's training is too short to be taken over"
    return "the script ended without training: no optimizer made an update"


def _raised(last: Line) -> str:
    return str(last.get("ended") or last.get("failed") or last.get("killed") or "")


def take_over(
    module: str,
    target: Target,
    attempt: Attempt,
    asked: dict[str, Any],
    timeout: float,
    hear: Callable[[Line], None],
) -> tuple[Line, str]:
    """Runs `module`, which serves such a request. Gives its last words, and the end of what the script printed."""
    with tempfile.TemporaryDirectory(prefix="torchdoctor-") as name:
        folder = Path(name)
        lines, output = folder / "report", folder / "output"
        lines.touch()
        request = {"report": str(lines), "scratch": str(folder), **asdict(attempt), **asdict(target), **asked}
        (folder / "request.json").write_text(json.dumps(request, default=str))
        command = own_module(module, str(folder / "request.json"))
        with output.open("wb") as said:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
            )
        folders: list[Path] = []
        try:
            last = _listen(process, lines, timeout, hear, folders)
        finally:
            _end(process)
            _clear(folders)
        return last, output.read_text(errors="replace")[-4000:]


def _listen(
    process: subprocess.Popen[bytes], lines: Path, timeout: float, hear: Callable[[Line], None], folders: list[Path]
) -> Line:
    """`folders` gets those that the script made."""
    last: Line = {}
    deadline, read = time.monotonic() + timeout, 0
    while True:
        ended = process.poll() is not None
        with lines.open("rb") as file:
            file.seek(read)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        for line in whole.splitlines():
            told = json.loads(line)
            if "folder" in told:
                folders.append(Path(told["folder"]))
                continue
            last = told
            hear(last)
        read += len(whole)
        if ended:
            return last or {"failed": f"its process ended with {process.returncode}"}
        if time.monotonic() > deadline:
            return {"killed": f"it took longer than {timeout:.0f} s"}
        time.sleep(POLL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started: what ends before its time is first asked to, so that it can end others."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                deadline = time.monotonic() + GRACE
                while time.monotonic() < deadline:
                    process.poll()
                    os.killpg(process.pid, 0)  # as long as there is anyone
                    time.sleep(POLL)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _clear(folders: list[Path]) -> None:
    """Files that it would have written there lie elsewhere; one that is not empty stays."""
    for folder in reversed(folders):
        with contextlib.suppress(OSError):
            folder.rmdir()
