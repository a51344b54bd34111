"""A start of a script that ends after its first updates: two of them are compared within seconds."""

from __future__ import annotations

import os
from collections.abc import Callable
from time import monotonic
from typing import Any


class FirstSteps:
    """`leave` ends the process; it is called before the update that is too many, or so many seconds after the first."""

    def __init__(self, updates: int, seconds: float, leave: Callable[[], None]) -> None:
        self._updates, self._seconds, self._leave = updates, seconds, leave
        self._begun: float | None = None
        self._made: dict[int, int] = {}
        """of each optimizer; one that makes more than others counts"""
        self._pid = os.getpid()

    def place(self, _torch: Any) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(self._before)

    def _before(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if os.getpid() != self._pid:
            return
        self._begun = self._begun or monotonic()
        if max(self._made.values(), default=0) >= self._updates or monotonic() > self._begun + self._seconds:
            self._leave()
        self._made[id(optimizer)] = self._made.get(id(optimizer), 0) + 1
