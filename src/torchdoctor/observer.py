"""The process beside a training that observes its end, started by cli/observing.py.

It notices when the training's process has gone without a word: killed by a signal or by the kernel, left by os._exit,
or replaced by another program. Then it writes how each rank ended into the run and tells the verdict, as the training's
process would have. Until then it imports as little as it can, and wakes once a second, more often at first.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torchdoctor.attach.options import Options
from torchdoctor.attach.ranks import taken_places
from torchdoctor.errors import RunError
from torchdoctor.last_seen import RUNNING, ProcessEnding
from torchdoctor.store.ending import mark_ending, of_wait_status
from torchdoctor.store.info import read_info
from torchdoctor.store.names import rank_of_run_file
from torchdoctor.store.process import is_alive
from torchdoctor.store.watched import OutOfMemoryKills, WatchedProcess, wait_for_end

ORDER, ERRORS = 0, 2
FIRST_LOOKS, LOOK_SECONDS, LAST_LISTS = 0.25, 1.0, 10.0
"""Seconds from one look at the processes to the next, at first and later; and from one list of the folder to the next,
much later."""
GROWTH = 0.02
"""of these seconds, by each second that the run is old"""
OTHERS_SECONDS = 0.7
"""Ranks often end shortly after one another; so long they are waited for before the verdict."""
TELLING_SECONDS = 20
"""After so long without a verdict this process gives up: whoever reads its standard error waits for it."""
PASSED_BY = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGPIPE", "SIGTSTP", "SIGTTOU")
"""Signals that schedulers and terminals send to every process of a job."""


@dataclass
class Recorder:
    """A process that writes a run."""

    file: Path
    """its run.json"""
    identity: dict[str, Any]
    process: WatchedProcess
    is_marked: bool = False


@dataclass
class Census:
    """All processes that record under the run's name on this machine."""

    options: Options
    since: float
    """as ranks.last_written gave it before the run"""
    recorders: dict[tuple[Path, int], Recorder] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)
    _next: float = 0.0
    _read: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """files as they were when they were read last"""

    def look(self, at_once: bool = False) -> None:
        """Find those that have begun to record. The folder is listed ever less often."""
        now = time.monotonic()
        if now < self._next and not at_once:
            return
        self._next = now + min(LAST_LISTS, self._interval)
        for place in taken_places(self.options, self.since):
            for file in (entry for entry in place.iterdir() if rank_of_run_file(entry.name) is not None):
                self._add(file)

    @property
    def _interval(self) -> float:
        return FIRST_LOOKS + GROWTH * (time.monotonic() - self._begun)

    def wait(self, owner: WatchedProcess) -> None:
        """Until a process has ended, or it is time for another look."""
        wait_for_end([owner, *self.alive], min(LOOK_SECONDS, self._interval))

    def _add(self, file: Path) -> None:
        try:
            now = file.stat()
            if self._read.get(file) == (now.st_mtime_ns, now.st_size):
                return
            data = read_info(file)
        except (RunError, OSError):
            return
        self._read[file] = now.st_mtime_ns, now.st_size
        identity = data.get("process")
        if data.get("status") != RUNNING or not isinstance(identity, dict) or is_alive(identity) is None:
            return
        key = file, identity["pid"]
        if key not in self.recorders:
            self.recorders[key] = Recorder(file, identity, WatchedProcess(identity["pid"], str(identity["begun"])))

    def mark(self, out_of_memory: bool, known: Mapping[int, ProcessEnding] = MappingProxyType({})) -> None:
        """Write down how those ended that have gone since the last time; of some, by number, it is `known`."""
        for recorder in self.recorders.values():
            process = recorder.process
            if recorder.is_marked or not (process.has_ended or process.pid in known):
                continue
            recorder.is_marked = True
            ending = known.get(process.pid) or of_wait_status(process.wait_status(), out_of_memory)
            mark_ending(recorder.file, recorder.identity, ending)
            process.close()

    @property
    def alive(self) -> list[WatchedProcess]:
        return [r.process for r in self.recorders.values() if not r.process.has_ended]


def main() -> None:
    for name in PASSED_BY:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    order, request = _read_order()
    owner = WatchedProcess(*order["owner"])
    census = Census(Options.from_json(order["options"]), order["since"])
    kills = OutOfMemoryKills()
    while not owner.was_replaced and not (owner.has_ended and not (order["launches"] and census.alive)):
        if not owner.has_ended:
            _share_errors(owner.pid)
        census.look()
        census.mark(kills.were_recent())
        census.wait(owner)
    replaced = not owner.has_ended
    ending = ProcessEnding(replaced=True) if replaced else of_wait_status(owner.wait_status())
    if ending.signal == "SIGKILL" and kills.were_recent():
        ending = ProcessEnding(ending.signal, out_of_memory=True)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(TELLING_SECONDS)
    _conclude(owner, ending, census, order, request)


def _read_order() -> tuple[dict[str, Any], bytes]:
    with os.fdopen(ORDER, "rb") as words:
        order, _, request = words.read().partition(b"\n")
    os.open(os.devnull, os.O_RDWR)  # takes the number that is free now
    return json.loads(order), request


def _share_errors(owner: int) -> None:
    """Have the standard error that the training has: one that it has closed or replaced is not kept open by us."""
    theirs, ours = _target(owner, ERRORS), _target(os.getpid(), ERRORS)
    if theirs == ours or (theirs is None and not _has_files(owner)):
        return  # without any file a process is about to end, which takes a while where it had a device open
    try:
        opened = os.open(f"/proc/{owner}/fd/{ERRORS}", os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        opened = os.open(os.devnull, os.O_WRONLY)
    os.set_blocking(opened, True)
    os.dup2(opened, ERRORS)
    os.close(opened)


def _has_files(process: int) -> bool:
    try:
        return bool(os.listdir(f"/proc/{process}/fd"))  # noqa: PTH208
    except OSError:
        return False


def _target(process: int, descriptor: int) -> str | None:
    try:
        return os.readlink(f"/proc/{process}/fd/{descriptor}")  # noqa: PTH115 - no path: "pipe:[4711]"
    except OSError:
        return None


def _conclude(
    owner: WatchedProcess, ending: ProcessEnding, census: Census, order: dict[str, Any], request: bytes
) -> None:
    census.look(at_once=True)
    until = time.monotonic() + OTHERS_SECONDS
    census.mark(ending.out_of_memory, {owner.pid: ending})
    while census.alive and not ending.replaced and time.monotonic() < until:
        wait_for_end(census.alive, until - time.monotonic())
        census.mark(ending.out_of_memory)
    if order["speaks"]:
        import pickle

        from torchdoctor.cli.running import tell_of_end

        tell_of_end(pickle.loads(request), order["since"], ending)


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        from torchdoctor.attach.voice import say

        say(f"could not determine how the run ended ({type(error).__name__}: {error}); please report this")
    sys.stderr.flush()
    os._exit(0)
