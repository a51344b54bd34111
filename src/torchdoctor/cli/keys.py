"""The keyboard of a terminal while a picture is on it: single keys, no echo, and everything put back afterwards."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from types import FrameType

try:
    import termios
except ImportError:  # Windows: no single keys, Ctrl-C ends it
    termios = None  # type: ignore[assignment]

LEAVING = ("SIGTERM", "SIGHUP")
"""Signals that end the process: as an exception, so that the terminal is put back."""


class Keys:
    """`wait` gives the key that was pressed, or None when the time is up, the terminal has a new size, or another
    thread called `wake`."""

    def __init__(self, keyboard: int | None, woken: int, waking: int) -> None:
        self._keyboard = keyboard
        self._woken, self._waking = woken, waking
        self.closed = False

    def wake(self) -> None:
        if self.closed:
            return
        with contextlib.suppress(OSError):  # full: it is awake already; or closed
            os.write(self._waking, b"\0")

    def wait(self, seconds: float) -> str | None:
        watched = [self._woken] if self._keyboard is None else [self._woken, self._keyboard]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._woken in ready:
            os.read(self._woken, 1024)
        if self._keyboard not in ready or self._keyboard is None:
            return None
        pressed = os.read(self._keyboard, 64)
        if not pressed:
            self._keyboard = None  # closed: it would be ready for ever
            return None
        return pressed[:1].decode("ascii", "replace")


@contextlib.contextmanager
def open_keys() -> Iterator[Keys]:
    """Only in the main thread, where signals come."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    earlier_fd = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    earlier = {name: signal.signal(getattr(signal, name), _leave) for name in LEAVING if hasattr(signal, name)}
    if hasattr(signal, "SIGWINCH"):
        earlier["SIGWINCH"] = signal.signal(signal.SIGWINCH, _nothing)
    keyboard, settings = _single_keys()
    keys = Keys(keyboard, read_end, write_end)
    try:
        yield keys
    finally:
        keys.closed = True
        if keyboard is not None and settings is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, settings)
        for name, handler in earlier.items():
            signal.signal(getattr(signal, name), handler)
        signal.set_wakeup_fd(earlier_fd)
        os.close(read_end)
        os.close(write_end)


def _single_keys() -> tuple[int | None, list[object] | None]:
    """The terminal to read from and how it was set; none where the standard input is no terminal."""
    try:
        keyboard = sys.stdin.fileno()
        if termios is None or not os.isatty(keyboard):
            return None, None
        settings = termios.tcgetattr(keyboard)
    except (OSError, ValueError, AttributeError):
        return None, None
    single = [*settings[:6], list(settings[6])]
    single[3] &= ~(termios.ICANON | termios.ECHO)
    single[6][termios.VSUSP] = b"\0"  # a stopped process would leave its picture and these settings behind
    termios.tcsetattr(keyboard, termios.TCSADRAIN, single)
    return keyboard, settings


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Its number in the wakeup pipe is enough."""
