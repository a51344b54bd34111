"""A forked child of the training process: a copy that may do what the run itself must not, and tells what it found.

The child has the model, the batch and the random state, and none of the user's signal handlers, files or sockets. Its
report comes back through a pipe that is read when it is there.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import logging
import mmap
import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch

from torchdoctor.attach.ranks import is_together
from torchdoctor.probes.memory import memory_left

REPORT_BYTES = 1 << 16
"""What a pipe holds: a child never waits for its reader."""
OUR_THREADS = "torchdoctor-"
SHARED_LIMIT = 1 << 30
"""Bytes of shared memory that a child copies for itself."""
MAP_FIXED, PR_SET_PDEATHSIG = 0x10, 1
"""Of Linux; Python has no names for them."""
FREE_SHARE = 0.5
"""Of the memory that is free; a child that writes to all it was given doubles what the process holds."""

FORBIDDEN = frozenset(
    [
        *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.system"),
        *("os.fork", "os.posix_spawn", "os.exec", "subprocess.Popen", "socket.connect", "socket.bind"),
        *("os.kill", "os.killpg", "socket.sendto", "socket.sendmsg"),
        *("shutil.copyfile", "shutil.move", "shutil.rmtree", "urllib.Request", "sqlite3.connect"),
    ]
)
"""Python's audit events that leave this process."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

Report = dict[str, Any]

_children: set[int] = set()
"""this process, where it is a child"""


class Child:
    """A child at work, seen from its parent."""

    def __init__(self, pid: int, pipe: int) -> None:
        self.pid = pid
        self._pipe = pipe

    def report(self, patience: float = 0.0) -> Report | None:
        """What it said, when it has; None while it is at work. One that ended in silence gives the reason."""
        if self._pipe < 0:
            return None
        ready = select.poll()
        ready.register(self._pipe, select.POLLIN | select.POLLHUP)
        if not ready.poll(max(0.0, patience) * 1000):
            return None
        said = b""
        while part := os.read(self._pipe, REPORT_BYTES):
            said += part
        self._close()
        try:
            return dict(json.loads(said)) if said else {"reason": "the child process ended without a report"}
        except ValueError:
            return {"reason": "the child process ended in the middle of its report"}

    def _close(self) -> None:
        pipe, self._pipe = self._pipe, -1
        if pipe >= 0:
            os.close(pipe)

    def end(self) -> None:
        """It is not waited for any longer."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._close()

    def is_gone(self) -> bool:
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
        except ChildProcessError:
            return True

    def bury(self) -> None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


class Errand:
    """One child at a time that is sent out for a report; those that came to their end are buried when they are gone."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._ended: list[Child] = []

    @property
    def under_way(self) -> bool:
        return self._child is not None

    def send(self, seconds: float) -> int | None:
        """Fork: None in the parent, and in the child the pipe for `tell`. OSError where there cannot be a child."""
        self._child, pipe = fork(seconds)
        return None if self._child is not None else pipe

    def report(self, patience: float = 0.0) -> Report | None:
        """What the child has told, once it has."""
        if self._ended:
            self._ended = [child for child in self._ended if not child.is_gone()]
        report = self._child.report(patience) if self._child is not None else None
        if report is not None:
            self._part()
        return report

    def give_up(self) -> bool:
        """A child that is still at work is ended; True if there was one."""
        if self._child is None:
            return False
        self._child.end()
        self._part()
        return True

    def _part(self) -> None:
        if self._child is not None:
            self._ended.append(self._child)
        self._child = None

    def bury(self) -> None:
        """The run is over: wait until the last of them is gone."""
        for child in self._ended:
            child.bury()
        self._ended = []


def fork(seconds: float) -> tuple[Child | None, int]:
    """The child in the parent, and in the child None and the end of the pipe that its report goes to.

    The child lives no longer than `seconds`. All signals are held back until it has put the user's handlers aside.
    """
    reading, writing = os.pipe()
    blocked, pid = signal.pthread_sigmask(signal.SIG_BLOCK, ()), -1
    try:  # an exception from outside may come after any call, and must not leave signals blocked
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        with _handlers_held():
            pid = _fork_quietly()
        if pid == 0:
            try:
                _children.add(os.getpid())
                _put_user_aside(writing, seconds)
            except BaseException:
                os._exit(1)
            return None, writing
        return Child(pid, reading), -1
    except BaseException:
        os.close(reading)
        raise
    finally:
        if pid != 0:
            os.close(writing)
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _fork_quietly() -> int:
    if sys.version_info < (3, 12):
        return os.fork()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


