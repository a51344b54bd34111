"""In the process of one start: every operation of torch, with a digest of what went in and of what came out.

Two such traces, put beside each other, show the first operation in which two starts differ. Memory as it is found
(torch.empty) counts for nothing until it is written to, and so does what an operation only overwrites.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from torchdoctor.attach.importing import after_import
from torchdoctor.attach.script import execute
from torchdoctor.attach.target import Target
from torchdoctor.experiments.overrides import Overrides
from torchdoctor.experiments.seeding import Applied, Changes

MOST_ENTRIES = 2_000_000
"""Operations that one trace holds."""
UNWRITTEN = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "resize_")
LIFTED = "lift_fresh"
"""By which torch.tensor(...) takes data in: the same tensor by its schema, and yet a beginning."""
RANDOM, BACKWARD, SOURCE = 1, 2, 4
COLUMNS = ("step", "operator", "place", "numbers", "given", "made", "flags")
"""Of an entry: the step, the operation, the user's line, its arguments that are no tensors, the tensors that it reads,
those that it writes or gives, and what kind it is."""


class Trace:
    """What is kept: numbers in columns, and the texts that they stand for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[tuple[int, int, int, int, int, int, int]] = []
        self._texts: dict[str, int] = {}
        self.pid = os.getpid()

    @property
    def full(self) -> bool:
        return len(self.rows) >= MOST_ENTRIES

    def number(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))

    def write(self) -> None:
        columns = np.array(self.rows, np.int64).reshape(-1, len(COLUMNS))
        with self.path.open("wb") as file:
            np.save(file, columns, allow_pickle=False)
        self.path.with_suffix(".json").write_text(json.dumps(list(self._texts)))

    def leave(self) -> NoReturn:
        """What was to be seen was seen; nothing of the script runs any more."""
        if os.getpid() == self.pid:
            self.write()
        os._exit(0)


class Steps:
    """Counts updates, and begins and ends the trace. An optimizer that is called more often than others counts."""

    def __init__(self, trace: Trace, first: int, last: int) -> None:
        self.trace, self.first, self.last = trace, first, last
        self._counts: dict[int, int] = {}
        self.now = -1
        """the step that runs; -1 until a module is called for the first time"""
        self._mode: Any = None

    def place(self, _torch: Any) -> None:
        from torch.nn.modules.module import register_module_forward_pre_hook
        from torch.optim.optimizer import register_optimizer_step_post_hook

        register_module_forward_pre_hook(lambda _module, _args: self._called())
        register_optimizer_step_post_hook(self._updated)
        if self.first <= 0:
            self._begin()

    def _called(self) -> None:
        self.now = max(self.now, 0)

    def _begin(self) -> None:
        from torchdoctor.experiments.trace_mode import TraceMode

        if self._mode is None:
            self._mode = TraceMode(self.trace, self)
            self._mode.__enter__()

    def _updated(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if os.getpid() != self.trace.pid:
            return
        self._counts[id(optimizer)] = self._counts.get(id(optimizer), 0) + 1
        self.now = max(self._counts.values())
        if self.now >= self.first:
            self._begin()
        if self.now > self.last or self.trace.full:
            self.trace.leave()


def trace_script(request: dict[str, Any]) -> int:
    """The whole process: it ends with the trace written, when the last step was seen or the script is over."""
    asked = request["trace"]
    trace = Trace(Path(asked["file"]))
    if request["override"]:
        Overrides(request["seed"]).place()
    changes = Changes(**request["changes"])
    if changes != Changes():
        after_import("torch", Applied(changes).place)
    after_import("torch", Steps(trace, asked["first"], asked["last"]).place)
    with contextlib.suppress(BaseException):
        execute(Target(request["kind"], request["what"], tuple(request["arguments"])))
    trace.leave()
