"""Steps that are only counted: between looks, a loop that has settled is not in need of its every event.

The full sites cost some hundred microseconds of Python a step, which a step of a millisecond does not have to spare.
On a counted step the loss, the rates and the time of the step are written, and nothing else is done: clearing of
gradients, order of calls and modes are read again on the next full step (see governor.py for how many are counted).
Whatever is out of the ordinary (evaluation mode, a no_grad block, a new loader, another optimizer, more losses than
usual) ends the counting at once, and the step goes on as a full one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import signals
from torchdoctor.attach import guard
from torchdoctor.attach.guard import guarded
from torchdoctor.attach.patches import Gate
from torchdoctor.probes.optimizers import group_key, number
from torchdoctor.probes.spikes import LossWatch

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session

LOSS_TRAIN, LOSS_EVENTS = signals.LOSS_TRAIN.name, signals.LOSS_EVENTS.name
LEARNING_RATE = signals.LEARNING_RATE.name
ROWS = 64
"""Counted steps that are written together: what is done at once costs a fraction of what is done each step."""
ROWS_SECONDS = 0.25
"""And no longer than this: a run that is killed loses a second at most."""
LOSSES_KEPT = 256
"""Backwards of one step that are only counted."""
LEARNED_STEPS = 8
"""Full steps that show how many losses a step of this loop computes."""

_item = torch.Tensor.item
_graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)


def is_inside_backward() -> bool:
    """A recomputation of activation checkpointing runs backward inside backward."""
    return _graph_task() != -1


class Steady:
    """Knows whether the step that runs is only counted, and counts it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._loop, self._context = session.loop, session.context
        self._watch: LossWatch | None = None
        """what tells a loss that stands out; none once enough of them were looked at"""
        self.on = False
        self.calls = Gate(True)
        """shut on counted steps: calls whose order is of no interest there"""
        self.loss_calls = Gate(True, open_without_grad=True)
        self.barred = False
        """the loop is of a kind that is never only counted (a scaler, losses that come and go)"""
        self.on_leaving_late: Callable[[], None] = lambda: None
        """told when counting ends between a backward and its update"""
        self._usual: list[int] = []
        self._most = 0
        self._losses: list[float] = []
        self._rows: list[tuple[list[float], list[Any], float]] = []
        """losses, rates and the end of each counted step that is not written yet"""
        self._full_at = 0.0
        self._optimizer: weakref.ref[Optimizer] | None = None
        self._key = ""

    def learn(self) -> None:
        """A full step has ended: how many losses it computed."""
        seen, self.loss_calls.passed = self.loss_calls.passed, 0
        if len(self._usual) < LEARNED_STEPS:
            self._usual.append(seen)
            self._most = sorted(self._usual)[len(self._usual) // 2]

    def consider(self, key: str, optimizer: Optimizer, hooks_in: bool) -> None:
        """The step that begins now: is counting it enough?"""
        session = self._session
        if self.barred or hooks_in or session.governor.detailed or session.structural or session.waiting:
            return
        loop = session.loop
        if session.compiled or loop.at_work != 1 or loop.in_validation or len(self._usual) < LEARNED_STEPS:
            return
        if session.loop.step != session.context.step:
            return
        session.wiring.forget_marks()
        self._key, self._optimizer = key, weakref.ref(optimizer)
        self._losses = []
        self._full_at = session.next_full_step(loop.step)
        self.loss_calls.passed = 0
        self._watch = None if session.spikes.done else session.training_loss.watch
        self.on = True
        self.calls.open = self.loss_calls.open = False

    def leave(self) -> None:
        """Something happens that must be seen: the rest of the step is looked at in full."""
        if not self.on:
            return
        self.on = False
        self.calls.open = self.loss_calls.open = True
        self._write()
        session = self._session
        session.governor.detailed = True
        if session.loop.backwards_since_step:
            self.on_leaving_late()
        session.loop.resume()
        session.training_loss.take(self._losses)
        session.clock.unsplit = True
        self._losses = []

    def bar(self) -> None:
        self.leave()
        self.barred = True

    @guarded("backward counted")
    def take(self, loss: Any) -> bool:
        """A backward begins. False if this one needs the full look after all."""
        if is_inside_backward():
            return True
        if type(loss) is not Tensor or loss.numel() != 1 or len(self._losses) >= LOSSES_KEPT:
            self.leave()
            return False
        if loss.is_cpu:
            value = _item(loss)
            if value - value != 0.0 or type(value) is not float or (self._watch and self._watch.note(value)):
                self.leave()
                return False
            self._losses.append(value)
        else:
            self._session.training_loss.backward(loss, self._session.training_loss.division.divisor)
        self._loop.count_backward()
        return True

    def stepped(self, optimizer: Optimizer) -> bool:
        """The update of a counted step was made: note it down, and begin the next. False if it is not the usual one."""
        if self._optimizer is None or self._optimizer() is not optimizer:
            self.leave()
            return False
        session, context, rows, calls = self._session, self._context, self._rows, self.loss_calls
        losses = self._losses
        if not losses:  # they are on their way from a device
            session.training_loss.stepped("", session.deferred.after)
        groups = optimizer.param_groups
        now = perf_counter()
        rows.append((losses, [groups[0]["lr"]] if len(groups) == 1 else [group["lr"] for group in groups], now))
        self._losses = []
        self._loop.count_step(self._key)
        context.step = step = context.step + 1
        unusual, calls.passed = calls.passed > self._most, 0
        if session.batch or session.targets:
            session.batch, session.targets = [], []
        waits = len(rows) < ROWS and now - rows[0][2] < ROWS_SECONDS
        if waits and step < self._full_at and not unusual:
            return True
        self._write()
        session.context.looks = session.governor.plan(step)
        self._full_at = session.next_full_step(step)
        if step >= self._full_at or unusual:
            self.barred = self.barred or unusual
            self.on = False
            self.calls.open = self.loss_calls.open = True
            session.read_in_full(step)
        session.deferred.poll()
        if session.live:
            session.live.tick(step)
        return True

    def _write(self) -> None:
        """Write down the steps that were counted since the last time."""
        rows, self._rows = self._rows, []
        if not rows:
            return
        session = self._session
        step = session.context.step - len(rows)
        divisor = self._session.training_loss.division.divisor
        written: list[tuple[str, str, int, float]] = []
        for at, (losses, rates, _) in enumerate(rows, step):
            if losses:
                written.append((LOSS_TRAIN, "", at, divisor * sum(losses) / len(losses)))
            if len(losses) > 1:
                written.append((LOSS_EVENTS, "", at, float(len(losses))))
            for g, rate in enumerate(rates):
                plain = rate if type(rate) is float else number(rate)
                if plain is not None:
                    written.append((LEARNING_RATE, group_key(self._key, g), at, plain))
        session.context.record.scalars(written)
        seconds, own = session.clock.count(step, [end for _, _, end in rows], guard.STATE.own_now())
        session.governor.earned(seconds, min(own, seconds), 0.0, step, counted=len(rows))
