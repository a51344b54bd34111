"""The value of torch's loss functions as they gave it, to set beside what backward begins from."""

from __future__ import annotations

from torch import Tensor

from torchdoctor import signals
from torchdoctor.attach.guard import contained
from torchdoctor.probes.context import Context

CALLS_KEPT = 256


class CalledLoss:
    """Mean over the calls of one step, written when the next one is looked at."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._step = -1
        self._boxes: list[list[float]] = []

    @contained("loss_values: called")
    def called(self, mean: Tensor) -> None:
        """A loss function with a gradient gave this, as a mean over its elements."""
        if self._context.step != self._step:
            self.flush()
            self._step = self._context.step
        if len(self._boxes) < CALLS_KEPT:
            box: list[float] = []
            self._boxes.append(box)
            self._context.read(mean, lambda value: box.append(float(value)))

    def mean_of(self, step: int) -> float | None:
        """Return the mean over the calls of a step that was looked at last, as far as they have arrived."""
        values = [v for box in self._boxes for v in box] if step == self._step else []
        return sum(values) / len(values) if values else None

    @contained("loss_values: flush")
    def flush(self) -> None:
        values = [v for box in self._boxes for v in box]
        self._boxes = []
        if values:
            self._context.record.scalar(signals.LOSS_CALLED.name, self._step, sum(values) / len(values))
