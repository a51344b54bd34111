"""A recorder that creates its directory when training begins, and keeps what came before it.

A process that imports torch and never trains leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchdoctor.attach import guard
from torchdoctor.attach.options import Options
from torchdoctor.attach.places import caller
from torchdoctor.attach.ranks import default_name, free_name, take_place, world_size
from torchdoctor.facts import Fact
from torchdoctor.run import Run

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session
    from torchdoctor.store.writer import Recorder

WAITING_CALLS = 20_000


class LateRecorder:
    """Same calls as the store's recorder; before `start` they wait, afterwards they pass straight through."""

    def __init__(self, options: Options, rank: int) -> None:
        self._options = options
        self._rank = rank
        self._waiting: list[tuple[str, tuple[Any, ...]]] = []
        self._recorder: Recorder | None = None
        self._dropped = 0
        self.name = options.name or default_name()

    @property
    def started(self) -> bool:
        return self._recorder is not None

    @property
    def directory(self) -> Path:
        return self._options.directory(self.name)

    @property
    def dropped(self) -> dict[str, int]:
        dropped = dict(self._recorder.dropped) if self._recorder else {}
        if self._dropped:
            dropped["before training"] = self._dropped
        return dropped

    def start(self, session: Session, *, anew: bool = False) -> None:
        """Make the directory. `anew`: in no case one that holds a run already."""
        from torchdoctor.store.environment import describe
        from torchdoctor.store.writer import Recorder

        if self._options.name is None or anew:
            self.name = free_name(Path(self._options.out), self.name)
        else:
            self.name, self._rank = take_place(self._options)
            session.rank = self._rank
        info = describe(sys.argv, on_git=lambda git: self.update_info(git=git))
        info["name"] = self.name
        info["seeds"] = {"torch": torch.initial_seed(), "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED")}
        info["torch_threads"] = torch.get_num_threads()
        info["overhead_budget"] = session.governor.budget
        info["world_size"] = world_size()
        recorder = Recorder.create(
            self.directory, info, cap_bytes=self._options.cap_bytes, rank=self._rank, locate=locate_training
        )
        self._recorder = recorder
        for name, arguments in self._waiting:
            getattr(recorder, name)(*arguments)
        self._waiting.clear()
        self.scalar = recorder.scalar  # type: ignore[method-assign] - the hot path pays for no extra call
        self.scalars = recorder.scalars  # type: ignore[method-assign]
        self.fact = recorder.fact  # type: ignore[method-assign]
        self.matrix = recorder.matrix  # type: ignore[method-assign]
        self.histogram = recorder.histogram  # type: ignore[method-assign]

    def scalar(self, name: str, step: int, value: float, key: str = "") -> None:
        self._wait("scalar", name, step, value, key)

    def scalars(self, rows: Sequence[tuple[str, str, int, float]]) -> None:
        self._wait("scalars", rows)

    def matrix(self, step: int, columns: tuple[str, ...], values: dict[str, NDArray[np.float32]]) -> None:
        self._wait("matrix", step, columns, values)

    def histogram(self, step: int, signal_name: str, columns: tuple[str, ...], counts: NDArray[Any]) -> None:
        self._wait("histogram", step, signal_name, columns, counts)

    def fact(self, fact: Fact, step: int, subject: str = "") -> None:
        self._wait("fact", fact, step, subject)

    def _wait(self, name: str, *arguments: Any) -> None:
        if self._recorder is not None:  # a callback that was made before the start
            getattr(self._recorder, name)(*arguments)
        elif len(self._waiting) < WAITING_CALLS:
            self._waiting.append((name, arguments))
        else:
            self._dropped += 1

    def update_info(self, **fields: Any) -> None:
        if self._recorder:
            self._recorder.update_info(**fields)

    def run(self) -> Run:
        """The live view."""
        assert self._recorder is not None
        return self._recorder.run()

    def stored_run(self) -> Run:
        """All that was recorded, after `close`: from the disk, or from memory where the disk lacks a part of it."""
        from torchdoctor.errors import RunError
        from torchdoctor.store.reader import open_run

        assert self._recorder is not None
        if self._recorder.damage is None:
            with contextlib.suppress(RunError, OSError):
                return open_run(self.directory)
        return self._recorder.run(finished=True)

    def flush(self, patience: float) -> None:
        if self._recorder:
            self._recorder.flush(patience)

    def close(self, status: str) -> None:
        if self._recorder:
            self._recorder.close(status)


def locate_training() -> tuple[str, int] | None:
    """File and line in the user's code that the training thread is executing; called from another thread."""
    thread = guard.STATE.thread or threading.main_thread().ident
    frame = sys._current_frames().get(thread or 0)
    place = caller(frame) if frame is not None else None
    return None if place is None else (place.file, place.line)
