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
        self._walk = (-1, 0, 0)
        """of the loader that gave the last batch: which walk through it, how many in it, and backwards before it"""

    def fetched(self, batch: Any, tensors: list[Tensor], backwards: int, walk: int, before: int) -> None:
        """A loader gave a batch, after so many backwards without an update. `walk` tells apart the times that loaders
        are walked through, and `before` counts all backwards."""
        last, count, began = self._walk
        self._walk = (walk, count + 1, began) if walk == last else (walk, 1, before)
        size = sum(t.numel() * t.element_size() for t in tensors)
        self._bytes = self._bytes + size if backwards else size
        room = max(BATCHES, min(backwards + 1, MOST)) if self._bytes <= BYTES else 1
        self.batches.append(batch)
        if len(self.batches) > room:
            del self.batches[:-room]
        if self.draws:
            self.random = _state()

    def ahead(self, backwards: int) -> int:
        """Batches that the loader has given and the loop, after so many backwards in all, has not used yet."""
        _, count, began = self._walk
        return max(0, count - (backwards - began))

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
