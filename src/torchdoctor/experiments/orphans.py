"""A process that another one has started does not outlive it."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
from types import FrameType
from typing import NoReturn

PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that comes when the process that started this one has ended."""


def end_with_parent() -> None:
    """From now on, on Linux: however the other ends, also where it is killed and can clear up nothing."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))


def clear_up_when_ended() -> None:
    """Whoever is asked to end leaves by way of his `finally`s."""

    def leave(number: int, _frame: FrameType | None) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
