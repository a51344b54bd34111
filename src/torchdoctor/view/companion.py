"""The live view under a script's output, started by view/opening.py: `... companion ORDER` draws until told to end.

A process of its own, nobody's child, in no group that keys reach: the script's streams, signals and children are what
they were. It ends at a word on its standard input, or when whoever started it is gone. Each time it takes rows of the
terminal, and each time it gives them back, it says so in a line of its standard output. While another program is in
the foreground (Ctrl-Z, bg) they are given back.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import threading
import warnings
from pathlib import Path
from types import FrameType

from torchdoctor.attach.ranks import taken_places
from torchdoctor.attach.voice import point_to_view
from torchdoctor.launching import birth_of
from torchdoctor.settings import Settings
from torchdoctor.view.opening import Order

WORDS, ANSWERS, ERRORS = 0, 1, 2
POLITE = 10
"""By so much is this process nicer than the training, with which it shares the machine."""
READING_SHARE, EXAMINING_SHARE = 0.03, 0.02
"""Of one core."""
TICK_SECONDS = 0.25
"""From one look at the terminal's size and its foreground to the next."""
LOOK_SECONDS = 1.0
"""From one look at the run to the next."""


class Owner:
    """Who started us, and may tell us to end."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._born = birth_of(process)

    def wants_us(self, within: float = 0.0) -> bool:
        """Waits so long for the word to end; the same where it has died or become another program."""
        told, _, _ = select.select([WORDS], [], [], within)
        return not told and self._born is not None and birth_of(self._process) == self._born

    def hears(self, text: str) -> bool:
        try:
            os.write(ANSWERS, f"{text} {os.getpid()}\n".encode())
        except OSError:
            return False
        return True


def main(order: Order) -> None:
    for number in (signal.SIGINT, signal.SIGTTOU, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    with contextlib.suppress(OSError):
        os.nice(POLITE)
    logging.getLogger("torchdoctor").addHandler(logging.NullHandler())
    warnings.simplefilter("ignore")
    owner = Owner(order.owner)
    while not (places := taken_places(order.options, order.since)):
        if not owner.wants_us(within=TICK_SECONDS):
            return
    _draw(places[0], order, owner)


def _draw(run: Path, order: Order, owner: Owner) -> None:
    from torchdoctor.view.reading import Reading, Shares
    from torchdoctor.view.screen import Screen, View

    screen = Screen.take(order)
    if screen is None:
        point_to_view(run)
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), ERRORS)  # nothing but the view is for the terminal
    settings = Settings.from_dict(order.options.settings)
    reading = Reading(run, settings, Shares(READING_SHARE, EXAMINING_SHARE))
    looked = threading.Event()
    arguments = (LOOK_SECONDS, threading.Event(), looked.set)
    threading.Thread(target=reading.follow, args=arguments, daemon=True).start()
    view = View(screen, owner)
    try:
        while owner.wants_us(within=TICK_SECONDS):
            changed = looked.is_set()
            looked.clear()
            if reading.vitals.steps:
                view.show(reading, changed)
    finally:
        view.close()


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    try:
        main(Order.from_json(sys.argv[1]))
    finally:
        os._exit(0)  # no traceback for the terminal; and a thread that still reads would end with an abort
