"""The last sign of life of a recording process: its last step and the line it was at.

A process that is killed cannot write how it ended. Its heartbeat file, written anew at each flush, says where it was
until then, and for how long it had been at that step.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from torchdoctor.opening import NO_LINK, identity_of, open_plain
from torchdoctor.store.documents import write_json
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
        self._descriptor = -1
        self._identity: tuple[int, int] | None = None
        self._length = 0
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
        self._write(write_json(asdict(Heartbeat(step, now, self._advanced, os.getpid(), file, line))).encode())

    def _write(self, text: bytes) -> None:
        """In one piece, over what was there: no file is made anew in a folder that somebody is deleting."""
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, 0o644)
            self._identity = identity_of(self._descriptor)
        elif identity_of(self._descriptor) != self._identity:
            return  # the script has closed it, and the number may stand for a file of its own
        self._length = max(self._length, len(text))
        os.pwrite(self._descriptor, text.ljust(self._length), 0)

    def close(self) -> None:
        if self._descriptor >= 0 and identity_of(self._descriptor) == self._identity:
            os.close(self._descriptor)
        self._descriptor, self._identity = -1, None


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
