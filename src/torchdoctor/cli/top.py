"""`torchdoctor top [RUN]`: a live view of a run in the terminal. Only reads its files, and never imports torch."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import warnings
from pathlib import Path

import click

from torchdoctor.cli.keys import open_keys
from torchdoctor.cli.names import FOLDER, find_named
from torchdoctor.console import Console, Live
from torchdoctor.report.dashboard import Dashboard
from torchdoctor.report.vitals import Vitals
from torchdoctor.settings import discover
from torchdoctor.shelf import resolve
from torchdoctor.view.reading import Reading

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
    reading = Reading(directory, discover(Path.cwd()))
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
