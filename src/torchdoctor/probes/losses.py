"""Training loss of every step, validation loss of every validation pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from torchdoctor import signals
from torchdoctor.attach.guard import contained
from torchdoctor.probes.context import Context
from torchdoctor.probes.spikes import LossWatch

BOXES_KEPT = 256
BACKWARDS_KEPT = 4096


class TrainingLoss:
    """Collects the losses of a step's backwards and writes their mean once the optimizer is known."""

    def __init__(
        self,
        context: Context,
        on_nonfinite: Callable[[int, float], None],
        on_high: Callable[[int, float, LossWatch], None] = lambda *_: None,
    ) -> None:
        self._context = context
        self._on_nonfinite = on_nonfinite
        self._on_high = on_high
        self.watch = LossWatch()
        self._waiting: list[list[float]] = []

    @contained("losses: backward")
    def backward(self, loss: Tensor) -> None:
        """A backward from this scalar begins."""
        step = self._context.step
        box: list[float] = []
        if len(self._waiting) < BACKWARDS_KEPT:
            self._waiting.append(box)

        def arrived(value: Any) -> None:
            number = float(value)
            box.append(number)
            if not math.isfinite(number):
                self._on_nonfinite(step, number)
            elif self.watch.note(number):
                self._on_high(step, number, self.watch)
                self.watch.get_used()

        if loss.is_cpu:
            arrived(loss.item())
        else:
            self._context.read(loss, arrived)

    def pending(self) -> list[float]:
        """The losses of this step that have arrived, before its update."""
        return [value for box in self._waiting for value in box]

    def take(self, values: list[float]) -> None:
        """Losses of this step that were read elsewhere."""
        self._waiting.extend([value] for value in values[: BACKWARDS_KEPT - len(self._waiting)])

    @contained("losses: stepped")
    def stepped(self, key: str, later: Callable[[Callable[[], None]], None], first_only: bool = False) -> None:
        """The optimizer with that key made its update from what was collected. An optimizer that evaluates a
        closure many times (LBFGS) started from the first of them."""
        boxes, self._waiting = self._waiting, []
        if not boxes:
            return
        step, record = self._context.step, self._context.record
        counted = boxes[:1] if first_only else boxes

        def write() -> None:
            values = [v for box in counted for v in box]
            if values:
                record.scalar(signals.LOSS_TRAIN.name, step, sum(values) / len(values), key)

        later(write)
        if len(boxes) > 1:
            record.scalar(signals.LOSS_EVENTS.name, step, float(len(boxes)), key)

    def flush(self, later: Callable[[Callable[[], None]], None]) -> None:
        """Write what no optimizer step followed (the step is missing, or the run broke off)."""
        self.stepped("", later)


class ValidationLoss:
    """Sums the losses of one validation pass over its samples, by loader."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._sums: dict[str, list[tuple[list[float], int]]] = {}
        self._done: dict[str, tuple[float, int]] = {}
        self._first_loader: str | None = None

    def prefer(self, loader: str) -> None:
        """The loader whose passes are the validation; others are kept apart."""
        self._first_loader = loader

    def add(self, loader: str, losses: list[tuple[list[float], int]]) -> None:
        """Loss boxes (a box is filled when its value arrives) and the samples each stands for."""
        if self._first_loader is None:
            self._first_loader = loader
        waiting = self._sums.setdefault(loader, [])
        waiting.extend(losses)
        if len(waiting) > BOXES_KEPT:
            self._fold(loader, waiting)

    def _fold(self, loader: str, boxes: list[tuple[list[float], int]]) -> None:
        """Add up what has arrived, so that a long validation takes no more memory than a short one."""
        total, samples = self._done.get(loader, (0.0, 0))
        for box, n in boxes:
            if box:
                total, samples = total + sum(box) * n, samples + n
        self._done[loader] = (total, samples)
        boxes[:] = [(box, n) for box, n in boxes if not box]

    @contained("losses: end")
    def end(self, step: int, later: Callable[[Callable[[], None]], None]) -> None:
        sums, self._sums = self._sums, {}

        def write() -> None:
            for loader, boxes in sums.items():
                self._fold(loader, boxes)
                total, samples = self._done.pop(loader)
                if samples:
                    mean = total / samples
                    key = "" if loader == self._first_loader else loader
                    self._context.record.scalar(signals.LOSS_VALIDATION.name, step, mean, key)

        later(write)
