"""open_run: a run directory as a Run. Trusts nothing in it and needs no end: a killed run reads to its last second."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torchdoctor.errors import NotARunError, RunError
from torchdoctor.last_seen import RUNNING
from torchdoctor.run import UNREAD, Run
from torchdoctor.store.blocks import Floats, Ints
from torchdoctor.store.ceiling import Ceiling
from torchdoctor.store.columns import numbers, vectors
from torchdoctor.store.digest import Name
from torchdoctor.store.history import History, State
from torchdoctor.store.info import read_info, read_status
from torchdoctor.store.last_seen import last_seen_of_all
from torchdoctor.store.ledger import FactLog
from torchdoctor.store.listing import RunEntry, list_runs, remove_run
from torchdoctor.store.names import RUN_FILE, FileName, list_names, rank_of_run_file, run_file
from torchdoctor.store.sessions import MovedError, Session, open_sessions
from torchdoctor.store.view import lazy_view

__all__ = ["Histograms", "RunEntry", "list_runs", "open_run", "ranks", "read_histograms", "remove_run"]


def open_run(path: str | os.PathLike[str], rank: int | None = None) -> Run:
    """The run recorded at a path, as one rank saw it, by default the first one there is. Signals are read when they are
    asked for; `info["ranks"]` says how each rank ended.

    A resumed run is one run: a session whose steps begin anew is put behind the one before it. NotARunError,
    NewerRunError or RunError, each with one sentence and the way out, where there is no such run.
    """
    folder = find_run(Path(path))
    if rank is None:
        rank = next(iter(ranks(folder)), 0)
    info = read_info(folder / RUN_FILE) if rank == 0 or (folder / RUN_FILE).exists() else {}
    status_file = folder / run_file(rank)
    if rank:
        known = ranks(folder)
        if rank not in known:
            raise RunError(f"{folder} has no rank {rank}; it holds {_say_ranks(known)}")
        info = {**info, **(read_info(status_file) if status_file.exists() else {})}
    archive = Archive(folder, rank)
    status = read_status(status_file, info)
    everybody = [
        (seen.after(archive.last_step) if seen.rank == rank else seen).to_dict()
        for seen in last_seen_of_all(folder, ranks(folder))
    ]
    seen, names = archive.facts().seen(), archive.names()
    info = {**info, "status": status, "path": str(folder), "steps": archive.steps, "ranks": everybody}
    info[UNREAD] = dict(archive.ceiling.left_out)
    return lazy_view(info, names, archive.state, seen, archive.steps, finished=status != RUNNING)


def find_run(path: Path) -> Path:
    """The folder of the run that a path means; NotARunError if it means none."""
    if path.name == RUN_FILE and path.is_file():
        path = path.parent
    if not path.exists():
        raise NotARunError(f"there is no {path}; `torchdoctor runs` lists the runs that are there")
    if not path.is_dir():
        raise NotARunError(f"{path} is a file, not a run; give the folder that `torchdoctor run` made")
    if any(rank_of_run_file(name) is not None for name in _names(path)):
        return path
    inside = list_runs(path)
    if inside:
        newest = max(inside, key=lambda entry: entry.started or 0.0)
        several = "a run" if len(inside) == 1 else f"{len(inside)} runs"
        raise NotARunError(f"{path} is a folder with {several} in it; the newest is {newest.path}")
    if not _names(path):
        raise NotARunError(f"{path} is empty; give a folder that `torchdoctor run` made")
    read_info(path / RUN_FILE)
    return path


def ranks(path: str | os.PathLike[str]) -> list[int]:
    """The ranks that recorded into a run."""
    names = _names(Path(path))
    found = {n.rank for n in map(FileName.parse, names) if n is not None}
    return sorted(found | {r for r in map(rank_of_run_file, names) if r is not None})


@dataclass(frozen=True)
class Histograms:
    """Histograms of one signal over steps, for one set of columns; bins as in signals.HISTOGRAM_EXPONENTS."""

    steps: Ints
    columns: tuple[str, ...]
    counts: Floats
    """(steps, columns, bins)"""


def read_histograms(path: str | os.PathLike[str], signal: str, rank: int = 0, most: int = 256) -> list[Histograms]:
    """A signal's histograms, at most `most` evenly chosen ones of each set of columns, the last among them."""
    folder = find_run(Path(path))
    groups: dict[tuple[tuple[str, ...], int], list[tuple[np.ndarray, np.ndarray]]] = {}
    sessions = open_sessions(folder, rank, Ceiling())
    for session, offset in zip(sessions, _offsets(sessions), strict=True):
        for file in session.histograms:
            if file.meta["signal"] != signal:
                continue
            group = groups.setdefault((tuple(file.meta["columns"]), file.meta["bins"]), [])
            group += [(numbers(b.column(0)) + offset, vectors(b.column(1))) for b in file.batches((1, 2))]
    found = []
    for (columns, bins), parts in ((group, parts) for group, parts in groups.items() if parts):
        steps = np.concatenate([s for s, _ in parts])
        keep = np.unique(np.linspace(0, len(steps) - 1, min(most, len(steps))).round().astype(int))
        rows = [row for _, values in parts for row in values]
        counts = np.stack([rows[i] for i in keep]).reshape(len(keep), len(columns), bins)
        found.append(Histograms(steps[keep], columns, counts))
    return found


class Archive:
    """All sessions of one rank. Looks at the folder anew when a digest has replaced what it was about to read."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder = folder
        self._rank = rank
        self._lock = threading.Lock()
        self._open()

    def _open(self) -> None:
        self.ceiling = Ceiling()
        self._sessions = open_sessions(self._folder, self._rank, self.ceiling)
        self._offsets = _offsets(self._sessions)
        ends = [s.last_step + o for s, o in zip(self._sessions, self._offsets, strict=True)]
        self.steps = max(ends, default=-1) + 1

    @property
    def last_step(self) -> int:
        """Of the last session, as its process counted; -1 where it has none."""
        return self._sessions[-1].last_step if self._sessions else -1

    def names(self) -> frozenset[Name]:
        return frozenset(name for session in self._sessions for name in session.names)

    def facts(self) -> FactLog:
        log = FactLog()
        for session, offset in zip(self._sessions, self._offsets, strict=True):
            session.read_facts(log, offset, self.ceiling)
        return log

    def state(self, name: Name) -> State | None:
        with self._lock:
            for _ in range(5):
                try:
                    return self._read(name)
                except MovedError:
                    self._open()
        return None

    def _read(self, name: Name) -> State | None:
        history: History | None = None
        for session, offset in zip(self._sessions, self._offsets, strict=True):
            if name in session.names:
                history = session.feed(history, name, offset)
        return None if history is None else history.state()


def _offsets(sessions: list[Session]) -> list[int]:
    """By how much each session's steps are moved, so that none begins before the one before it ends."""
    offsets, end = [], -1
    for session in sessions:
        offset = end + 1 - session.first_step if offsets and session.first_step <= end else 0
        offsets.append(offset)
        end = max(end, session.last_step + offset)
    return offsets


def _names(folder: Path) -> list[str]:
    try:
        return list_names(folder)
    except OSError as error:
        raise RunError(f"{folder} cannot be read: {error.strerror or error}; check its permissions") from error


def _say_ranks(known: list[int]) -> str:
    return f"rank {known[0]}" if len(known) == 1 else f"ranks {', '.join(map(str, known))}"
