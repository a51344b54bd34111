"""The terminal that a script writes on, and the rows of it that show the run."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import sys
import time
from typing import Protocol

from torchdoctor.console import Console
from torchdoctor.report.dashboard import Dashboard
from torchdoctor.view.opening import GIVEN_BACK, TAKEN, TERMINAL, Order
from torchdoctor.view.panel import RESCUE, Panel, divide
from torchdoctor.view.reading import Reading

FRAME_SECONDS = 1.0
"""From one picture to the next where nothing is new, for the clock in it and for what a script may have wiped."""


class Owner(Protocol):
    """Who started us: may tell us to end, and is told who has the rows."""

    def wants_us(self) -> bool: ...
    def hears(self, text: str) -> bool: ...


class Screen:
    """The terminal by an opening of our own, which a lock keeps for one view at a time."""

    def __init__(self, file: int, order: Order) -> None:
        self._file, self._order = file, order
        self.encoding = getattr(sys.stderr, "encoding", None) or "utf-8"

    @classmethod
    def take(cls, order: Order) -> Screen | None:
        """None where it cannot be opened, or another view is drawn on it."""
        for name in (_device_of(TERMINAL), f"/proc/self/fd/{TERMINAL}"):
            try:
                file = os.open(name, os.O_WRONLY | os.O_NOCTTY)
            except OSError:
                continue  # in a container its name may lead nowhere
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return cls(file, order)
            return None
        return None

    def divide(self) -> Panel | None:
        """As it is to be divided now; None where it is too small, or the script is not in its foreground."""
        try:
            if os.tcgetpgrp(self._file) != os.getpgid(self._order.owner):
                return None
            return divide(*self.size, self._order.rows, alone=self._order.alone)
        except OSError:
            return None

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows; OSError where the terminal is gone."""
        return tuple(os.get_terminal_size(self._file))

    def write(self, text: str) -> None:
        """In one piece, so that nothing falls between; OSError where the terminal is gone."""
        left = memoryview(text.encode(self.encoding, "replace"))
        while left:
            left = left[os.write(self._file, left) :]


class View:
    """The rows that are drawn on. `close` gives them back."""

    def __init__(self, screen: Screen, owner: Owner) -> None:
        self._screen, self._owner = screen, owner
        self._panel: Panel | None = None
        self._drawn = 0.0
        fixed = {"force_terminal": True, "force_jupyter": False, "highlight": False, "markup": False, "emoji": False}
        self._console = Console(file=io.StringIO(), **fixed)

    def show(self, reading: Reading, changed: bool) -> None:
        """Draw where something is new, and once a second for the clock."""
        panel = self._screen.divide()
        if panel is None:
            self.close()
            return
        if panel == self._panel and not changed and time.monotonic() - self._drawn < FRAME_SECONDS:
            return
        text = panel.draw(self._lines(reading, panel))
        if panel != self._panel:
            if not self._owner.wants_us() or not self._owner.hears(TAKEN):
                return
            text = panel.reserve() + text
        self._panel, self._drawn = panel, time.monotonic()
        self._screen.write(text)

    def _lines(self, reading: Reading, panel: Panel) -> list[str]:
        """A column is left free: behind a full row the cursor is on no column, and erasing takes the last one."""
        ascii_only = not self._screen.encoding.lower().startswith("utf")
        frame = Dashboard(reading.vitals, note=reading.note, framed=True)
        drawn = []
        for line in frame.lines(panel.columns - 1, panel.rows, ascii_only):
            with self._console.capture() as captured:
                self._console.print(line, soft_wrap=True, end="")
            drawn.append(captured.get())
        return drawn

    def close(self) -> None:
        if self._panel is not None:
            panel, self._panel = self._panel, None
            self._screen.write(panel.release() if self._screen.size == (panel.columns, panel.height) else RESCUE)
            self._owner.hears(GIVEN_BACK)


def _device_of(stream: int) -> str:
    try:
        return os.ttyname(stream)
    except OSError:
        return ""
