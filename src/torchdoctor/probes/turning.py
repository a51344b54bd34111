"""Whether a gradient points the way of the one before it: the cosine between the gradients of two steps in a row.

On a look the gradients are copied, inside the same budget as the weights; at the next update they are compared.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import signals, stats
from torchdoctor.attach.ceiling import UPDATES, units_of
from torchdoctor.attach.guard import contained
from torchdoctor.probes.context import Context


class TurningProbe:
    """`keep` copies the gradients of one update, `compare` sets them against those of the next one."""

    def __init__(self, context: Context, budget_bytes: int) -> None:
        self._context = context
        self._budget = budget_bytes
        self.waiting: dict[str, tuple[int, list[weakref.ref[Tensor]], list[Tensor]]] = {}
        """optimizer -> the step, the parameters and the copies of their gradients"""

    @contained("turning: keep")
    def keep(self, key: str, optimizer: Optimizer) -> None:
        held = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
        if any(p.grad.layout is not torch.strided or stats.unsupported(p.grad) is not None for p in held):
            return
        if not self._context.ceiling.fits(UPDATES, units_of(held)):
            return
        if held and sum(p.grad.numel() * p.grad.element_size() for p in held) <= self._budget:
            copies = [p.grad.detach().clone() for p in held]
            self.waiting[key] = (self._context.step, [weakref.ref(p) for p in held], copies)

    @contained("turning: compare")
    def compare(self, key: str, many: bool) -> None:
        kept = self.waiting.pop(key, None)
        if kept is None:
            return
        step, held, before = kept
        after = [p.grad.detach() for ref in held if (p := ref()) is not None and p.grad is not None]
        if self._context.step != step + 1 or len(after) != len(before):
            return
        record, total_key = self._context.record, key if many else ""

        def arrived(values: NDArray[Any]) -> None:
            was, now, apart = np.square(values.astype(np.float64)).sum(axis=1)
            if 0 < was < np.inf and 0 < now < np.inf and apart < np.inf:
                cosine = float((was + now - apart) / (2 * np.sqrt(was * now)))
                record.scalar(signals.GRADIENT_COSINE.name, step + 1, cosine, total_key)

        both = [stats.norms(before), stats.norms(after), stats.change_norms(before, after)]
        self._context.read(torch.stack(both), arrived)
