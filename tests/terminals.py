"""A terminal that a program runs in: what it wrote, and what a person would see."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyte

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
SHOW_CURSOR = "\x1b[?25h"

_AS_ITS_OWN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY); os.execvp(sys.argv[1], sys.argv[1:])"
"""What a terminal does for the shell in it: from then on keys send signals and jobs have a foreground."""


class Terminal:
    """A command in a terminal of the given size; torchdoctor's own words by default."""

    def __init__(
        self,
        *words: str,
        command: Sequence[str] | None = None,
        width: int = 80,
        height: int = 24,
        cwd: Path | None = None,
        owned: bool = False,
        **environment: str,
    ) -> None:
        self.side, inner = pty.openpty()
        self.screen = pyte.HistoryScreen(width, height, history=5000)
        self._stream = pyte.ByteStream(self.screen)
        self.resize(width, height)
        self.settings = termios.tcgetattr(inner)
        self.inner = inner
        self.seen = ""
        variables = {**os.environ, "TERM": "xterm-256color", "OMP_NUM_THREADS": "1", **environment}
        for name in ("COLUMNS", "LINES", "NO_COLOR", "PYTHONUNBUFFERED"):
            variables.pop(name, None)
        command = command or [sys.executable, "-m", "torchdoctor", *words]
        self.process = subprocess.Popen(
            [*([sys.executable, "-c", _AS_ITS_OWN] if owned else []), *command],
            cwd=cwd,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env=variables,
            start_new_session=True,
        )

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.side, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        if (width, height) != (self.screen.columns, self.screen.lines):
            self.screen.resize(height, width)

    @property
    def rows(self) -> list[str]:
        """What is on the screen now."""
        return [row.rstrip() for row in self.screen.display]

    @property
    def history(self) -> list[str]:
        """What has scrolled away at the top."""
        return ["".join(row[x].data for x in range(self.screen.columns)).rstrip() for row in self.screen.history.top]

    def until(self, condition: Callable[[str], bool], seconds: float = 60.0) -> str:
        """What it wrote since the last time, up to where that holds."""
        text, end = "", time.monotonic() + seconds
        while not condition(text):
            assert time.monotonic() < end, f"not seen: {text[-2000:]!r}"
            text += self._read()
        return text

    def until_shown(self, condition: Callable[[list[str]], bool], seconds: float = 60.0) -> list[str]:
        """The screen, as soon as that holds of it."""
        end = time.monotonic() + seconds
        while not condition(self.rows):
            assert time.monotonic() < end, "not seen:\n" + "\n".join(self.rows)
            self._read()
        return self.rows

    def finish(self) -> int:
        """Its status, once it has ended; what it wrote is in `seen`."""
        end = time.monotonic() + 60
        while self.process.poll() is None:
            assert time.monotonic() < end
            self._read()
        while self._read():
            pass
        return self.process.returncode

    def press(self, keys: bytes) -> None:
        os.write(self.side, keys)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.side)
        os.close(self.inner)

    def _read(self) -> str:
        ready, _, _ = select.select([self.side], [], [], 0.1)
        data = os.read(self.side, 65536) if ready else b""
        self._stream.feed(data)
        text = data.decode("utf-8", "replace")
        self.seen += text
        return text

    def assert_clean(self) -> None:
        """As it was found: the other screen left, the cursor shown, keys echoed."""
        assert self.seen.count(ENTER) == 1
        assert self.seen.rindex(LEAVE) > self.seen.rindex(ENTER)
        assert self.seen.rindex(SHOW_CURSOR) > self.seen.rindex("\x1b[?25l")
        assert termios.tcgetattr(self.inner) == self.settings
        assert "Traceback" not in self.seen


@contextlib.contextmanager
def terminal(*words: str, **options: Any) -> Iterator[Terminal]:
    opened = Terminal(*words, **options)
    try:
        yield opened
    finally:
        opened.close()
