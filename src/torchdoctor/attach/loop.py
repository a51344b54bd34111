"""What the user's loop is doing: which forward passes train, which validate, what is one step.

Pure bookkeeping over events, without torch. Time is cut into intervals at every batch that a loader hands out and
at every optimizer step. An interval with a backward trains. A batch from a loader whose iterator never led to a
backward is validation. Without a loader, passes in eval mode, or with a loss that nothing was made of, are
validation. What fits none of these is called unknown, and counted.

    fetch -> forward -> loss -> backward -> step      an interval that trains
    fetch -> forward -> loss -> fetch                 one that validates
    step  -> forward (no grad) -> forward -> backward validation by hand before the next training pass

Where no torch optimizer steps (updates by hand, optimizers of other libraries), nothing says when an update is made. A
step then ends with its backward pass, and the first event after it begins the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from torchdoctor.facts import TRAIN, UNKNOWN, VALIDATION, PhaseFact

UNSTEPPED = 64
"""Backward passes after which an optimizer that exists and never steps is taken to be unused: updates are by hand."""
WALKS_KEPT = 256
PENDING_PASSES = 512
"""Passes of one interval that wait for their phase; beyond it they are decided without what comes later."""
TURNS = 2
"""Steps at most between a batch and its last use by another optimizer: one that takes its turn late ends two steps. A
batch that is used for longer is kept."""
CALLS_KEPT = 32
INTERVALS_KEPT = 64
"""Distances between validations that are kept for their median."""


@dataclass(eq=False)
class Pass:
    """One call of a root module."""

    model: str | None
    training: bool
    grad: bool
    step: int
    loader: str | None = None
    drawn: int | None = None
    """number of the batch that loaders handed out last; None where that is more than `TURNS` steps ago"""
    reached: bool | None = None
    """True once a backward came through its output; None where that was not watched"""
    feeds: bool = False
    """its output went into another model or became a target: part of a larger step"""
    teaches: bool = False
    """its model is known to give targets for the batches that another is trained on"""
    losses: int = 0
    phase: str = UNKNOWN
    data: dict[str, Any] = field(default_factory=dict)
    """what probes want to keep until the phase is known"""


@dataclass(eq=False)
class Walk:
    """One walk through a loader."""

    loader: str
    fetched: int = 0
    backwards: int = 0


@dataclass(eq=False)
class Interval:
    iterator: Walk | None = None
    passes: list[Pass] = field(default_factory=list)
    backwards: int = 0
    trained: bool = True
    """whether any backward had been seen in the run when it began"""
    is_announced: bool = False
    """a batch or a forward pass was seen in it, so that a second backward pass is not taken for a second step"""
    ended: Walk | None = None
    """the walk that came to its end when this interval began: loaders that read ahead end before their last pass"""


class Loop:
    """Feed it events; it calls back with every pass once its phase is known, and at the end of a validation."""

    def __init__(
        self,
        on_pass: Callable[[Pass], None] = lambda _: None,
        on_validation_end: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.on_pass = on_pass
        self.on_validation_end = on_validation_end
        self.step = 0
        self.backwards = 0
        self.backwards_since_step = 0
        self.stepped_ever = False
        self._discarded, self._discarded_at = 0, 0
        self._order_known = True
        self.passes = {TRAIN: 0, VALIDATION: 0, UNKNOWN: 0}
        self.validations = 0
        self.in_validation = False
        self.loader_phases: dict[str, str] = {}
        self._fetched, self._fetched_at = 0, -TURNS - 1
        self.calls: dict[str, list[str]] = {}
        self._iterators: dict[int, Walk] = {}
        self._interval = Interval(trained=False)
        self._stepped: set[str] = set()
        self._stepped_before: set[str] = set()
        self._validated_at: list[int] = []

    # -- events ---------------------------------------------------------------

    def fetch(self, iterator: int, loader: str) -> None:
        """A loader handed out a batch."""
        self.begin()
        walk = self._iterators.get(iterator)
        if walk is None or walk.loader != loader:
            walk = self._iterators[iterator] = Walk(loader)
            if len(self._iterators) > WALKS_KEPT:  # walks that were broken off
                del self._iterators[next(iter(self._iterators))]
        walk.fetched += 1
        self._fetched, self._fetched_at = self._fetched + 1, self.step
        self._close_interval(walk)

    def exhausted(self, iterator: int) -> None:
        """A walk through a loader came to its end."""
        self._end_step_by_hand()
        self._close_interval(None)
        self._interval.ended = self._iterators.pop(iterator, None)

    def forward(self, model: str | None, training: bool, grad: bool) -> Pass:
        """A root module is called."""
        if grad:
            self.begin()
        else:
            self._end_step_by_hand()
        self._interval.is_announced = True
        return self._add_pass(model, training, grad)

    def passes_unwatched(self) -> None:
        """No forward pass is told from here on: without a batch that tells it, each backward pass is a step's first."""
        self._interval.is_announced = self._interval.iterator is not None

    def _add_pass(self, model: str | None, training: bool, grad: bool) -> Pass:
        interval = self._interval
        walk = interval.iterator or interval.ended
        loader = walk.loader if walk else None
        drawn = self._fetched if self.step - self._fetched_at <= TURNS else None
        entered = Pass(model, training, grad, self.step if grad else self.updates, loader, drawn)
        interval.passes.append(entered)
        self._note("forward")
        if len(interval.passes) > PENDING_PASSES:
            self._emit(interval.passes.pop(0), interval)
        return entered

    def loss(self, grad: bool, model: str | None = None, training: bool = True) -> Pass:
        """A loss function was called. Where no pass is open (its forward was not watched) one is made up."""
        self._end_step_by_hand()
        passes = self._interval.passes
        last = next((p for p in reversed(passes) if p.grad), None) if grad else (passes[-1] if passes else None)
        if last is None or last.grad != grad or (not grad and last.losses and not last.data.get("watched")):
            last = self.forward(model, training, grad)
        last.losses += 1
        return last

    def backward(self) -> None:
        if self.backwards_since_step and self._interval.is_announced:
            self.settle()  # another loss of the same forward pass
        else:
            self.begin()
        self.backwards += 1
        self.backwards_since_step += 1
        interval = self._interval
        interval.backwards += 1
        if interval.iterator:
            interval.iterator.backwards += 1
            self.loader_phases[interval.iterator.loader] = TRAIN
        if not any(p.grad for p in interval.passes):
            self._add_pass(None, True, True)
        self._note("backward")

    def optimizer_step(self, optimizer: str) -> list[str]:
        """An optimizer has stepped; returns the calls that led to it, in order, or none where some were not told."""
        if optimizer in self._stepped:
            self._next_step()
        self._stepped.add(optimizer)
        self.stepped_ever = True
        self.backwards_since_step = 0
        self._note("step", optimizer)
        calls = self.calls.pop(optimizer, [])
        self.calls[optimizer] = []
        self._close_interval(None)
        known, self._order_known = self._order_known, True
        return calls if known else []

    def count_backward(self) -> None:
        """A backward of a step that is only counted."""
        self.backwards += 1
        self.backwards_since_step += 1
        interval = self._interval
        interval.backwards += 1
        if interval.iterator:
            interval.iterator.backwards += 1

    def count_step(self, optimizer: str) -> None:
        """The one optimizer at work has ended a step that is only counted."""
        self.step += 1
        self.backwards_since_step = 0
        interval = self._interval
        self.passes[TRAIN] += interval.backwards
        if self.calls.get(optimizer):
            self.calls[optimizer] = []
        if interval.passes or interval.iterator or interval.ended or not interval.trained:
            self._interval = Interval()
        else:
            interval.backwards = 0

    def resume(self) -> None:
        """A step that was only counted goes on in full: make up for what was not told."""
        if self._interval.backwards and not any(p.grad for p in self._interval.passes):
            self._add_pass(None, True, True)
            self._order_known = False

    def settle(self) -> None:
        """All that belongs to the update is written: begin the next step if every optimizer at work has stepped."""
        if self._stepped and self._stepped >= self._stepped_before:
            self._next_step()

    def optimizer(self, key: str) -> None:
        """An optimizer exists; the calls that lead to its steps are kept from now on."""
        self.calls.setdefault(key, [])

    def call(self, name: str, optimizer: str | None = None) -> None:
        """Any other call whose order matters: zero_grad, clip, scheduler, unscale, update."""
        if name == "zero_grad" and not self.stepped_ever and self.backwards > self._discarded_at:
            self._discarded += 1
            self._discarded_at = self.backwards
        self._note(name, optimizer)

    def evaluating(self) -> Pass | None:
        """The pass that is open now, if it builds no graph."""
        passes = self._interval.passes
        return passes[-1] if passes and not passes[-1].grad else None

    def forget_inputs(self) -> None:
        """What was kept of the inputs of passes that are not settled yet."""
        for waiting in self._interval.passes:
            waiting.data.pop("given", None)

    def close(self) -> None:
        if self._interval.backwards and not any(p.reached for p in self._interval.passes):
            for waiting in self._interval.passes:  # the last backward pass was broken off before it reached any
                waiting.reached = None
        self._close_interval(None)
        self._end_validation()

    # -- steps ----------------------------------------------------------------

    @property
    def updates(self) -> int:
        """Steps that are complete, have at least one optimizer's update, or had their backward pass by hand."""
        return self.step + (bool(self._stepped) or bool(self.backwards_since_step and self.is_by_hand))

    @property
    def at_work(self) -> int:
        """How many optimizers shared the last complete step."""
        return len(self._stepped_before)

    @property
    def is_by_hand(self) -> bool:
        """No torch optimizer is at work: each backward pass is taken for a step."""
        return not self.stepped_ever and self.backwards >= (UNSTEPPED if self.calls else 1)

    def begin(self) -> None:
        """Begin the next step if the last one is over: every optimizer at work has stepped, or the backward pass of an
        update by hand has come."""
        self.settle()
        self._end_step_by_hand()

    def _end_step_by_hand(self) -> None:
        if self.backwards_since_step and self.is_by_hand:
            self.backwards_since_step = 0
            self._close_interval(None)
            self._next_step()

    def _next_step(self) -> None:
        self._stepped_before = self._stepped
        self._stepped = set()
        self.step += 1

    def _note(self, call: str, optimizer: str | None = None) -> None:
        for key, calls in self.calls.items():
            if optimizer in (None, key) and len(calls) < CALLS_KEPT and (not calls or calls[-1] != call):
                calls.append(call)

    # -- phases ---------------------------------------------------------------

    def _close_interval(self, iterator: Walk | None) -> None:
        interval = self._interval
        self._interval = Interval(iterator, trained=self.backwards > 0, is_announced=iterator is not None)
        for waiting in interval.passes:
            self._emit(waiting, interval)

    def _emit(self, waiting: Pass, interval: Interval) -> None:
        waiting.phase = classify(waiting, interval)
        self.passes[waiting.phase] += 1
        if waiting.phase == VALIDATION:
            if not self.in_validation:
                self.in_validation = True
                self.validations += 1
                self._validated_at = [*self._validated_at[-INTERVALS_KEPT:], waiting.step]
            if waiting.loader:
                self.loader_phases.setdefault(waiting.loader, VALIDATION)
        elif waiting.phase == TRAIN:
            self._end_validation()
        self.on_pass(waiting)

    def _end_validation(self) -> None:
        if self.in_validation:
            self.in_validation = False
            self.on_validation_end(self._validated_at[-1])

    def describe(self, loss_sites: list[str], validation_sites: list[str], notes: list[str]) -> PhaseFact:
        """What the loop was taken to be, for the record and for the user to check."""
        distances = [b - a for a, b in zip(self._validated_at, self._validated_at[1:], strict=False) if b > a]
        return PhaseFact(
            updates=self.updates if self.stepped_ever else 0,
            backwards=self.backwards,
            passes_train=self.passes[TRAIN],
            passes_validation=self.passes[VALIDATION],
            passes_unknown=self.passes[UNKNOWN],
            validations=self.validations,
            updates_between_validations=median(distances) if distances else None,
            loss_sites=loss_sites,
            validation_sites=validation_sites,
            notes=notes,
            discarded=self._discarded,
            steps=self.updates,
        )


def classify(waiting: Pass, interval: Interval) -> str:
    """The phase of one pass, given the whole interval it happened in."""
    if waiting.feeds:
        return UNKNOWN
    evaluates = not waiting.training or (waiting.losses > 0 and not waiting.reached)
    if interval.backwards:
        if waiting.grad and waiting.reached is not False:
            return TRAIN
        teaches = waiting.teaches and not waiting.losses
        by_hand = interval.iterator is None and not teaches and _precedes_training(waiting, interval)
        return VALIDATION if by_hand and evaluates else UNKNOWN
    if waiting.grad and waiting.training and not interval.trained:
        return UNKNOWN  # a look at the model before training begins
    if interval.iterator is not None:
        return UNKNOWN if interval.iterator.backwards else VALIDATION
    return VALIDATION if evaluates else UNKNOWN


def _precedes_training(waiting: Pass, interval: Interval) -> bool:
    for other in interval.passes:
        if other is waiting:
            return True
        if other.grad and other.reached is not False:
            return False
    return False
