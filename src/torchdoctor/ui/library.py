"""The folder of runs as the server sees it: found by name, opened when they change, examined in a pool of threads."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from torchdoctor.engine import examine
from torchdoctor.errors import NotARunError, TorchdoctorError
from torchdoctor.last_seen import RUNNING
from torchdoctor.run import Run
from torchdoctor.settings import Settings
from torchdoctor.shelf import RECORD, is_run, newest_first
from torchdoctor.store.journal import JOURNAL
from torchdoctor.store.listing import RunEntry
from torchdoctor.store.reader import open_run
from torchdoctor.telling import Opened, tell
from torchdoctor.ui.glance import Glance, take_glance

log = logging.getLogger("torchdoctor")

KEPT_OPEN = 4
"""Runs held in memory; each is a few megabytes."""
KEPT_GLANCES = 5000
EXAMINERS = 2
"""Threads that examine: more would take the cores of the training that is looked at."""
SHARE = 0.2
"""Of the time that a run which still trains is examined again, at most; what it last took is the measure."""
SPACING = 2.0
"""Seconds from one examination of a run to the next, at least."""

T = TypeVar("T")


@dataclass(frozen=True)
class Made(Generic[T]):
    """Something that was made of a run, and of which state of it."""

    stamp: str
    value: T | None
    """None where making it failed"""
    why: str = ""
    seconds: float = 0.0
    ended: float = 0.0


class Kept(Generic[T]):
    """The newest of something for each run, made in a pool. Asking never waits; what is old is given meanwhile."""

    def __init__(self, pool: ThreadPoolExecutor, most: int, make: Callable[[str], T]) -> None:
        self._pool, self._most, self._make = pool, most, make
        self._made: OrderedDict[str, Made[T]] = OrderedDict()
        self._under_way: set[str] = set()
        self._lock = threading.Lock()

    def get(self, name: str, stamp: str) -> tuple[Made[T] | None, bool]:
        """What there is, and whether a newer one is on its way or due."""
        with self._lock:
            made = self._made.get(name)
            if made is not None and made.stamp == stamp:
                return made, False
            wait = 0.0 if made is None else max(SPACING, made.seconds / SHARE) - (time.monotonic() - made.ended)
            if name not in self._under_way and wait <= 0:
                self._under_way.add(name)
                self._pool.submit(self._work, name, stamp)
            return made, True

    def _work(self, name: str, stamp: str) -> None:
        begun = time.monotonic()
        value, why = None, ""
        try:
            value = self._make(name)
        except TorchdoctorError as error:
            why = str(error)
        except Exception as error:  # whatever a damaged run does must not stop the page
            why = f"this run could not be examined ({type(error).__name__}); torchdoctor diagnose says more"
            log.warning("%s: %s", name, why, exc_info=True)
        ended = time.monotonic()
        with self._lock:
            self._made[name] = Made(stamp, value, why, ended - begun, ended)
            self._made.move_to_end(name)
            self._under_way.discard(name)
            while len(self._made) > self._most:
                self._made.popitem(last=False)


class Library:
    """Runs are known by the name that they have in the folder, never by a path."""

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        self.folder = folder
        self._settings = settings or Settings()
        self._pool = ThreadPoolExecutor(EXAMINERS, thread_name_prefix="torchdoctor-ui")
        self._glances: Kept[Glance] = Kept(self._pool, KEPT_GLANCES, self._glance)
        self._told: Kept[Opened] = Kept(self._pool, KEPT_OPEN, self._tell)
        self._runs: OrderedDict[str, tuple[str, Run]] = OrderedDict()
        self._lock = threading.Lock()

    def entries(self) -> list[RunEntry]:
        """Newest first."""
        return newest_first(self.folder)

    def find(self, name: str) -> Path:
        """The folder of the run of that name. NotARunError where the list has none."""
        try:
            with os.scandir(self.folder) as held:
                known = {key_of(e.name): e.name for e in held if e.is_dir(follow_symlinks=False)}
        except OSError:
            known = {}
        if name not in known or not is_run(self.folder / known[name]):
            raise NotARunError("there is no run of that name here")
        return self.folder / known[name]

    def open(self, name: str) -> tuple[str, Run]:
        """The run as its files are now, and the stamp of that state."""
        folder = self.find(name)
        stamp = self._stamp_of(folder)
        with self._lock:
            held = self._runs.get(name)
            if held is not None and held[0] == stamp:
                self._runs.move_to_end(name)
                return held
        run = open_run(folder)
        with self._lock:
            self._runs[name] = (stamp, run)
            self._runs.move_to_end(name)
            while len(self._runs) > KEPT_OPEN:
                self._runs.popitem(last=False)
        return stamp, run

    def stamp(self, name: str) -> str:
        return self._stamp_of(self.find(name))

    def told(self, name: str, stamp: str | None = None) -> tuple[Made[Opened] | None, bool]:
        """`stamp` where it is at hand: looking for it costs more than all the rest."""
        return self._told.get(name, self.stamp(name) if stamp is None else stamp)

    def tell_now(self, name: str) -> Opened:
        """The same at once, for a page that shows nothing without it."""
        made, newer = self.told(name)
        return made.value if made is not None and made.value is not None and not newer else self._tell(name)

    def glance(self, entry: RunEntry) -> tuple[Made[Glance] | None, bool]:
        """By the time at which the record was written; while it trains, by all its files: the record lags behind."""
        try:
            running = entry.status == RUNNING
            stamp = stamp_of(entry.path) if running else str((entry.path / RECORD).stat().st_mtime_ns)
        except OSError:
            stamp = ""
        return self._glances.get(key_of(entry.name), stamp + entry.status)

    def _stamp_of(self, folder: Path) -> str:
        try:
            return stamp_of(folder)
        except OSError:
            raise NotARunError("that run is no longer there") from None

    def warm_up(self, task: Callable[[], object]) -> None:
        """Something slow that the first examination needs, before somebody waits for it."""
        self._pool.submit(task)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _tell(self, name: str) -> Opened:
        return tell(self.find(name), self.open(name)[1], self._settings)

    def _glance(self, name: str) -> Glance:
        run = open_run(self.find(name))
        return take_glance(run, examine(run, settings=self._settings))


def key_of(name: str) -> str:
    """A folder's name as an address can hold it: bytes that are no letters are shown as such."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def stamp_of(folder: Path) -> str:
    """Another one whenever a file of the run has changed."""
    with os.scandir(folder) as held:
        files = sorted(filter(None, map(_state, held)))
    return hashlib.blake2b(repr(files).encode("utf-8", "surrogateescape"), digest_size=9).hexdigest()


def _state(entry: os.DirEntry[str]) -> tuple[str, int, int] | None:
    """Files that are replaced as a whole may keep their size, so their time counts; a file may be gone meanwhile."""
    try:
        stat = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return entry.name, stat.st_size, stat.st_mtime_ns if entry.name in (RECORD, JOURNAL) else 0
