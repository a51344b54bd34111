"""A process that is none of our children, watched until it ends: when, and by which signal or status."""

from __future__ import annotations

import contextlib
import math
import os
import select
import struct
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from torchdoctor.launching import birth_of

STATUS_FIELD, STACK_FIELD, FIRST_FIELD = 52, 28, 3
"""of /proc/PID/stat; see proc(5)"""

GET_INFO, INFO_EXIT = 0xC040FF0B, 1 << 3
INFO_FORMAT = struct.Struct("=QQ11Ii")
"""struct pidfd_info of Linux 6.15 and later, which keeps the exit status of a process that somebody has waited for."""

REAP_SECONDS = 0.3
"""In this time the parent of a process waits for it, and the kernel hands its exit status on to us."""
RECENT_SECONDS = 5.0
"""In which a process that the kernel kills for its memory has ended."""
POLL_SECONDS = 0.25
"""From one question to the next where there are no process descriptors."""


class WatchedProcess:
    """Somebody else's process. Its number may be reused later; what this object says stays about the first owner."""

    def __init__(self, pid: int, born: str | None = None, program: str | None = None) -> None:
        """`born` as launching.birth_of and `program` as program_of gave it, where they were noted earlier."""
        self.pid = pid
        self.born = birth_of(pid) if born is None else born
        self._program = program_of(pid) if program is None else program
        self._descriptor = -1
        self._ended = self.born is None or birth_of(pid) != self.born
        if not self._ended and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._descriptor = os.pidfd_open(pid)
                self._ended = birth_of(pid) != self.born

    @property
    def has_ended(self) -> bool:
        if not self._ended:
            self._ended = bool(_ready([self._descriptor], 0.0)) if self._descriptor >= 0 else self._is_gone()
        return self._ended

    @property
    def was_replaced(self) -> bool:
        """It runs another program now (os.exec)."""
        program = program_of(self.pid)
        return program != self._program and not {program, self._program} & {None, "0"} and not self.has_ended

    def wait_status(self) -> int | None:
        """What its parent gets from wait(), once it has ended; None where the kernel does not tell us."""
        until = time.monotonic() + REAP_SECONDS
        while True:
            status = self._status_of_remains()
            if status is None:
                status = self._status_from_kernel()
            if status is not None or time.monotonic() >= until:
                return status
            time.sleep(0.01)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _is_gone(self) -> bool:
        return birth_of(self.pid) != self.born

    def _status_of_remains(self) -> int | None:
        """Of a process that nobody has waited for yet."""
        told = _stat(self.pid, STATUS_FIELD) if _stat(self.pid, FIRST_FIELD) == "Z" else None
        return int(told) if told is not None and told.isdigit() else None

    def _status_from_kernel(self) -> int | None:
        if self._descriptor < 0:
            return None
        import fcntl

        try:
            told = fcntl.ioctl(self._descriptor, GET_INFO, INFO_FORMAT.pack(INFO_EXIT, *[0] * 13))
        except OSError:
            return None
        mask, *_, status = INFO_FORMAT.unpack(told)
        return int(status) if mask & INFO_EXIT else None

    def __del__(self) -> None:
        self.close()


def program_of(pid: int) -> str | None:
    """Something that differs for each program that a process runs: the place of its stack, which the kernel draws."""
    return _stat(pid, STACK_FIELD)


def wait_for_end(processes: Sequence[WatchedProcess], seconds: float) -> None:
    """Return when one of them has ended, or after so many seconds."""
    descriptors = [p._descriptor for p in processes if not p._ended]
    if -1 not in descriptors:
        _ready(descriptors, seconds)
        return
    until = time.monotonic() + seconds
    while not any(p.has_ended for p in processes) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)


def _ready(descriptors: Iterable[int], seconds: float) -> list[tuple[int, int]]:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll.poll(max(0.0, 1000 * seconds))  # a negative time would be for ever


def _stat(pid: int, field: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[field - FIRST_FIELD]
    except (OSError, IndexError):
        return None


class OutOfMemoryKills:
    """How often the kernel has killed a process for lack of memory, in our control group and on the machine."""

    def __init__(self) -> None:
        self._files = [Path("/proc/vmstat"), *_memory_files()]
        self._count = self._read()
        self._risen = -math.inf

    def were_recent(self) -> bool:
        """Whether there was one between the last two times that this was asked, or in the last seconds. A process with
        much memory takes a while to end."""
        before, self._count = self._count, self._read()
        if self._count > before:
            self._risen = time.monotonic()
        return time.monotonic() - self._risen < RECENT_SECONDS

    def _read(self) -> int:
        total = 0
        for file in self._files:
            with contextlib.suppress(OSError, ValueError, IndexError):
                lines = file.read_text().splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
        return total


def _memory_files() -> list[Path]:
    """Files of our control group that count such kills, for both versions of control groups."""
    found = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                found.append(Path(f"/sys/fs/cgroup{path}/memory.events"))
            elif "memory" in controllers.split(","):
                found.append(Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control"))
    return [file for file in found if file.exists()]
