"""How a process ended that could not say so itself, as another process observed it and added it to its run.json."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchdoctor.errors import RunError
from torchdoctor.last_seen import CRASHED, DIED, FINISHED, RUNNING, ProcessEnding
from torchdoctor.store.documents import write_json
from torchdoctor.store.files import replace_file
from torchdoctor.store.info import read_info

FIELD = "ending"
"""of run.json"""


def of_wait_status(status: int | None, out_of_memory: bool = False) -> ProcessEnding:
    """From what wait() gives; None where nobody could tell."""
    if status is None:
        return ProcessEnding()
    if not status & 0x7F:
        return ProcessEnding(status=status >> 8 & 0xFF)
    name = signal_name(status & 0x7F)
    return ProcessEnding(signal=name, out_of_memory=out_of_memory and name == "SIGKILL")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def mark_ending(path: Path, process: Mapping[str, Any], ending: ProcessEnding) -> bool:
    """Write the ending into a run.json whose process never closed it, or closed it as finished and then failed (of
    sys.exit(3) a process sees nothing when its record is closed). False if the file is closed or another's.
    """
    try:
        data = read_info(path)
        failed_late = data.get("status") == FINISHED and bool(ending.status)
        if data.get("process") != process or not (data.get("status") == RUNNING or failed_late):
            return False
        sessions = data.get("sessions")
        closed = {"status": CRASHED if failed_late else DIED, "ended": time.time()}
        if isinstance(sessions, list) and sessions and isinstance(sessions[-1], dict):
            sessions[-1].update(closed)
        replace_file(path, write_json({**data, **closed, FIELD: asdict(ending)}, indent=1).encode(), shared=True)
    except (RunError, OSError, ValueError):
        return False
    return True
