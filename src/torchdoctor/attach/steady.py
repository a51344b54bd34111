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
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import signals
from torchdoctor.attach import guard
from torchdoctor.attach.patches import Gate
from torchdoctor.probes.optimizers import group_key, number

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session

LOSS_TRAIN, LEARNING_RATE = signals.LOSS_TRAIN.name, signals.LEARNING_RATE.name
LEARNED_STEPS = 8
"""Full steps that show how many losses a step of this loop computes."""

_item = torch.Tensor.item


class Steady:
    """Knows whether the step that runs is only counted, and counts it."""

    def __init__(self, session: Session) -> None:
        self._session = session
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
        self._losses.clear()
        self.loss_calls.passed = 0
        self.on = True
        self.calls.open = self.loss_calls.open = False

    def leave(self) -> None:
        """Something happens that must be seen: the rest of the step is looked at in full."""
        if not self.on:
            return
        self.on = False
        self.calls.open = self.loss_calls.open = True
        session = self._session
        session.governor.detailed = True
        if session.loop.backwards_since_step:
            self.on_leaving_late()
        session.loop.resume()
        session.training_loss.take(self._losses)
        session.clock.unsplit = True
        self._losses.clear()

    def bar(self) -> None:
        self.leave()
        self.barred = True

    def backward(self, loss: Tensor) -> bool:
        """A backward begins. False if this one needs the full look after all."""
        if loss.numel() != 1:
            self.leave()
            return False
        if not loss.is_cpu:
            self._session.training_loss.backward(loss)
        else:
            value = _item(loss)
            if value - value != 0.0 or type(value) is not float:
                self.leave()
                return False
            if self._session.training_loss.watch.note(value):
                self.leave()
                return False
            self._losses.append(value)
        self._session.loop.count_backward()
        return True

    def is_usual(self, optimizer: Optimizer) -> bool:
        return self._optimizer is not None and self._optimizer() is optimizer

    def stepped(self, optimizer: Optimizer) -> None:
        """The update of a counted step was made: write it, and begin the next."""
        session = self._session
        context = session.context
        step, scalar = context.step, context.record.scalar
        losses = self._losses
        if losses:
            scalar(LOSS_TRAIN, step, losses[0] if len(losses) == 1 else sum(losses) / len(losses))
            if len(losses) > 1:
                scalar(signals.LOSS_EVENTS.name, step, float(len(losses)))
            losses.clear()
        else:
            session.training_loss.stepped("", session.deferred.after)
        for g, group in enumerate(optimizer.param_groups):
            rate = group["lr"]
            rate = rate if type(rate) is float else number(rate)
            if rate is not None:
                scalar(LEARNING_RATE, step, rate, group_key(self._key, g))
        session.loop.count_step(self._key)
        seconds, own = session.clock.count(step, guard.STATE.own_now())
        governor = session.governor
        governor.earned(seconds, own if own < seconds else seconds, 0.0, step, counted=True)
        context.step = step = step + 1
        context.looks = governor.plan(step)
        if session.is_structural(step) or governor.detailed or self.loss_calls.passed > self._most:
            self.barred = self.barred or self.loss_calls.passed > self._most
            self._end()
        self.loss_calls.passed = 0
        session.deferred.poll()
        if session.live:
            session.live.tick(step)

    def _end(self) -> None:
        """The next step is a full one from its beginning."""
        self.on = False
        self.calls.open = self.loss_calls.open = True
        self._session.read_in_full(self._session.context.step)
