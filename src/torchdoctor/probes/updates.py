"""How much each weight changes in a step, relative to its size. Needs a copy of the weights, inside a budget."""

from __future__ import annotations

from time import thread_time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor import signals, stats
from torchdoctor.attach.ceiling import UPDATES, units_of
from torchdoctor.attach.guard import contained
from torchdoctor.probes.context import Context
from torchdoctor.stats.support import PLAIN_TYPES

SIXTEEN_BITS = (torch.float16, torch.bfloat16)
FREE_DEVICE_FACTOR = 4
"""On a device a copy is made only where this many times its size is free."""


class UpdateProbe:
    """`before` copies as many parameters as the budget holds, taking turns; `after` compares."""

    def __init__(self, context: Context, budget_bytes: int) -> None:
        self._context = context
        self._budget = budget_bytes
        self._turn = 0
        self._seconds = 0.0
        """that copying took this time"""
        self._copies: list[Tensor] = []
        self._live: list[Tensor] = []
        self._held: list[Tensor] = []
        self._columns: tuple[str, ...] = ()

    @contained("updates: before")
    def before(self, parameters: list[Tensor], names: tuple[str, ...]) -> None:
        self._copies, self._live, self._held, columns = [], [], [], []
        if not parameters:
            return
        share = self._context.ceiling.share_of(UPDATES, units_of(parameters))
        start = thread_time()
        budget = self._available(parameters[0])
        used = 0
        for i in range(len(parameters) if share * len(parameters) >= 1 else 0):
            at = (self._turn + i) % len(parameters)
            parameter = parameters[at]
            size = parameter.numel() * parameter.element_size()
            if stats.unsupported(parameter) is not None or not parameter.requires_grad:
                continue
            if used + size > budget:
                self._turn = at
                break
            used += size
            self._live.append(parameter.detach())
            self._held.append(parameter)
            columns.append(names[at])
            if len(columns) >= share * len(parameters):
                self._turn = at + 1
                break
        self._columns = tuple(columns)
        self._copies = [p.clone() for p in self._live]
        self._seconds = thread_time() - start

    def _available(self, parameter: Tensor) -> int:
        if parameter.device.type != "cuda":
            return self._budget
        reserved = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        free, _ = torch.cuda.mem_get_info()
        return min(self._budget, (free + reserved) // FREE_DEVICE_FACTOR)

    @contained("updates: after")
    def after(self) -> None:
        if not self._copies:
            return
        start, units = thread_time(), units_of(self._copies)
        step, record, columns = self._context.step, self._context.record, self._columns
        both = torch.stack([stats.change_norms(self._copies, self._live), stats.norms(self._copies)])
        self._look_lost()
        self._copies, self._live, self._held = [], [], []

        def arrived(values: NDArray[Any]) -> None:
            change, size = values.astype(np.float32)
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = np.where(size > 0, change / size, np.where(change > 0, np.inf, 0.0)).astype(np.float32)
            record.matrix(step, columns, {signals.UPDATE_RATIO.name: ratio})

        self._context.read(both, arrived)
        self._context.ceiling.learn(UPDATES, units, self._seconds + thread_time() - start)

    def _look_lost(self) -> None:
        """Of weights in 16 bits: which elements had a gradient, and are what they were."""
        shares, columns = [], []
        for before, parameter, name in zip(self._copies, self._held, self._columns, strict=True):
            gradient = parameter.grad
            if parameter.dtype not in SIXTEEN_BITS or gradient is None or gradient.is_sparse:
                continue
            if type(parameter) in PLAIN_TYPES and parameter.device == self._held[0].device:
                pushed = gradient != 0
                lost = (before == parameter.detach()) & pushed
                shares.append(lost.sum() / pushed.sum())
                columns.append(name)
        if not shares:
            return
        step, record, names = self._context.step, self._context.record, tuple(columns)

        def arrived(values: NDArray[Any]) -> None:
            record.matrix(step, names, {signals.UPDATE_LOST.name: values.astype(np.float32)})

        self._context.read(torch.stack(shares).float(), arrived)
