"""The live view from the side of the process whose terminal it is drawn on: started before the script, ended after it.

Nothing is imported in here that could change what a script does.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

from torchdoctor.attach.options import DISABLE_KEY, Options
from torchdoctor.launching import can_leave, own_module
from torchdoctor.opening import identity_of
from torchdoctor.view.panel import RESCUE, divide

OUTPUT, TERMINAL = 1, 2
PLAIN_TERMINALS = frozenset({"", "dumb", "unknown"})
START_SECONDS = 10.0
"""That the process may take to leave us; it does so before it imports anything."""
ANSWER_SECONDS = 0.3
"""A view that takes the terminal says so before it does, so one that has not by now will not any more."""
END_SECONDS = 3.0
"""After which one that has the terminal is ended by force."""
TAKEN, GIVEN_BACK = "taken", "given back"


@dataclass(frozen=True)
class Order:
    """What the process beside us gets to know."""

    options: Options
    since: float
    """folders of runs that were written before are not ours"""
    owner: int
    rows: int | None = None
    alone: bool = False
    """what the script prints goes to a file"""

    def to_json(self) -> str:
        fields = {"since": self.since, "owner": self.owner, "rows": self.rows, "alone": self.alone}
        return json.dumps({"options": self.options.to_json(), **fields})

    @classmethod
    def from_json(cls, text: str) -> Order:
        fields = json.loads(text)
        return cls(Options.from_json(fields.pop("options")), **fields)


def can_be_drawn(rows: int | None = None) -> bool:
    """Whether the standard error is a terminal that can be divided, and we are in its foreground."""
    if rows == 0 or not can_leave() or os.environ.get("TERM", "") in PLAIN_TERMINALS or _is_cell():
        return False
    try:
        columns, height = os.get_terminal_size(TERMINAL)
        return os.tcgetpgrp(TERMINAL) == os.getpgrp() and divide(columns, height, rows) is not None
    except OSError:
        return False


def _is_cell() -> bool:
    """A `!command` in a notebook has a terminal whose output is kept in the cell, every picture of it. Kernels tell by
    the first; those that an editor starts by what IPython sets for programs in its cells."""
    told = os.environ
    return "JPY_PARENT_PID" in told or (told.get("TERM"), told.get("PAGER")) == ("xterm-color", "cat")


@contextlib.contextmanager
def opened_view(options: Options, since: float, rows: int | None) -> Iterator[OpenView | None]:
    """None where it could not be started. Whatever happens, the terminal is whole afterwards."""
    view = None
    with contextlib.suppress(OSError):
        view = _start(Order(options, since, os.getpid(), rows, _goes_to_file(OUTPUT)))
    try:
        yield view
    finally:
        if view is not None:
            view.close()


class OpenView:
    """A process that draws as soon as something is recorded. `close` waits until it has given the terminal back."""

    def __init__(self, ending: int, answers: int) -> None:
        self._ending, self._answers = ending, answers
        self._files = [identity_of(file) for file in (ending, answers)]
        self._owner = os.getpid()
        self._closed = False

    def close(self) -> None:
        """In a process that was forked from its own it does nothing. A socket that is shut down is heard of whoever
        else holds it, and where nobody hears it no SIGPIPE comes back, which a script may have made deadly."""
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        if [identity_of(file) for file in (self._ending, self._answers)] != self._files:
            return  # the script has closed them, which ends the view; their numbers may be somebody else's now
        with contextlib.suppress(OSError), socket.socket(fileno=self._ending) as ending:
            ending.shutdown(socket.SHUT_RDWR)
        try:
            self._wait()
        finally:
            os.close(self._answers)

    def _wait(self) -> None:
        told, hangs, until = b"", False, time.monotonic() + ANSWER_SECONDS
        while select.select([self._answers], [], [], max(0.0, until - time.monotonic()))[0]:
            piece = os.read(self._answers, 4096)
            if not piece:
                break  # it has ended
            if not told:
                until = time.monotonic() + END_SECONDS
            told += piece
        else:
            hangs = True
        last = next(reversed(told.decode().splitlines()), "")
        if not last.startswith(TAKEN):
            return
        with contextlib.suppress(OSError):
            if hangs:  # its number is still its own, since its end of the pipe is open
                os.kill(int(last.split()[1]), signal.SIGKILL)
            os.write(TERMINAL, RESCUE.encode())


def _start(order: Order) -> OpenView | None:
    ours, theirs = (end.detach() for end in socket.socketpair())
    answer_read, answer_write = os.pipe()
    command = own_module("torchdoctor.view.companion", order.to_json(), leaving="group")
    started = {"env": {**os.environ, DISABLE_KEY: "1"}, "timeout": START_SECONDS, "check": True}
    try:
        subprocess.run(command, stdin=theirs, stdout=answer_write, **started)
    except (OSError, subprocess.SubprocessError):
        os.close(ours)
        os.close(answer_read)
        return None
    finally:
        os.close(theirs)
        os.close(answer_write)
    return OpenView(ours, answer_read)


def _goes_to_file(stream: int) -> bool:
    """A pipe does not count: what it leads to may write on the terminal."""
    try:
        kind = os.fstat(stream)
    except OSError:
        return True
    return stat.S_ISREG(kind.st_mode) or (stat.S_ISCHR(kind.st_mode) and not os.isatty(stream))
