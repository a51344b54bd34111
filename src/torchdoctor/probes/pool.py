"""Where a batch that comes again and again was drawn from: a larger tensor or array among the variables of the loop."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import is_user_file
from torchdoctor.facts import PoolFact
from torchdoctor.probes.context import Context

LOOKS = 3
"""Equal batches, each a tensor of its own, after which it is searched for."""
FRAMES, VARIABLES = 8, 400
TIMES = 2
"""A pool holds at least so many times the batch."""
ELEMENTS = 50_000_000
"""A larger pool would take more than some hundredths of a second to search."""


class PoolProbe:
    """Searches at two looks: an index that is the same object at both was chosen once, by intent."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._same = 0
        self._before: list[weakref.ref[Any]] = []
        self._done = False

    def looked(self, repeated: bool) -> None:
        """Whether the batch held the same samples as the one looked at before."""
        self._same = self._same + 1 if repeated else 0

    @contained("pool: search")
    def search(self, batch: Tensor, anew: bool) -> None:
        """Once: after some equal batches that were each made anew."""
        if self._done or not anew:
            self._same = 0
            return
        if self._same < LOOKS or batch.device.type != "cpu" or not batch.dim() or not len(batch):
            return
        found = list(_stored(sys._getframe(1)))
        indices = [value for _, value in found if _is_index(value, len(batch))]
        if self._same == LOOKS:
            self._before = [weakref.ref(value) for value in indices]
            return
        self._done = True
        kept = any(reference() is value for reference in self._before for value in indices)
        for name, value in found:
            if _holds(value, batch):
                chosen = kept or any(_chooses(other, len(value), len(batch)) for _, other in found)
                fact = PoolFact(name=name, samples=len(value), batch=len(batch), chosen=chosen)
                self._context.record.fact(fact, self._context.step)
                return


def _stored(frame: FrameType | None) -> Iterator[tuple[str, Any]]:
    """Tensors and arrays in the user's frames, their globals and the objects in them, each once."""
    seen: set[int] = set()
    count = 0
    for variables in _scopes(frame):
        for name, value in list(variables.items()):
            inner = getattr(value, "__dict__", None)
            parts = {name: value} if isinstance(value, (Tensor, np.ndarray)) or not isinstance(inner, dict) else inner
            for key, part in list(parts.items()):
                for item in part[:4] if isinstance(part, (tuple, list)) else (part,):
                    if isinstance(item, (Tensor, np.ndarray)) and id(item) not in seen:
                        seen.add(id(item))
                        yield (key if parts is inner else name), item
                        count += 1
                        if count >= VARIABLES:
                            return


def _scopes(frame: FrameType | None) -> Iterator[dict[str, Any]]:
    depth = 0
    spaces: set[int] = set()
    while frame is not None and depth < FRAMES:
        if is_user_file(frame.f_code.co_filename):
            depth += 1
            for space in (frame.f_locals, frame.f_globals):
                if id(space) not in spaces:
                    spaces.add(id(space))
                    yield {k: v for k, v in space.items() if not isinstance(v, type(sys))}
        frame = frame.f_back


def _is_index(value: Any, count: int) -> bool:
    whole = value.dtype.kind in "iu" if isinstance(value, np.ndarray) else value.dtype in (torch.int64, torch.int32)
    return value.ndim == 1 and whole and len(value) == count


def _chooses(value: Any, samples: int, count: int) -> bool:
    """A mask over the pool that selects as many samples as the batch has."""
    boolean = value.dtype.kind == "b" if isinstance(value, np.ndarray) else value.dtype is torch.bool
    return bool(boolean and value.ndim == 1 and len(value) == samples and int(value.sum()) == count)


def _holds(value: Any, batch: Tensor) -> bool:
    """Whether the first and the last sample of the batch are in it."""
    if value.ndim != batch.dim() or tuple(value.shape[1:]) != tuple(batch.shape[1:]) or len(value) < TIMES * len(batch):
        return False
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiu":
            return False
        value = torch.from_numpy(value)
    if value.device != batch.device or value.numel() > ELEMENTS:
        return False
    value = value.detach()
    rows = batch.detach()[[0, -1]].to(torch.float32).reshape(2, -1)
    pool = value.reshape(len(value), -1).to(torch.float32)
    return all(bool((pool == row).all(1).any()) for row in rows)
