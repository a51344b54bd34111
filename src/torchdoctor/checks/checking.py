"""A script is checked in a process of its own; where that ends before the last check, another takes its place."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torchdoctor.attach.target import Target
from torchdoctor.errors import UnknownNameError
from torchdoctor.takeover.process import Attempt, explain, take_over

AGAIN = 6
"""Processes at most: one whose loop ends or fails at a check is followed by another for the rest."""
ENDED = "the script's process ended"


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
    cut_short: str | None = None
    """by the time that was allowed: the last checks of the list were not made"""
    output: str = ""
    """the end of what the script said, where there was a problem"""
    listed: dict[str, dict[str, str]] = field(default_factory=dict)
    """the checks that were to be made, by name: what each asks, and its part"""

    @property
    def findings(self) -> list[dict[str, Any]]:
        """What the rules proved of the rehearsal, and after that what checks found beside it; the worst first."""
        proved = list((self.verdict or {}).get("findings") or [])
        names = {finding["name"] for finding in proved}
        found: dict[str, dict[str, Any]] = {}
        for finding in sorted((c["finding"] for c in self.checks if c.get("finding")), key=_rank):
            if finding["name"] not in names:
                found.setdefault(finding["name"], finding)
        return sorted([*proved, *found.values()], key=_rank)

    def leave_out(self, why: str) -> None:
        """What is left of the list was not examined."""
        made = {check["name"] for check in self.checks}
        nothing: dict[str, Any] = dict.fromkeys(("severity", "diagnosis", "consequence_of", "fix"))
        nothing |= {"figures": {}, "evidence": [], "where": []}
        for name, told in self.listed.items():
            if name not in made:
                said = {"name": name, "passed": None, "text": why, "seconds": 0.0, "finding": None}
                self.checks.append({**said, **told, **nothing})


def check_script(request: Request, tell: Callable[[dict[str, Any]], None] = lambda _: None) -> Report:
    """`tell` gets every line as it comes: {"began": name}, {"made": {...}} and the like."""
    report, names, attempt = Report(), request.only, Attempt(quick=request.quick)

    def hear(line: dict[str, Any]) -> None:
        _take(line, report)
        tell(line)

    deadline = time.monotonic() + request.timeout
    for _ in range(AGAIN):
        asked, seconds, before = (
            {"checks": names, "made": report.checks},
            deadline - time.monotonic(),
            len(report.checks),
        )
        last, report.output = take_over("torchdoctor.checks.child", request.target, attempt, asked, seconds, hear)
        left = tuple(name for name in report.listed if name not in {c["name"] for c in report.checks})
        if last.get("done") or (report.listed and not left):
            return report
        if "unknown" in last:
            raise UnknownNameError(last["unknown"])
        if report.checks and ("killed" in last or len(report.checks) == before):
            break
        if report.checks:
            names, attempt = left, replace(attempt, early=True)
        elif following := attempt.after(last):
            attempt = following
        else:
            report.problem = explain(last)
            return report
    if "killed" in last:
        report.cut_short = f"the {request.timeout:.0f} s of --timeout were over"
    report.leave_out(f"{report.cut_short or ENDED} before it was made")
    return report


def _rank(finding: dict[str, Any]) -> int:
    return ("error", "warning", "info").index(finding["severity"])


def _take(line: dict[str, Any], report: Report) -> None:
    if "verdict" in line and (report.verdict is None or line["steps"] > report.steps):
        report.verdict, report.steps = line["verdict"], line["steps"]
    if "made" in line:
        report.checks.append(line["made"])
    if "listed" in line and not report.listed:
        report.listed = {c["name"]: {"asks": c["asks"], "part": c["part"]} for c in line["listed"]}
    for name in ("bottleneck", "epochs", "why_not"):
        if line.get(name) is not None:
            setattr(report, name, line[name])
