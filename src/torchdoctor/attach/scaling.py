"""Gradient scalers: the loss before they multiplied it, the updates they leave out, the scale they arrive at."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import signals
from torchdoctor.attach.clearing import ClearingCheck
from torchdoctor.attach.guard import guarded
from torchdoctor.attach.session import Session
from torchdoctor.probes.loss_division import find_divisor


class ScalerSites:
    """Handlers for GradScaler. `updates` counts those that optimizers have made."""

    def __init__(self, session: Session, clearing: ClearingCheck, updates: Callable[[], int]) -> None:
        self.session = session
        self._clearing = clearing
        self._updates = updates
        self._scaled: tuple[weakref.ref[Tensor], Tensor, float] | None = None

    def original(self, loss: Tensor) -> tuple[Tensor, float]:
        """Return the loss before the gradient scaler multiplied it, and what the script had divided it by."""
        if self._scaled is not None:
            scaled, original, divisor = self._scaled
            self._scaled = None
            if scaled() is loss:
                return original, divisor
        return loss, find_divisor(loss)

    @guarded("loss scaled")
    def loss_scaled(self, _token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], result: Any) -> None:
        self.session.steady.bar()
        self.session.capturing.scaler(args[0])
        if isinstance(result, Tensor) and len(args) > 1 and isinstance(args[1], Tensor):
            self._scaled = (weakref.ref(result), args[1].detach(), find_divisor(args[1]))

    @guarded("scaler step begins")
    def step_begins(self, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> int:
        return self._updates()

    @guarded("scaler step ends")
    def step_ends(self, before: int | None, args: tuple[Any, ...], _kwargs: dict[str, Any], _r: Any) -> None:
        session = self.session
        skipped = before == self._updates()
        step = session.context.step if skipped else session.loop.updates - 1
        session.record.scalar(signals.STEP_SKIPPED.name, step, float(skipped))
        if skipped and len(args) > 1 and isinstance(args[1], Optimizer):
            key = session.registry.optimizer_key(args[1])
            session.remedy.scaler_skipped(args[1])
            self._clearing.after_step(key, args[1], session.context.step)
            session.training_loss.stepped(session.key(key), session.deferred.after)
            session.loop.optimizer_step(key)
            session.loop.settle()
            session.turn()
            if session.rolling.on:
                session.rolling.stepped()

    @guarded("scaler updated")
    def updated(self, _token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
        self.session.loop.call("scaler")
        self.session.optimizers.scaled(args[0], max(0, self.session.loop.updates - 1))

    @guarded("gradients unscaled")
    def unscaled(self, _token: Any, _args: Any, _kwargs: Any, _result: Any) -> None:
        self.session.loop.call("unscale")
