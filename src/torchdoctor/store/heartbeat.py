"""The last sign of life of a recording process: its last step and the line it was at.

A process that is killed cannot write how it ended. Its heartbeat file, replaced at each flush, says where it was until
then, and for how long it had been at that step.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from torchdoctor.opening import open_plain
from torchdoctor.store.files import replace_file
from torchdoctor.store.names import heartbeat_file
from torchdoctor.store.trusted import build

MAX_BYTES = 65_536
MAX_TEXT = 4096

Locate = Callable[[], tuple[str, int] | None]
"""Returns file and line of the user's code that the training thread is executing."""


@dataclass(frozen=True)
class Heartbeat:
    """Where a process was when its recorder last wrote."""

    step: int
    """last recorded step; -1 before the first"""
    time: float
    """seconds since 1970"""
    advanced: float
    """when `step` was first seen, in seconds since 1970"""
    pid: int
    file: str | None = None
    line: int | None = None


class Pulse:
    """Writes the heartbeat file of one rank. Not thread-safe: the recorder's thread alone uses it."""

    def __init__(self, folder: Path, rank: int, locate: Locate) -> None:
        self._path = folder / heartbeat_file(rank)
        self._locate = locate
        self._step = -1
        self._advanced = time.time()
        self._place: tuple[str, int] | None = None

    def beat(self, step: int) -> None:
        """Write the current place. OSError where the file cannot be written."""
        now = time.time()
        if step != self._step:
            self._step, self._advanced = step, now
        self._place = self._locate() or self._place
        file, line = self._place or (None, None)
        last = Heartbeat(step, now, self._advanced, os.getpid(), file, line)
        replace_file(self._path, json.dumps(asdict(last)).encode())


def read_heartbeat(folder: Path, rank: int) -> Heartbeat | None:
    """The heartbeat of a rank; None where there is none that can be read."""
    try:
        descriptor = open_plain(folder / heartbeat_file(rank))
        if descriptor is None:
            return None
        with os.fdopen(descriptor, "rb") as file:
            data = json.loads(file.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return build(Heartbeat, data, MAX_TEXT, 1)
