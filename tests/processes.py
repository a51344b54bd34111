"""Python and torchdoctor in processes of their own, one thread each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

Done = subprocess.CompletedProcess[str]


def run_python(*arguments: str, cwd: Path | None = None, timeout: float = 120, **environment: str) -> Done:
    """What it printed and its status; variables are added to the environment."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100", **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def torchdoctor_command(*arguments: str, cwd: Path | None = None, timeout: float = 120, **environment: str) -> Done:
    return run_python("-m", "torchdoctor", *arguments, cwd=cwd, timeout=timeout, **environment)
