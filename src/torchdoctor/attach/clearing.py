"""Were the gradients cleared between one update and the next backward? Decided by state, not by calls.

One parameter of each optimizer is watched. If its gradient is None or zero when the first backward that adds to
it begins, it was cleared, whoever did it; if last step's gradient is still there, it was not.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import signals
from torchdoctor.probes.context import Context


@dataclass
class Watch:
    """One optimizer's watched parameter since its last update."""

    parameter: weakref.ref[Tensor]
    zero_grad_called: bool = False
    before: tuple[Any, ...] | None = None
    cleared: Tensor | float | None = None


class ClearingCheck:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._watches: dict[str, Watch] = {}

    def after_step(self, key: str, optimizer: Optimizer) -> None:
        """An update was made: from now on the gradients it used are the last ones."""
        candidate: Tensor | None = None
        for group in reversed(optimizer.param_groups):
            for parameter in reversed(group["params"]):
                if parameter.grad is not None and not parameter.grad.is_sparse:
                    candidate = candidate if candidate is not None else parameter
                    if parameter.dim() >= 2:
                        self._watches[key] = Watch(weakref.ref(parameter))
                        return
        if candidate is not None:
            self._watches[key] = Watch(weakref.ref(candidate))

    def zeroed(self, key: str | None) -> None:
        for name, watch in self._watches.items():
            if key in (None, name):
                watch.zero_grad_called = True

    def before_backward(self) -> None:
        for watch in self._watches.values():
            parameter = watch.parameter()
            gradient = parameter.grad if parameter is not None else None
            watch.before = (id(gradient), gradient._version) if gradient is not None else (None, None)
            if gradient is None or watch.zero_grad_called:
                watch.cleared = 1.0
            else:
                watch.cleared = (gradient.detach() == 0).all().float()

    def after_backward(self, step: int) -> None:
        for key, watch in list(self._watches.items()):
            parameter = watch.parameter()
            gradient = parameter.grad if parameter is not None else None
            now = (id(gradient), gradient._version) if gradient is not None else (None, None)
            if now == watch.before or watch.cleared is None:
                continue
            del self._watches[key]
            write = partial(self._write, key, step)
            if isinstance(watch.cleared, Tensor):
                self._context.read(watch.cleared, write)
            else:
                write(watch.cleared)

    def _write(self, key: str, step: int, cleared: Any) -> None:
        self._context.record.scalar(signals.GRADIENTS_CLEARED.name, step, float(cleared), key)
