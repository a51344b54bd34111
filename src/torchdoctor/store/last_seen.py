"""How each rank of a run stands or ended: its status, its last step, the line it was at and its exception.

Read from the small files of a run alone, without its data, so that the ranks can be set side by side at no cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchdoctor.errors import RunError
from torchdoctor.last_seen import LastSeen, ProcessEnding
from torchdoctor.store.ending import FIELD
from torchdoctor.store.heartbeat import read_heartbeat
from torchdoctor.store.info import read_info, read_status
from torchdoctor.store.names import run_file
from torchdoctor.store.trusted import build

MAX_TEXT, MAX_WORD = 2000, 64


def last_seen(folder: Path, rank: int) -> LastSeen | None:
    """None where the rank has no run.json that can be read."""
    path = folder / run_file(rank)
    try:
        info = read_info(path)
    except (RunError, OSError):
        return None
    status, heartbeat = read_status(path, info), read_heartbeat(folder, rank)
    step, when, stood = _whole(info.get("steps"), less=1), _number(info.get("ended")), None
    file, line = None, None
    if heartbeat is not None:
        step, file, line = max(heartbeat.step, -1), heartbeat.file, heartbeat.line
        seen, advanced = _number(heartbeat.time), _number(heartbeat.advanced)
        if seen is not None and advanced is not None:
            stood = max(0.0, seen - advanced)
        when = when if when is not None else seen
    error = info.get("exception")
    error = error if isinstance(error, Mapping) else {}
    if isinstance(error.get("file"), str):
        file, line = error["file"], error.get("line")
    return LastSeen(
        rank,
        status,
        step if step is not None and step >= 0 else None,
        when,
        stood,
        file[:MAX_TEXT] if file is not None else None,
        line if isinstance(line, int) else None,
        _text(error.get("type")),
        _text(error.get("message")),
        build(ProcessEnding, info.get(FIELD), MAX_WORD, 1),
    )


def last_seen_of_all(folder: Path, ranks: Sequence[int]) -> list[LastSeen]:
    return [seen for rank in ranks if (seen := last_seen(folder, rank)) is not None]


def _whole(value: Any, less: int) -> int | None:
    return value - less if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e15 and math.isfinite(value) else None


def _text(value: Any) -> str | None:
    return value[:MAX_TEXT] if isinstance(value, str) else None