@contextlib.contextmanager
def _handlers_held() -> Iterator[None]:
    """Call the script's signal handlers when the block has ended. Another thread may take a signal that this one has
    blocked, and Python drops what a handler raises inside the functions that are registered for forks."""
    is_main, came = threading.current_thread() is threading.main_thread(), list[int]()
    handlers = {n: h for n in signal.valid_signals() if is_main and callable(h := signal.getsignal(n))}
    try:
        for number in handlers:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        _put_back(handlers)
        for number in came:
            signal.raise_signal(number)


def _put_back(handlers: Mapping[int, Any]) -> None:
    error: BaseException | None = None
    for number, handler in handlers.items():
        while signal.getsignal(number) is not handler:
            try:
                signal.signal(number, handler)
            except BaseException as raised:  # by a handler that is in its place again
                error = raised
    if error is not None:
        raise error


def tell(pipe: int, report: Report) -> NoReturn:
    """In the child: say it and end. Nothing of the user's program goes on here."""
    try:
        told = json.dumps(report).encode()
        os.write(pipe, told if len(told) <= REPORT_BYTES else json.dumps({"reason": "too much to tell"}).encode())
    finally:
        os._exit(0)


def stay_inside(give_up: Callable[[str], NoReturn]) -> Callable[[str, tuple[Any, ...]], None]:
    """For sys.addaudithook, in a child that runs the user's loop on: what would reach beyond this process ends it."""

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(flags, int) and flags & WRITING and path != os.devnull and "__pycache__" not in str(path):
                give_up("the script writes a file before its next step")
        elif event in FORBIDDEN:
            give_up(f"the script does more than train before its next step ({event})")

    torch.serialization._open_zipfile_writer = lambda *_: give_up("the script saves a file before its next step")
    return audit


def end_child() -> None:
    """The training has come to its end: in a child that ran on with it, nothing is to follow."""
    if os.getpid() in _children:
        os._exit(0)


def _put_user_aside(pipe: int, seconds: float) -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    logging.disable(logging.CRITICAL)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in {0, 1, 2, *(int(entry.name) for entry in Path("/proc/self/fd").iterdir())} - {pipe, nothing}:
        with contextlib.suppress(OSError):
            os.dup2(nothing, number)
    _make_private()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    gc.disable()
    os.nice(10)
    torch.set_num_threads(1)


def unfit() -> str | None:
    """Why a child could not run the user's loop on, or None."""
    if is_together():
        return "several processes train together"
    if torch.cuda.is_initialized():
        return "a process that uses a GPU cannot be forked"
    return None


def unsafe(largest: int | None = None, threads: bool = False) -> str | None:
    """Why this process must not be forked now, or None. `largest`: bytes that it may hold, else half of what is free.
    `threads`: others may run, since the child is given up where a lock of theirs holds it."""
    if sys.platform != "linux":
        return "only on Linux"
    mine = threading.current_thread()
    for thread in () if threads else threading.enumerate():
        known = thread is mine or thread.name.startswith(OUR_THREADS) or type(thread).__module__.startswith("tqdm")
        if not known:
            return f"another thread runs ({thread.name})"
    handler = signal.getsignal(signal.SIGCHLD)
    theirs = str(getattr(handler, "__module__", "")).startswith("torch.utils.data")
    if handler not in (signal.SIG_DFL, signal.SIG_IGN, None) and not theirs:
        return "the script handles the end of child processes itself"
    left = memory_left()
    if _resident() > ((left or 0) * FREE_SHARE if largest is None else largest):
        return "the process is too large to be forked"
    if sum(last - first for first, last in _shared_maps()) > SHARED_LIMIT:
        return "the process shares too much memory with others"
    return None


def _shared_maps() -> list[tuple[int, int]]:
    """Where this process can write to memory that others see: semaphores, a loader's batches, mapped files."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        path = fields[5] if len(fields) > 5 else ""
        device = path.startswith("/dev/") and not path.startswith(("/dev/shm/", "/dev/zero"))
        if fields[1][1] == "w" and fields[1][3] == "s" and not device:
            first, _, last = fields[0].partition("-")
            found.append((int(first, 16), int(last, 16)))
    return found


def _make_private() -> None:
    """In the child: what it shares with the run becomes a copy of its own, in the same place."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
    for first, last in _shared_maps():
        held = ctypes.string_at(first, last - first)
        if library.mmap(first, last - first, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0) != first:
            raise OSError("shared memory could not be copied")
        ctypes.memmove(first, held, last - first)


def _resident() -> int:
    """Bytes of memory this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
