"""A script is checked in a process of its own; where that ends before the last check, another takes its place."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torchdoctor.attach.target import Target
from torchdoctor.errors import UnknownNameError

POLL = 0.05
AGAIN = 3
"""Processes at most: one whose loop ends or fails at a check is followed by another for the rest."""


@dataclass(frozen=True)
class Request:
    target: Target
    only: tuple[str, ...] = ()
    """names of checks; all without any"""
    quick: bool = False
    timeout: float = 600.0


@dataclass
class Report:
    """What came of it, as plain data."""

    verdict: dict[str, Any] | None = None
    """of the rules, on what was rehearsed"""
    steps: int = 0
    checks: list[dict[str, Any]] = field(default_factory=list)
    bottleneck: str | None = None
    epochs: int | None = None
    why_not: str | None = None
    """the loop could not be driven"""
    problem: str | None = None
    """nothing could be checked"""
    output: str = ""
    """the end of what the script said, where there was a problem"""
    listed: list[str] = field(default_factory=list)
    """names of the checks that were to be made"""

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What the rules proved of the rehearsal, and after that what checks found beside it; the worst first."""
        proved = list((self.verdict or {}).get("findings") or [])
        names = {finding["name"] for finding in proved}
        found = [c["finding"] for c in self.checks if c.get("finding") and c["finding"]["name"] not in names]
        return sorted([*proved, *found], key=lambda f: ("error", "warning", "info").index(f["severity"]))


@dataclass(frozen=True)
class _Attempt:
    checks: tuple[str, ...]
    cuts: bool = True
    early: bool = False


def check_script(request: Request, tell: Callable[[dict[str, Any]], None] = lambda _: None) -> Report:
    """`tell` gets every line as it comes: {"began": name}, {"made": {...}} and the like."""
    report, attempt = Report(), _Attempt(request.only)
    for _ in range(AGAIN):
        with tempfile.TemporaryDirectory(prefix="torchdoctor-check-") as folder:
            last = _perform(request, attempt, Path(folder), report, tell)
        left = tuple(name for name in report.listed if name not in {c["name"] for c in report.checks})
        if last.get("done") or (report.listed and not left):
            return report
        if "unknown" in last:
            raise UnknownNameError(last["unknown"])
        following = _follow(attempt, last, left, report)
        if following is None:
            return report
        attempt = following
    return report


def _follow(attempt: _Attempt, last: dict[str, Any], left: tuple[str, ...], report: Report) -> _Attempt | None:
    raised = last.get("ended") or last.get("failed") or last.get("killed")
    if report.checks:
        return replace(attempt, checks=left, early=True)
    if attempt.cuts and str(raised or "").startswith("StopIteration"):
        return replace(attempt, cuts=False)
    if last.get("trained") and not raised and not attempt.early:
        return replace(attempt, early=True)
    if raised:
        report.problem = f"the script failed before its training could be checked ({raised})"
    elif last.get("trained"):
        report.problem = "the script's training is too short to be taken over"
    else:
        report.problem = "the script ended without training: no optimizer made an update"
    return None


def _perform(
    request: Request, attempt: _Attempt, folder: Path, report: Report, tell: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """One process; gives its last words."""
    lines, output = folder / "report", folder / "output"
    lines.touch()
    asked = {
        "checks": list(attempt.checks),
        "quick": request.quick,
        "cuts": attempt.cuts,
        "early": attempt.early,
        "report": str(lines),
        "scratch": str(folder),
        **asdict(request.target),
    }
    (folder / "request.json").write_text(json.dumps(asked, default=str))
    command = [sys.executable, "-m", "torchdoctor.checks.child", str(folder / "request.json")]
    with output.open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
    last: dict[str, Any] = {}
    deadline, read = time.monotonic() + request.timeout, 0
    try:
        while True:
            ended = process.poll() is not None
            with lines.open() as file:
                file.seek(read)
                fresh = file.read()
            for line in fresh[: fresh.rfind("\n") + 1].splitlines():
                last = json.loads(line)
                _take(last, report)
                tell(last)
            read += len(fresh[: fresh.rfind("\n") + 1].encode())
            if ended:
                break
            if time.monotonic() > deadline:
                last = {"killed": f"it took longer than {request.timeout:.0f} s"}
                break
            time.sleep(POLL)
    finally:
        process.kill()
        process.wait()
    report.output = output.read_text(errors="replace")[-4000:]
    if not last:
        last = {"failed": f"its process ended with {process.returncode}"}
    return last


def _take(line: dict[str, Any], report: Report) -> None:
    if "verdict" in line and (report.verdict is None or line["steps"] > report.steps):
        report.verdict, report.steps = line["verdict"], line["steps"]
    if "made" in line:
        report.checks.append(line["made"])
    if "listed" in line and not report.listed:
        report.listed = [c["name"] for c in line["listed"]]
    for name in ("bottleneck", "epochs", "why_not"):
        if line.get(name) is not None:
            setattr(report, name, line[name])
