"""The runs in a folder: listed from their run.json and file sizes alone, and removed without harm to anything else."""

from __future__ import annotations

import fnmatch
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchdoctor.errors import NotARunError, RunError
from torchdoctor.last_seen import RUNNING
from torchdoctor.store.info import read_info, read_status
from torchdoctor.store.names import COMPANIONS, RUN_FILE, is_ours


@dataclass(frozen=True)
class RunEntry:
    """One line of a list of runs."""

    path: Path
    name: str
    started: float | None
    """seconds since 1970"""
    status: str
    """finished, interrupted, crashed, running, or died (its process is gone and never said why)"""
    steps: int
    size_bytes: int
    script: str = ""
    """the first word of its command line"""
    arguments: str = ""
    """the words after it"""


def list_runs(folder: str | os.PathLike[str]) -> list[RunEntry]:
    """The runs in a folder, oldest first. What is not a run, or cannot be read, is not listed."""
    found = []
    try:
        children = sorted(p for p in Path(folder).iterdir() if (p / RUN_FILE).is_file())
    except OSError:
        return []
    for path in children:
        try:
            info = read_info(path / RUN_FILE)
            found.append(_entry(path, info))
        except (RunError, OSError):
            continue
    return sorted(found, key=lambda e: (e.started or 0.0, e.name))


def _entry(path: Path, info: dict[str, Any]) -> RunEntry:
    started, steps, argv = info.get("started"), info.get("steps"), info.get("argv")
    words = [w for w in argv if isinstance(w, str)] if isinstance(argv, list) else []
    return RunEntry(
        path,
        path.name,
        float(started) if isinstance(started, int | float) else None,
        read_status(path / RUN_FILE, info),
        steps if isinstance(steps, int) else 0,
        _size(path),
        words[0] if words else "",
        " ".join(words[1:]),
    )


def _size(folder: Path) -> int:
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_size
            elif entry.is_dir(follow_symlinks=False):
                total += _size(Path(entry.path))
    return total


def remove_run(path: str | os.PathLike[str]) -> None:
    """Delete a run's folder. RunError, and nothing is touched, if it is no run, still runs, or holds anything else."""
    folder = Path(path)
    if folder.is_symlink():
        raise NotARunError(f"{folder} is a link; remove the run at {folder.resolve()} itself")
    if not folder.is_dir():
        raise NotARunError(f"there is no run at {folder}; `torchdoctor runs` lists the runs that are there")
    info = read_info(folder / RUN_FILE)
    if read_status(folder / RUN_FILE, info) == RUNNING:
        raise RunError(f"{folder} is still being recorded; stop that training first")
    strange = sorted(e.name for e in os.scandir(folder) if not _belongs(e))
    if strange:
        raise RunError(
            f"{folder} also holds what torchdoctor did not write ({', '.join(strange[:3])}); move that away first"
        )
    shutil.rmtree(folder)


def _belongs(entry: os.DirEntry[str]) -> bool:
    if entry.is_symlink():
        return False
    return is_ours(entry.name) or any(fnmatch.fnmatch(entry.name, pattern) for pattern in COMPANIONS)
