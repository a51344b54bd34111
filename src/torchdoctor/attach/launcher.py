"""Run a command that starts python by itself (torchrun, accelerate launch ...), and know one's place among ranks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from torchdoctor.attach.options import ENVIRONMENT_KEY, Options
from torchdoctor.attach.script import CRASHED, FINISHED, INTERRUPTED, INTERRUPTED_STATUS, Ending
from torchdoctor.attach.target import Target
from torchdoctor.errors import ScriptError

STARTUP = Path(__file__).parent / "startup"

RANK_KEYS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
GROUP_KEYS = ("TORCHELASTIC_RUN_ID", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")
NODE_KEYS = ("GROUP_RANK", "SLURM_NODEID")
"""What torchrun, Open MPI, MPICH and Slurm put into the environment of the processes they start."""

SIGNAL_STATUS = 128
"""What a shell adds to the number of the signal that ended a process."""


def speaks(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the one of its group that talks to the user."""
    ranks = [environment[key] for key in RANK_KEYS if environment.get(key)]
    return not ranks or ranks[0] == "0"


def make_name(stem: str, environment: Mapping[str, str] = os.environ) -> str:
    """A name for the run that no other run has, and that all processes of one launch on one machine agree on.

    Processes of one launch have one parent (torchrun's agent, slurmstepd, orted): its start and number name the run.
    """
    if not any(environment.get(key) for key in GROUP_KEYS):
        return f"{stem}-{_stamp(time.time())}-{os.getpid()}"
    parent = os.getppid()
    started = _start_of(parent)
    when = _stamp(started) if started is not None else "launch"
    node = next((environment[key] for key in NODE_KEYS if environment.get(key)), "0")
    return f"{stem}-{when}-{parent}" + (f"-node{node}" if node != "0" else "")


def _stamp(seconds: float) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.localtime(seconds))


def _start_of(pid: int) -> float | None:
    """When a process started, in seconds since 1970; None where the system does not tell (no /proc)."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        booted = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
        return int(booted.split()[1]) + int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def launch(target: Target, options: Options | None) -> Ending:
    """Run the command to its end, with everything attached that it starts; options None attaches nothing."""
    environment = dict(os.environ)
    if options is not None:
        paths = [str(STARTUP), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        environment[ENVIRONMENT_KEY] = options.to_json()
    try:
        process = subprocess.Popen(target.words, env=environment)
    except OSError as error:
        raise ScriptError(f"cannot start {target.what!r}: {error.strerror or error}") from error
    with _signals_go_to(process):
        code = process.wait()
    if code in (-signal.SIGINT, INTERRUPTED_STATUS):
        return Ending(INTERRUPTED_STATUS, INTERRUPTED)
    status = code if code >= 0 else SIGNAL_STATUS - code
    return Ending(status, FINISHED if status == 0 else CRASHED)


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
