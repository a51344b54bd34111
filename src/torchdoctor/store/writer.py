"""Recorder: takes what probes measure, in the training loop's time; a thread writes it, in its own.

What a caller does is append to a queue. The thread empties the queues about once a second, feeds the histories behind
the live view and appends to the run's files. A full queue drops and counts; a full disk, too. After create() no call
raises, and none waits for a disk. In a forked child a recorder takes everything and does nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from torchdoctor.errors import RunError
from torchdoctor.facts import Fact
from torchdoctor.run import Run
from torchdoctor.store import format as fmt
from torchdoctor.store.compaction import remove_leftovers
from torchdoctor.store.heartbeat import Locate, Pulse
from torchdoctor.store.info import RunInfo, is_being_written, prepare_folder, remove_empty
from torchdoctor.store.intake import Counts, Fresh, Intake, Row, Scalar, Write
from torchdoctor.store.ledger import MAX_SUBJECTS
from torchdoctor.store.names import SERIES
from torchdoctor.store.segments import SegmentSet
from torchdoctor.store.upkeep import Upkeep, deadline
from torchdoctor.store.view import view

log = logging.getLogger("torchdoctor")

FLUSH_SECONDS = 1.0
FIRST_FLUSH_SECONDS = 0.1
EARLY_SHARE = 0.1
"""A young run is flushed each time it has grown by this share, so that one that is killed soon loses little."""
AHEAD = 0.75
"""A flush starts at this part of its period, so that it is done within it on a slow disk or a busy machine."""
HEARTBEAT_SECONDS = 10.0
"""run.json is written this often, so that a list of runs knows the steps and that the run is alive."""
PATIENCE_SECONDS = {True: 1.0, False: 5.0}
"""close() gives up on a thread that got nothing done for so long, on the disk (which is stuck) or off it."""

_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


class Recorder:
    """Writes one run, from one process. Make it with `Recorder.create`."""

    def __init__(
        self, folder: Path, info: RunInfo, segments: SegmentSet, upkeep: Upkeep, flush_seconds: float, pulse: Pulse
    ) -> None:
        self.directory = folder
        self._info = info
        self._segments = segments
        self._upkeep = upkeep
        self._limits = segments.limits
        self._room = self._limits.queued_scalars
        self._flush_seconds = flush_seconds
        self._pulse = pulse
        self._created = time.monotonic()
        self._flushed = threading.Condition()
        self._flushes = 0
        self._scalars: deque[Scalar] = deque()
        self._rows: deque[Row] = deque()
        self._histograms: deque[Counts] = deque()
        self._facts: deque[Fresh] = deque()
        self._last_facts: dict[tuple[str, str], Fact] = {}
        self._lost: Counter[str] = Counter()
        self._intake = Intake(self._limits)
        self._writes: deque[Write] = deque()
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._closing = False
        self._inert = False
        self._said: set[str] = set()
        self._damage: str | None = None
        self._progress = time.monotonic()
        self._on_disk = False
        self._thread = threading.Thread(target=self._work, name="torchdoctor-recorder", daemon=True)

    @classmethod
    def create(
        cls,
        directory: Path,
        info: Mapping[str, Any],
        *,
        cap_bytes: int = 500_000_000,
        flush_seconds: float = FLUSH_SECONDS,
        rank: int | None = None,
        limits: fmt.Limits | None = None,
        locate: Locate = lambda: None,
    ) -> Recorder:
        """Start recording into a new folder, or go on in one that holds a run.

        `cap_bytes` bounds what this process writes. `rank` is RANK from the environment if not given. `locate`
        names the line that the training executes. RunError where the folder cannot be used.
        """
        folder = Path(directory)
        rank = _environment_rank() if rank is None else rank
        limits = limits or fmt.Limits()
        limits = replace(limits, segment_bytes=min(limits.segment_bytes, max(cap_bytes // 8, 1)))
        try:
            prepare_folder(folder)
            shared = is_being_written(folder, rank)
            if not shared:
                remove_leftovers(folder, rank)
            segments = SegmentSet(folder, rank, limits)
            run_info = RunInfo.begin(folder, rank, segments.session, info)
            run_info.write(run_info.render(0, {}, {}))
        except OSError as error:
            raise RunError(
                f"cannot write a run to {folder}: {error.strerror or error}; choose another place with --out DIR"
            ) from error
        upkeep = Upkeep(segments, cap_bytes, limits)
        if not shared:
            upkeep.condense_earlier()
        recorder = cls(folder, run_info, segments, upkeep, flush_seconds, Pulse(folder, rank, locate))
        _recorders.add(recorder)
        try:
            recorder._thread.start()
        except RuntimeError as error:
            remove_empty(folder, rank)
            raise RunError(
                f"cannot write a run to {folder}: the system cannot start a thread for writing ({error})"
            ) from error
        return recorder

    def scalar(self, name: str, step: int, value: float, key: str = "") -> None:
        """One number of a STEP signal."""
        if len(self._scalars) < self._room:
            self._scalars.append((name, key, step, value))
        else:
            self._lost["scalars: queue full"] += 1

    def scalars(self, rows: Sequence[Scalar]) -> None:
        """Numbers of several steps at once: name, key, step and value of each."""
        kept = rows[: max(0, self._room - len(self._scalars))]
        self._scalars.extend(kept)
        if len(kept) < len(rows):
            self._lost["scalars: queue full"] += len(rows) - len(kept)

    def matrix(self, step: int, columns: tuple[str, ...], values: Mapping[str, np.ndarray]) -> None:
        """One row of matrix signals: for each, float32 values of shape (len(columns),). Arrays are kept as given."""
        queue = self._rows
        try:
            size = 4 * len(columns) * len(values) + 1024
        except TypeError:
            self._lost["matrices: not one number a column"] += 1
            return
        if len(queue) * size >= self._limits.queued_bytes:
            self._lost["matrices: queue full"] += 1
            return
        queue.append((step, columns, values))  # type: ignore[arg-type]
        if len(queue) == self._limits.flush_rows:
            self._wake.set()

    def histogram(self, step: int, signal_name: str, columns: tuple[str, ...], counts: np.ndarray) -> None:
        """One histogram for each column: counts of shape (len(columns), signals.HISTOGRAM_BINS)."""
        if len(self._histograms) * getattr(counts, "nbytes", 0) >= self._limits.queued_bytes:
            self._lost["histograms: queue full"] += 1
        else:
            self._histograms.append((step, signal_name, columns, counts))

    def fact(self, fact: Fact, step: int, subject: str = "") -> None:
        """Written if it differs from the last one of its kind and subject."""
        try:
            key = (fact.kind, subject)
            if self._last_facts.get(key) == fact:
                return
        except Exception:
            self._lost["facts: cannot be compared"] += 1
            return
        if len(self._facts) >= self._limits.queued_facts:
            self._lost["facts: queue full"] += 1
            return
        if len(self._last_facts) >= MAX_SUBJECTS:
            self._last_facts.clear()
        self._last_facts[key] = fact
        self._facts.append((fact, step, subject, time.time()))

    def update_info(self, **fields: Any) -> None:
        """Change what run.json says. Written within a second."""
        with self._lock:
            self._info.update(fields)

    @property
    def damage(self) -> str | None:
        """Why the files lack something that was recorded; None where they hold all of it."""
        return self._damage

    @property
    def dropped(self) -> dict[str, int]:
        """What was not kept, by table and reason."""
        total = Counter(dict(self._lost))
        total.update(dict(self._intake.dropped))
        return dict(total)

    def run(self, finished: bool = False) -> Run:
        """All that was recorded up to now. A snapshot: it does not change while training goes on."""
        with self._lock:
            self._guarded("live view", self._drain)
            info = self._info.snapshot(self._intake.steps, self.dropped, self._upkeep.thinned)
            return view(info, self._intake.states(), self._intake.facts.seen(), self._intake.steps, finished)

    def flush(self, patience: float) -> bool:
        """Write what is queued now; False if the disk has not taken it after `patience` seconds."""
        if self._inert or self._closing or threading.current_thread() is self._thread:
            return False
        with self._flushed:
            wanted = self._flushes + 2  # the flush that is under way may have missed what was queued last
            self._wake.set()
            until = time.monotonic() + patience
            while self._flushes < wanted and time.monotonic() < until:
                self._wake.set()
                self._flushed.wait(0.01)
            return self._flushes >= wanted

    def close(self, status: str = "finished") -> None:
        """Write what is left and end the run. Returns within a second or so even if the disk does not answer."""
        if self._inert or self._closing:
            return
        with self._lock:
            self._info.end(status)
            self._closing = True
        self._wake.set()
        if threading.current_thread() is self._thread:
            return
        self._progress = time.monotonic()
        while self._thread.is_alive() and time.monotonic() - self._progress < PATIENCE_SECONDS[self._on_disk]:
            self._thread.join(0.02)
        if self._thread.is_alive():
            self._damaged("the disk does not answer")
        self._ignore_calls()

    def _work(self) -> None:
        begun = time.monotonic()
        while not self._closing:
            self._wake.wait(max(0.0, begun + AHEAD * self._period() - time.monotonic()))
            self._wake.clear()
            begun = time.monotonic()
            self._guarded("flush", self._flush)
            with self._flushed:
                self._flushes += 1
                self._flushed.notify_all()
            self._guarded("upkeep", self._keep_up)
        self._guarded("flush", self._flush)
        self._guarded("upkeep", self._upkeep.stop)
        self._guarded("close", self._segments.close)
        self._guarded("close", self._pulse.close)
        self._guarded("check", self._segments.check_files)
        self._guarded("info", self._write_info)

    def _period(self) -> float:
        """Seconds from one flush to the next."""
        early = max(FIRST_FLUSH_SECONDS, EARLY_SHARE * (time.monotonic() - self._created))
        return min(self._flush_seconds, early)

    def _guarded(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as error:
            self._lost[f"{what}: {type(error).__name__}"] += 1
            self._damaged(error.strerror or str(error))
        except Exception as error:
            self._lost[f"{what}: {type(error).__name__}"] += 1
            self._say(f"the recorder's {what} failed, and recording goes on without it: {error}")

    def _damaged(self, reason: str) -> None:
        self._damage = self._damage or reason
        self._say(f"recording is incomplete: {reason}")

    def _say(self, text: str) -> None:
        if text not in self._said and len(self._said) < 20:
            self._said.add(text)
            log.warning("%s (run %s)", text, self.directory)

    def _drain(self) -> None:
        """Empty the queues into batches and histories. Touches no file, so the lock is never held for a disk."""
        if self._inert:
            return
        intake = self._intake
        takes: tuple[tuple[str, deque[Any], Callable[[Sequence[Any]], None]], ...] = (
            ("facts", self._facts, intake.take_facts),
            ("scalars", self._scalars, intake.take_scalars),
            ("matrices", self._rows, intake.take_rows),
            ("histograms", self._histograms, intake.take_histograms),
        )
        for table, queue, take in takes:
            pop = queue.popleft
            events = [pop() for _ in range(len(queue))]
            if not events:
                continue
            self._progress = time.monotonic()
            try:
                take(events)
            except Exception as error:
                self._lost[f"{table}: {type(error).__name__}"] += len(events)
                self._say(f"{table} could not be recorded: {error}")
        held = sum(w.batch.nbytes for w in list(self._writes))
        for write in intake.writes:
            if held > 2 * self._limits.queued_bytes and write.table != SERIES:
                self._lost[f"{write.table}: not written in time"] += write.batch.num_rows
            else:
                self._writes.append(write)
                held += write.batch.nbytes
        intake.writes.clear()

    def _flush(self) -> None:
        with self._lock:
            self._drain()
        for _ in range(len(self._writes)):
            write = self._writes.popleft()
            with self._disk():
                written = self._write(write)
            if not written and write.table == SERIES:
                self._writes.append(write)  # without their names all scalars would be lost, so it is tried again
        if self._info.is_due(HEARTBEAT_SECONDS):
            self._write_info()
        with self._disk(), contextlib.suppress(OSError):  # a disk that takes nothing is reported with the data
            self._pulse.beat(self._intake.steps - 1)

    def _write(self, write: Write) -> bool:
        if self._upkeep.skips(write):
            return True
        if not self._upkeep.accepts(write):
            self._lost[f"{write.table}: over the cap"] += write.batch.num_rows
            self._say("the run has reached its size limit; further data are not written to disk")
            return False
        try:
            self._upkeep.note(self._segments.append(write.table, write.key, write.schema, write.batch))
        except Exception as error:
            self._segments.abandon(write.table, write.key)
            reason = getattr(error, "strerror", None) or str(error)
            self._lost[f"{write.table}: not written ({reason})"] += write.batch.num_rows
            self._damaged(reason)
            return False
        return True

    def _keep_up(self) -> None:
        if self._closing:
            return
        with self._lock:
            if not self._writes:
                self._upkeep.plan(self._intake)
        until = deadline(0.5 * AHEAD * self._flush_seconds)

        def stops() -> bool:
            self._progress = time.monotonic()
            return self._closing or until()

        with self._disk():
            self._upkeep.advance(stops)

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        """Around whatever may wait for a disk."""
        self._progress, self._on_disk = time.monotonic(), True
        try:
            yield
        finally:
            self._progress, self._on_disk = time.monotonic(), False

    def _write_info(self) -> None:
        with self._lock:
            text = self._info.render(self._intake.steps, self.dropped, self._upkeep.thinned)
        with self._disk():
            self._segments.check_folder()
            self._info.write(text)

    def _ignore_calls(self) -> None:
        nothing: Any = _Nothing()
        self._scalars = self._rows = self._histograms = self._facts = nothing

    def _become_inert(self) -> None:
        """In a forked child: the thread is not here, and locks may be held for ever.

        What was waiting is not given up: to free what belongs to a device ends the process.
        """
        self._inert = True
        _LEFT_BEHIND.append((self._writes, self._intake, self._scalars, self._rows, self._histograms, self._facts))
        self._ignore_calls()
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._flushed = threading.Condition()
        self._writes = deque()
        self._intake = Intake(self._limits)


_LEFT_BEHIND: list[Any] = []


class _Nothing:
    """A queue that is always empty."""

    def append(self, item: Any) -> None:
        pass

    def popleft(self) -> Any:
        raise IndexError

    def __len__(self) -> int:
        return 0


def _environment_rank() -> int:
    try:
        return max(0, int(os.environ.get("RANK", "0")))
    except ValueError:
        return 0


def _silence_child() -> None:
    for recorder in list(_recorders):
        recorder._become_inert()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_silence_child)
