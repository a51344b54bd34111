"""Run a command that starts python by itself (torchrun, accelerate launch ...), and follow it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from torchdoctor.attach.options import ENVIRONMENT_KEY, Options
from torchdoctor.attach.script import INTERRUPTED_STATUS, Ending
from torchdoctor.attach.target import Target
from torchdoctor.errors import ScriptError
from torchdoctor.last_seen import CRASHED, FINISHED, INTERRUPTED

STARTUP = Path(__file__).parent / "startup"

SIGNAL_STATUS = 128
"""What a shell adds to the number of the signal that ended a process."""


def launch(target: Target, options: Options | None) -> Ending:
    """Run the command to its end, with everything attached that it starts; options None attaches nothing."""
    environment = dict(os.environ)
    if options is not None:
        paths = [str(STARTUP), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        environment[ENVIRONMENT_KEY] = replace(options, shared=True).to_json()
    try:
        process = subprocess.Popen(target.words, env=environment)
    except OSError as error:
        raise ScriptError(f"cannot start {target.what!r}: {error.strerror or error}") from error
    with _signals_go_to(process):
        code = process.wait()
    killed_by = -code if code < 0 else None
    if code in (-signal.SIGINT, INTERRUPTED_STATUS):
        return Ending(INTERRUPTED_STATUS, INTERRUPTED, signal=killed_by)
    status = code if code >= 0 else SIGNAL_STATUS - code
    return Ending(status, FINISHED if status == 0 else CRASHED, signal=killed_by)


@contextlib.contextmanager
def _signals_go_to(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals that would end us end the command instead, so that its verdict is still told."""

    def pass_on(number: int, _frame: FrameType | None) -> None:
        if not (number == signal.SIGINT and _terminal_sent_it()):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    passed = [s for s in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, s)]
    before = {getattr(signal, s): signal.signal(getattr(signal, s), pass_on) for s in passed}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _terminal_sent_it() -> bool:
    """A Ctrl-C at the terminal goes to every process in the foreground by itself."""
    try:
        return os.tcgetpgrp(sys.__stderr__.fileno()) == os.getpgrp()  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        return False
