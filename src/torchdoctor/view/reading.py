"""What is known of a run by now: its files are read again and again while another process records it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from torchdoctor.engine import examine
from torchdoctor.errors import NotARunError, RunError
from torchdoctor.findings import Finding, Verdict
from torchdoctor.report.dashboard import lasting
from torchdoctor.report.vitals import RUNNING, Vitals, sure_findings, take
from torchdoctor.settings import Settings
from torchdoctor.shelf import RECORD
from torchdoctor.store.reader import open_run

QUIET_SECONDS = 10.0
"""Without a new step for so long, the view says so: a loop that hangs looks like one that is slow."""


@dataclass(frozen=True)
class Shares:
    """Of one core's time: the training may need it."""

    reading: float = 0.2
    examining: float = 0.1


class Reading:
    """What is known of a run by now. One thread looks, another one draws."""

    def __init__(self, directory: Path, settings: Settings, shares: Shares | None = None) -> None:
        self.directory = directory
        self.vitals = Vitals(directory.name, RUNNING, 0)
        self.problem = ""
        self._settings = settings
        self._shares = shares or Shares()
        self._verdict: Verdict | None = None
        self._findings: tuple[Finding, ...] | None = None
        self._examined: tuple[int, bool] | None = None
        self._examine_from = 0.0
        self._written: int | None = None
        self._moved = time.monotonic()

    def look(self, *, examined: bool = True, all_findings: bool = False) -> None:
        """Read it anew. RunError where it is none, or none any more."""
        written = _written(self.directory)
        if self._examined is not None and self._examined[1] and written is not None and written == self._written:
            return  # it has ended, and nobody has resumed it
        run = open_run(self.directory)
        self._written = written
        if run.steps != self.vitals.steps:
            self._moved = time.monotonic()
        due = run.finished or time.monotonic() >= self._examine_from
        state = (run.steps, run.finished)
        if examined and due and state != self._examined:
            is_first, begun = self._verdict is None, time.process_time()
            verdict = examine(run, settings=self._settings)
            self._findings = sure_findings(verdict, self._verdict, run.finished or all_findings)
            self._verdict, self._examined = verdict, state
            spent = 0.0 if is_first else time.process_time() - begun  # the first time is that of loading the rules
            self._examine_from = time.monotonic() + spent / self._shares.examining
        known = self._examined[0] if self._examined is not None else 0
        self.vitals = replace(take(run, self._findings), name=self.directory.absolute().name, examined=known)

    @property
    def note(self) -> str:
        """What is unusual about the reading."""
        if self.problem:
            return self.problem
        quiet = time.monotonic() - self._moved
        waits = self.vitals.status == RUNNING and quiet >= QUIET_SECONDS
        return f"no new step for {lasting(quiet)}" if waits else ""

    def follow(self, interval: float, ended: threading.Event, tell: Callable[[], None]) -> None:
        """Look again and again, and tell of each look. What goes wrong stands in the view, beside its last picture."""
        pause, unpaid = 0.0, True
        while not ended.wait(pause):
            begun = time.process_time()
            try:
                self.look()
                self.problem = ""
            except NotARunError:
                self.problem = "the run's folder is gone"
            except (RunError, OSError) as error:
                self.problem = f"cannot be read: {error}"
            except Exception as error:
                self.problem = f"could not be drawn ({type(error).__name__}: {error}); please report this"
            tell()
            spent = 0.0 if unpaid else time.process_time() - begun  # the first times are those of loading
            unpaid = unpaid and not self.vitals.steps
            pause = max(interval, spent / self._shares.reading)


def _written(directory: Path) -> int | None:
    """When its record was last renewed."""
    try:
        return (directory / RECORD).stat().st_mtime_ns
    except OSError:
        return None
