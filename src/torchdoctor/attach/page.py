"""The live page of this run, in a process that is none of ours: `run --live` names its address."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from torchdoctor.attach.options import DISABLE_KEY

SECONDS = 60.0
"""That its first line may take: it imports the server, beside a training that has the cores."""


def open_page(run: Path) -> str | None:
    """Its address; None where there can be none (no server is installed, no port is free)."""
    command = [sys.executable, "-m", "torchdoctor.ui.companion", str(run), str(os.getpid())]
    environment = {**os.environ, DISABLE_KEY: "1"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    first = done.stdout.decode(errors="replace").partition("\n")[0]
    return first if done.returncode == 0 and first.startswith("http://") else None
