"""The live page of this run, in a process that is none of ours: `run --live` names its address."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchdoctor.attach.options import DISABLE_KEY
from torchdoctor.launching import can_leave, own_module

SECONDS = 60.0
"""That its first line may take: it imports the server, beside a training that has the cores."""


def open_page(run: Path, settings: Mapping[str, Any]) -> str | None:
    """Its address; None where there can be none (no server is installed, no port is free, we are process 1)."""
    if not can_leave():
        return None
    read, write = os.pipe()
    try:
        words = (str(run), str(os.getpid()), json.dumps(settings))
        command = own_module("torchdoctor.ui.companion", *words, leaving="session")
        environment = {**os.environ, DISABLE_KEY: "1"}
        nowhere = subprocess.DEVNULL
        subprocess.run(command, stdin=nowhere, stdout=write, stderr=nowhere, env=environment, timeout=SECONDS)
        os.close(write)
        write = -1
        line = _read_line(read)
    except (OSError, subprocess.SubprocessError):
        return None
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)
    return line if line.startswith("http://") else None


def _read_line(pipe: int) -> str:
    """The first line and no more: a worker that the script forks meanwhile may hold the pipe open."""
    found, until = b"", time.monotonic() + SECONDS
    while b"\n" not in found and select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(pipe, 4096)
        if not piece:
            break
        found += piece
    return found.partition(b"\n")[0].decode(errors="replace")
