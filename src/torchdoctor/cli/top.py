"""`torchdoctor top [RUN]`: a live view of a run in the terminal. Only reads its files, and never imports torch."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from torchdoctor.cli.keys import open_keys
from torchdoctor.cli.names import FOLDER, find_named
from torchdoctor.console import Console, Live
from torchdoctor.engine import examine
from torchdoctor.errors import NotARunError, RunError
from torchdoctor.findings import Finding, Verdict
from torchdoctor.report.dashboard import Dashboard, lasting
from torchdoctor.report.vitals import RUNNING, Vitals, sure_findings, take
from torchdoctor.settings import discover
from torchdoctor.shelf import RECORD, resolve
from torchdoctor.store.reader import open_run

QUIET_SECONDS = 10.0
"""Without a new step for so long, the view says so: a loop that hangs looks like one that is slow."""
READING_SHARE = 0.2
"""Of one core, for reading: the training may need it."""
EXAMINING_SHARE = 0.1
"""The same for the rules."""
POLITE = 5
"""By so much is this process nicer than the training."""


@click.command("top")
@click.argument("path", type=click.Path(path_type=Path), default=FOLDER, metavar="[RUN]")
@click.option("--once", is_flag=True, help="Print one picture and end; so it is in a pipe, too.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time from one picture to the next.",
)
def command(path: Path, once: bool, interval: float) -> None:
    """Watch a run in the terminal while it trains: loss, gradient flow, updates, speed, memory and findings.

    RUN is a run's folder, its name in ./torchdoctor-runs, or a folder of runs: then the newest is taken. Another
    process may be recording it. q ends the view, and never the training.
    """
    directory, _ = resolve(find_named(path))
    reading = Reading(directory)
    console = Console(highlight=False, markup=False, emoji=False, force_jupyter=False)
    if once or not console.is_terminal or console.is_dumb_terminal:
        reading.look(all_findings=True)
        _print_once(console, reading.vitals)
        return
    reading.look(examined=False)
    _watch(reading, console, interval)


def _print_once(console: Console, vitals: Vitals) -> None:
    """One row less than the terminal has, so that the prompt does not push the first one out."""
    for line in Dashboard(vitals).lines(console.width, max(1, console.height - 1), console.options.ascii_only):
        line.rstrip()
        console.print(line, soft_wrap=True)


class Reading:
    """What is known of a run by now. One thread looks, another one draws."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.vitals = Vitals(directory.name, RUNNING, 0)
        self.problem = ""
        self._settings = discover(Path.cwd())
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
            begun = time.monotonic()
            verdict = examine(run, settings=self._settings)
            self._findings = sure_findings(verdict, self._verdict, run.finished or all_findings)
            self._verdict, self._examined = verdict, state
            self._examine_from = time.monotonic() + (time.monotonic() - begun) / EXAMINING_SHARE
        self.vitals = replace(take(run, self._findings), name=self.directory.absolute().name)

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
        pause = 0.0
        while not ended.wait(pause):
            begun = time.monotonic()
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
            pause = max(interval, (time.monotonic() - begun) / READING_SHARE)


def _written(directory: Path) -> int | None:
    """When its record was last renewed."""
    try:
        return (directory / RECORD).stat().st_mtime_ns
    except OSError:
        return None


def _watch(reading: Reading, console: Console, interval: float) -> None:
    """Draw until q or Ctrl-C; the terminal is left as it was."""
    with contextlib.suppress(OSError, AttributeError):
        os.nice(POLITE)
    # nothing but the picture may be written on the screen
    logging.getLogger("torchdoctor").addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")
    ended = threading.Event()
    view = Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    with contextlib.suppress(KeyboardInterrupt), open_keys() as keys, view:
        arguments = (interval, ended, keys.wake)
        follower = threading.Thread(target=reading.follow, args=arguments, daemon=True)
        follower.start()
        while True:
            view.update(Dashboard(reading.vitals, note=reading.note, hint="q quits"), refresh=True)
            if keys.wait(interval) in ("q", "Q", "\x04"):
                break
        ended.set()
