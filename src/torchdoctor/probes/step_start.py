"""What a step began with, kept until the next one begins: the batches that a loader gave, and torch's random state.

Both are what it takes to run the step again. Batches are kept as they came, without a copy, and no longer than the
loop itself would keep them but for one. The random state (5 KB) is taken only in loops that are seen to draw from it
between an update and the backward that follows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BATCHES = 2
"""Frameworks fetch one batch ahead of the one they train on."""
MOST = 64
"""Batches of a step that accumulates gradients; of more the last are kept."""
BYTES = 256 << 20
"""Of all batches but the newest."""

_state = torch.default_generator.get_state


class StepStart:
    def __init__(self) -> None:
        self.batches: list[Any] = []
        """newest last"""
        self.random: Tensor | None = None
        self.draws = True
        """the loop draws random numbers between an update and the next backward, as far as is known"""
        self.device_random: dict[int, Tensor] = {}
        """of CUDA's generators, by device; for a step that is run again in another process"""
        self._bytes = 0
        self.lead = 0
        """batches that the loop fetches before it needs them, as far as is known"""
        self.ahead = 0
        """of those, how many there are between this step and the next"""
        self._learned = False
        self._walks: list[tuple[str, int]] = []
        """loader and walk of each of the batches"""
        self._levels: dict[int, list[int]] = {}
        """of each walk: how many batches it gave before each of the first backwards that followed one"""
        self._seen: dict[int, int] = {}

    @property
    def is_learned(self) -> bool:
        """Whether the lead was seen, and is not only taken to be none."""
        return self._learned

    def fetched(
        self, batch: Any, tensors: list[Tensor], backwards: int, walk: tuple[str, int] = ("", 0), before: int = 0
    ) -> None:
        """A loader gave a batch, after so many backwards without an update. `walk`: the loader's name and which of the
        times it is walked through; `before`: backwards in all."""
        self.ahead = self.lead
        if not self._learned:
            self._learn(walk[1], before)
        size = sum(t.numel() * t.element_size() for t in tensors)
        self._bytes = self._bytes + size if backwards else size
        room = max(BATCHES, min(backwards + 1, MOST)) if self._bytes <= BYTES else 1
        self.batches.append(batch)
        self._walks.append(walk)
        if len(self.batches) > room:
            del self.batches[:-room], self._walks[:-room]
        if self.draws:
            self.random = _state()

    def _learn(self, walk: int, before: int) -> None:
        """Whoever fetches ahead takes more before the first backward than before the second."""
        levels = self._levels.setdefault(walk, [])
        if not levels or before != self._seen[walk]:
            levels.append(0)
            self._seen[walk] = before
        levels[-1] += 1
        if len(levels) > 2:
            self.lead, self._learned = max(0, levels[0] - levels[1]), True
            self._levels, self._seen = {}, {}

    def exhausted(self) -> None:
        """The loader has no more: what was fetched ahead is used up in the step that follows."""
        self.ahead = 0

    def of_this_walk(self) -> list[Any]:
        """The batches, without those of an earlier walk through the same loader."""
        latest = dict(self._walks)
        return [b for b, (name, walk) in zip(self.batches, self._walks, strict=True) if latest[name] == walk]

    def updated(self) -> None:
        """An update is over: the next step begins."""
        if self.draws:
            self.random = _state()

    def look(self) -> None:
        """A step begins that is looked at closely."""
        self.draws = True
        self.random = _state()

    def compare(self) -> None:
        """The first backward of such a step begins: did the forward pass draw?"""
        if self.random is not None and torch.equal(self.random, _state()):
            self.draws = False
            self.random = None
