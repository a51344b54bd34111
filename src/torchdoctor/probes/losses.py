"""Training loss of every step, validation loss of every validation pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from torchdoctor import signals
from torchdoctor.attach.guard import contained
from torchdoctor.probes.context import Context
from torchdoctor.probes.loss_division import LossDivision
from torchdoctor.probes.spikes import LossWatch

BOXES_KEPT = 256
BACKWARDS_KEPT = 4096


class TrainingLoss:
    """Collects the losses of a step's backward passes and writes their mean, undivided, once the optimizer is known."""

    def __init__(
        self,
        context: Context,
        on_nonfinite: Callable[[int, float], None],
        on_high: Callable[[int, float, LossWatch], None],
        division: LossDivision,
    ) -> None:
        self._context = context
        self._on_nonfinite = on_nonfinite
        self._on_high = on_high
        self.watch = LossWatch()
        self.division = division
        self._before_closure = 0
        """losses of the step that were there when its optimizer called a closure"""
        self._waiting: list[tuple[list[float], float]] = []
        """of each backward pass its loss, once it has arrived, and what it was divided by"""

    @contained("losses: backward")
    def backward(self, loss: Tensor, divisor: float) -> None:
        """A backward pass from this scalar begins, which the script had divided."""
        step = self._context.step
        box: list[float] = []
        if len(self._waiting) < BACKWARDS_KEPT:
            self._waiting.append((box, divisor))

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

    def closure_begins(self) -> None:
        """The optimizer is about to call its closure: the losses so far are those of accumulation."""
        self._before_closure = len(self._waiting)

    def pending(self) -> list[float]:
        """The losses of this step that have arrived, before its update, as backward got them."""
        return [value for box, _ in self._waiting for value in box]

    def take(self, values: list[float]) -> None:
        """Losses of this step that were read elsewhere."""
        taken = values[: BACKWARDS_KEPT - len(self._waiting)]
        self._waiting.extend(([value], self.division.divisor) for value in taken)

    @contained("losses: stepped")
    def stepped(self, key: str, later: Callable[[Callable[[], None]], None], first_only: bool = False) -> None:
        """The optimizer with that key made its update from what was collected. An optimizer that evaluates a
        closure many times (LBFGS) started from the first of them; one that accumulates (Lightning) calls it once."""
        boxes, self._waiting = self._waiting, []
        if not boxes:
            return
        step, record = self._context.step, self._context.record
        counted = boxes[: self._before_closure + 1] if first_only else boxes

        def write() -> None:
            arrived = [(value, divisor) for box, divisor in counted for value in box]
            if arrived:
                values, divisors = zip(*arrived, strict=True)
                record.scalar(signals.LOSS_TRAIN.name, step, self.division.undo(step, values, divisors), key)

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
