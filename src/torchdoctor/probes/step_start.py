"""What a step began with, kept until the next one begins: the batches that a loader gave, and torch's random state.

Both are what it takes to run the step again. Batches are kept as they came, without a copy. Once their update is over
they are kept only as long as the script has them, since it may leave its loop at any step. The random state
(5 KB) is taken only in loops that are seen to draw from it between an update and the backward that follows.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

BATCHES = 2
"""Frameworks fetch one batch ahead of the one they train on."""
MOST = 64
"""Batches of a step that accumulates gradients; of more the last are kept."""
BYTES = 256 << 20
"""Of all batches but the newest."""

_state = torch.default_generator.get_state


class _Batch:
    def __init__(self, batch: Any, walk: tuple[str, int]) -> None:
        self.walk = walk
        """the loader, and which of the times it is walked through"""
        self._batch = batch
        self._leaves: list[Callable[[], Any]] | None = None

    def let_go(self) -> None:
        """Keep it no longer than the script does."""
        if self._leaves is None:
            leaves, self._structure = pytree.tree_flatten(self._batch)
            self._batch, self._leaves = None, [_refer(leaf) for leaf in leaves]

    def get(self) -> tuple[Any] | None:
        """The batch, in a tuple of its own; None if it is gone."""
        if self._leaves is None:
            return (self._batch,)
        leaves = [leaf() for leaf in self._leaves]
        return None if any(leaf is _GONE for leaf in leaves) else (pytree.tree_unflatten(leaves, self._structure),)


_GONE = object()


def _refer(leaf: Any) -> Callable[[], Any]:
    try:
        reference = weakref.ref(leaf)
    except TypeError:
        return lambda: leaf
    return lambda: _GONE if (held := reference()) is None else held


class StepStart:
    def __init__(self) -> None:
        self._held: list[_Batch] = []
        """newest last"""
        self._is_over = False
        """the loader has no more, and the step that uses up what was fetched ahead has not ended yet"""
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
        self._levels: dict[int, list[int]] = {}
        """of each walk: how many batches it gave before each of the first backwards that followed one"""
        self._seen: dict[int, int] = {}

    @property
    def batches(self) -> list[Any]:
        """Newest last."""
        return [held[0] for batch in self._held if (held := batch.get()) is not None]

    @batches.setter
    def batches(self, batches: list[Any]) -> None:
        self._held = [_Batch(batch, ("", 0)) for batch in batches]

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
        self._held.append(_Batch(batch, walk))
        del self._held[:-room]
        self._is_over = False
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
        self._is_over = True
        if not self.lead:
            self._let_go()

    def of_this_walk(self) -> list[Any]:
        """The batches, without those of an earlier walk through the same loader."""
        latest = dict(batch.walk for batch in self._held)
        this = [batch for batch in self._held if latest[batch.walk[0]] == batch.walk[1]]
        return [held[0] for batch in this if (held := batch.get()) is not None]

    def updated(self, is_alone: bool = True) -> None:
        """An update is over. If it `is_alone`, so is its step, and what was fetched ahead is for the next one. If not,
        another optimizer of the step may need the batch."""
        if self._is_over:
            self._let_go()
        elif is_alone:
            self._let_go(self.lead if self._learned else 1)
        if self.draws:
            self.random = _state()

    def _let_go(self, newest: int = 0) -> None:
        """Hold all batches but the newest ones no longer than the script does."""
        for batch in self._held[: len(self._held) - newest]:
            batch.let_go()

    def look(self) -> None:
        """A step begins that is looked at closely."""
        self.draws = True
        self.random = _state()

    def compare(self) -> None:
        """The first backward of such a step begins: did the forward pass draw?"""
        if self.random is not None and torch.equal(self.random, _state()):
            self.draws = False
            self.random = None
