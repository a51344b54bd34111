"""Where a step's time goes: waiting for data, forward, backward, optimizer, and our own share."""

from __future__ import annotations

from time import perf_counter

from torchdoctor import signals
from torchdoctor.probes.context import Context

TIME_STEP, TIME_DATA, TIME_OWN = signals.TIME_STEP.name, signals.TIME_DATA.name, signals.TIME_OWN.name
SAMPLES_PER_SECOND = signals.SAMPLES_PER_SECOND.name
SMOOTHING = 0.3


class Clock:
    """Marks of one step in progress; `finish` writes them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._step_end: float | None = None
        self._begin: float | None = None
        self._forward_from: float | None = None
        self._backward_from = 0.0
        self._optimizer_from = 0.0
        self._last_end: float | None = None
        self._own_at_begin = 0.0
        self._validated = False
        self._validated_since = False
        """there was a validation after the update of the step that is not finished yet"""
        self.unsplit = False
        """the parts of the step in progress are not known"""
        self.usual = 0.0
        """seconds of a step, lately"""
        self.parts = (0.0, 0.0, 0.0)
        """forward, backward and optimizer of the last step of which they are known"""
        self._clear()

    def _clear(self) -> None:
        self.data = self.forward = self.backward = self.optimizer = 0.0
        self.samples = 0
        self._inside_closure = False

    def fetched(self, seconds: float, samples: int, own_seconds: float) -> None:
        now = perf_counter()
        self._enter(now - seconds, own_seconds)
        self.data += seconds
        self.samples += samples
        self._forward_from = now

    def training_pass(self, own_seconds: float) -> None:
        """A pass that builds a graph begins."""
        now = perf_counter()
        self._enter(now, own_seconds)
        if self._forward_from is None:
            self._forward_from = now

    def _enter(self, when: float, own_seconds: float) -> None:
        if self._begin is None:
            self._begin = when
            self._own_at_begin = own_seconds

    def validating(self) -> None:
        """What came before the next training event was validation, and is not counted."""
        if self._begin is not None and self._last_end is not None and self._begin <= self._last_end:
            self._validated_since = True
            return
        self._validated = True
        self._begin = None
        self.data = 0.0
        self.samples = 0
        self._forward_from = None

    def backward_begins(self, own_seconds: float) -> None:
        self._backward_from = now = perf_counter()
        self._enter(now, own_seconds)
        if self._forward_from is not None:
            self.forward += now - self._forward_from
            self._forward_from = None

    def backward_ends(self) -> None:
        self.backward += perf_counter() - self._backward_from

    def optimizer_begins(self, closure: bool) -> None:
        self._optimizer_from = perf_counter()
        self._inside_closure = closure
        self._before_closure = self.data + self.forward + self.backward

    def optimizer_ends(self) -> None:
        now = perf_counter()
        spent = now - self._optimizer_from
        if self._inside_closure:
            spent -= self.data + self.forward + self.backward - self._before_closure
        self.optimizer += max(spent, 0.0)
        self._last_end = now

    def finish(self, step: int, own_seconds: float) -> tuple[float, float]:
        """Write the step that has ended; returns its wall time and our share of it."""
        end = self._last_end if self._last_end is not None else perf_counter()
        since = self._begin if self._validated or self._step_end is None else self._step_end
        seconds = end - since if since is not None else 0.0
        own = own_seconds - self._own_at_begin
        record = self._context.record
        if seconds > 0 and self._step_end is not None:
            self.usual += SMOOTHING * (seconds - self.usual)
            record.scalar(signals.TIME_STEP.name, step, seconds)
            record.scalar(signals.TIME_DATA.name, step, self.data)
            if not self.unsplit:
                self.parts = (self.forward, self.backward, self.optimizer)
                record.scalar(signals.TIME_FORWARD.name, step, self.forward)
                record.scalar(signals.TIME_BACKWARD.name, step, self.backward)
                record.scalar(signals.TIME_OPTIMIZER.name, step, self.optimizer)
            record.scalar(signals.TIME_OWN.name, step, own)
            if self.samples:
                record.scalar(signals.SAMPLES_PER_SECOND.name, step, self.samples / seconds)
        self._step_end = self._last_end
        self._begin = None
        self._validated, self._validated_since = self._validated_since, False
        self.unsplit = False
        self._own_at_begin = own_seconds
        self._clear()
        return seconds, own

    def count(self, step: int, ends: list[float], own_seconds: float) -> tuple[float, float]:
        """The same for steps of which only the whole is known; what is data is shared out evenly."""
        since = self._step_end if self._step_end is not None else ends[0]
        own = own_seconds - self._own_at_begin
        whole, steps = max(ends[-1] - since, 1e-9), range(step, step + len(ends))
        self.usual += SMOOTHING * (whole / len(ends) - self.usual)
        rows = [
            (TIME_STEP, "", at, end - before) for at, end, before in zip(steps, ends, [since, *ends[:-1]], strict=True)
        ]
        rows.append((TIME_OWN, "", step, own / len(ends)))
        if self.samples:
            data, rate = self.data / len(ends), self.samples / whole
            for at in steps:
                rows += ((TIME_DATA, "", at, data), (SAMPLES_PER_SECOND, "", at, rate))
        self._context.record.scalars(rows)
        self.data, self.samples = 0.0, 0
        self._step_end = self._last_end = ends[-1]
        self._begin = None
        self._forward_from = None
        self._own_at_begin = own_seconds
        return ends[-1] - since, own
