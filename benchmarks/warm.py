"""`torchdoctor run` in a fork of this process, which has its imports behind it: seconds saved on each of thousands.

The child runs the same command line on the same code. The interpreter's start, the imports and the seed of hashes are
not its own, and handlers of atexit do not run.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import torch

import torchdoctor.cli

POLL_SECONDS = 0.02
PRELOADED = (
    *("scipy.stats", "sklearn.datasets", "sklearn.model_selection"),
    *("torchdoctor.attach.attachment", "torchdoctor.attach.install", "torchdoctor.report.json"),
    *("torchdoctor.store.environment", "torchdoctor.store.reader", "torchdoctor.store.writer"),
)


def preload() -> None:
    """What most scripts of the zoo import, and torchdoctor as it is now: it may change on disk meanwhile."""
    for name in PRELOADED:
        importlib.import_module(name)
    torch.set_num_threads(1)


def run(arguments: list[str], folder: Path, environment: dict[str, str], timeout: float) -> tuple[int | None, str]:
    """Exit status (None: it took longer than `timeout` seconds) and what it wrote to stderr."""
    pid = os.fork()
    if pid == 0:
        _become(arguments, folder, environment)
    late, done, status = time.monotonic() + timeout, 0, 0
    try:
        while not done and time.monotonic() < late:
            time.sleep(POLL_SECONDS)
            done, status = os.waitpid(pid, os.WNOHANG)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # itself if it is late, and what it started and left
        if not done:
            os.waitpid(pid, 0)
    said = (folder / "stderr").read_text(errors="replace")
    return (os.waitstatus_to_exitcode(status) if done else None), said


def _become(arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
    status = 1
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.update(environment)
        np.random.seed()
        torch.set_num_threads(1)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["torchdoctor", *arguments]
        torchdoctor.cli.main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
