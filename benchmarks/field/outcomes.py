"""What came of every case, kept on disk as it comes, so that a run that was stopped can go on."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from field.environment import CACHE
from field.programs import Case
from field.running import Result, Verdict

GRAVE = ("error", "warning")


@dataclass(frozen=True)
class Outcome:
    """One case under one build, beside the same case bare."""

    label: str
    project: str
    half: str
    kind: str
    style: str
    accepted: tuple[str, ...] | None
    """None: the program is healthy"""
    category: str
    bare: Result
    recorded: Result
    verdict: Verdict
    is_repeatable: bool = True
    """the program gave the same metric bare when its label was confirmed"""

    @property
    def is_healthy(self) -> bool:
        return self.accepted is None

    @property
    def grave(self) -> list[dict[str, Any]]:
        """Findings above info, in the order in which they are shown."""
        return [f for f in self.verdict.findings if f["severity"] in GRAVE]

    @property
    def is_alarmed(self) -> bool:
        return bool(self.grave)

    @property
    def is_right_first(self) -> bool:
        return bool(self.grave) and self._is_accepted(self.grave[0])

    @property
    def is_found(self) -> bool:
        return any(self._is_accepted(f) for f in self.verdict.findings)

    @property
    def is_equal(self) -> bool:
        """Return whether the program printed the same measures and ended the same way."""
        return (self.bare.status, repr(self.bare.metrics)) == (self.recorded.status, repr(self.recorded.metrics))

    def _is_accepted(self, finding: dict[str, Any]) -> bool:
        """Return whether a finding names an accepted diagnosis. A peer's finding may stand for several (`names`)."""
        return not {finding["name"], *finding.get("names", ())}.isdisjoint(self.accepted or ())


def outcome_of(case: Case, bare: Result, recorded: Result, verdict: Verdict) -> Outcome:
    confirmed = case.confirmed()  # its first seed is that of all runs
    return Outcome(
        label=case.label,
        project=case.project.name,
        half=case.project.half,
        kind=case.program.kind,
        style=case.program.style,
        accepted=case.fault.accepted if case.fault else None,
        category=case.fault.category if case.fault else "healthy",
        bare=bare,
        recorded=recorded,
        verdict=verdict,
        is_repeatable=confirmed is None or confirmed["metrics"][0] == bare.metric,
    )


class Records:
    """JSON lines by key, appended as they come; a line that a kill has torn is passed over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, dict[str, Any]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            for line in path.read_text(encoding="utf-8").split("\n"):
                try:
                    data = json.loads(line)
                    self.known[data.pop("key")] = data
                except (ValueError, KeyError):
                    continue

    def keep(self, key: str, data: dict[str, Any]) -> None:
        self.known[key] = data
        with self.path.open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps({"key": key, **data}))


def bare_records() -> Records:
    """Return how programs end without any tool. They do not depend on the build."""
    return Records(CACHE / "bare.jsonl")


def recorded_records(half: str, build: str) -> Records:
    """Return what one build said. Each half has a file of its own, so that nobody reads the counted one by chance."""
    return Records(CACHE / half / f"{build}.jsonl")


def to_data(result: Result, verdict: Verdict) -> dict[str, Any]:
    return {"result": asdict(result), "verdict": asdict(verdict)}


def from_data(data: dict[str, Any]) -> tuple[Result, Verdict]:
    return Result(**data["result"]), Verdict(**data["verdict"])


def name_of_build(source: Path) -> str:
    """Return the commit of a checkout, with a hash of what is not committed."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=source, capture_output=True, text=True, check=False)
        return done.stdout

    commit = git("log", "-1", "--format=%h", "--", ".").strip()
    changes = git("diff", "HEAD", "--", ".")
    return f"{commit}-{hashlib.sha256(changes.encode()).hexdigest()[:8]}" if changes.strip() else commit
