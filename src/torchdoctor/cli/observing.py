"""Start the process that observes how a training ends, and dismiss it once the verdict has been told.

It is started before the script, so that no script meets it among its children, in its signals or in its files.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchdoctor.attach.options import DISABLE_KEY
from torchdoctor.attach.ranks import is_first_here, speaks
from torchdoctor.attach.target import COMMAND
from torchdoctor.launching import birth_of, can_leave, own_module
from torchdoctor.store.watched import program_of

if TYPE_CHECKING:
    from torchdoctor.cli.running import Request

START_SECONDS = 10.0
"""That the process may take to leave us; it does so before it imports anything."""


@contextlib.contextmanager
def observed(request: Request, since: float) -> Iterator[None]:
    """Whatever ends this process inside of the block, the run is concluded by the process beside it.

    One observer serves all ranks on a machine. There is none where it could not be started: then a run that is killed
    is readable, but nobody says how it ended.
    """
    owner, observer = os.getpid(), None
    _RUNNING.clear()
    if can_leave() and is_first_here():
        with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
            observer = _Observer(request, since)
            _RUNNING.append(observer)
    try:
        yield
    finally:
        if observer is not None and os.getpid() == owner:
            observer.dismiss()


def dismiss_observer() -> None:
    """End the process beside this one: another program takes our place, and there is nothing of ours to tell."""
    for observer in _RUNNING:
        observer.dismiss()


class _Observer:
    def __init__(self, request: Request, since: float) -> None:
        order = {
            "owner": (os.getpid(), birth_of(os.getpid()), program_of(os.getpid())),
            "since": since,
            "speaks": speaks(),
            "launches": request.target.kind == COMMAND,
            "options": request.options.to_json(),
        }
        started = subprocess.run(
            own_module("torchdoctor.observer", leaving="telling"),
            input=json.dumps(order).encode() + b"\n" + pickle.dumps(request),
            stdout=subprocess.PIPE,
            env={**os.environ, DISABLE_KEY: "1"},
            timeout=START_SECONDS,
            check=True,
        )
        self._pid = int(started.stdout)
        self._born = birth_of(self._pid)

    def dismiss(self) -> None:
        """It holds nothing that would have to be put away, so it is ended by force."""
        if self._born is not None and birth_of(self._pid) == self._born:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)


_RUNNING: list[_Observer] = []
"""The observer of this process, if there is one."""
