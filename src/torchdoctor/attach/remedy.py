"""What is done about a loss or gradient that is not finite, where the user asked for more than a report.

    skip      the update is left out: weights, buffers and optimizer state are what they were before the step
    halt      TrainingHalted, with the verdict, before the update
    rollback  weights, buffers and optimizer state go back to the last snapshot, and the next batch follows

A hook cannot cancel an update, so the gradients are taken away for the time of the call (every optimizer of torch
leaves a parameter without one alone) and given back after it. Where an optimizer computes its gradients itself, in
a closure, they are taken away when its backward ends. All gradients are looked at before every update; those of a
device are waited for, in these modes only.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer

from torchdoctor import stats
from torchdoctor.attach.guard import contained, guarded
from torchdoctor.attach.options import HALT, REPORT, ROLLBACK, SKIP
from torchdoctor.attach.ranks import is_together
from torchdoctor.attach.snapshots import Buffers, Cadence, Snapshot, broken, gather, holds_nan, is_sound
from torchdoctor.errors import HALTED, TrainingHalted
from torchdoctor.facts import RemedyFact
from torchdoctor.interruptions import let_through
from torchdoctor.stats.support import Quiet

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session

log = logging.getLogger("torchdoctor")

IN_A_ROW = 3
"""Rollbacks to one snapshot: what breaks a fourth time will not be mended by going back once more."""
EVERY_TOGETHER = 100
"""Updates between snapshots where several processes train together: they must all keep the same steps, whatever their
clocks say."""
PATIENCE = 30.0
"""Seconds that a halt waits for the step to be run again: a step under inspection takes some hundred times as long."""
BUFFER_BYTES = 256 << 20
"""Copies of buffers in skip mode. Batch statistics take a few KB; tables that never change need not fit."""
STEPS_KEPT = 64
"""Steps that the record lists; of more there is the number."""


class Remedy:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.mode = session.options.on_nonfinite
        self.on = self.mode != REPORT
        self.tripped = False
        """the update that begins, or whose closure runs, is not to be made"""
        self._taken: dict[int, list[tuple[Tensor, Tensor]]] = {}
        """gradients that were taken away, by optimizer"""
        self._closure: Optimizer | None = None
        self._evaluations = 0
        self._state_before: dict[Any, Any] | None = None
        self._weights_before: list[Tensor] = []
        """of an optimizer that searches its way through many evaluations, and may end it beyond all numbers"""
        self._reached: list[Tensor] = []
        """parameters behind a loss that is not finite, whose backward runs"""
        self._tainted: dict[int, tuple[weakref.ref[Tensor], weakref.ref[Tensor]]] = {}
        """parameters with the gradients that such a backward has left"""
        self._late = False
        """a loss of an earlier step turns out not to be finite; a device tells late"""
        self._buffers = Buffers(BUFFER_BYTES)
        self._snapshot = Snapshot(session.options.rollback_bytes)
        self._returns = 0
        self._cadence = Cadence()
        self._step, self._updated = -1, set[int]()
        """the step, and which optimizers have made their update in it"""
        self._back_at = -1
        self._skipped: list[int] = []
        self._back: list[tuple[int, int]] = []
        self._skips = self._rollbacks = self._written = 0
        self._halted: int | None = None
        self._spoilt: str | None = None

    # -- what broke --------------------------------------------------------------------

    @contained("remedy: loss")
    def loss_broke(self, root: Tensor | None) -> None:
        """A loss is not finite; `root` is what its backward begins from, None where that is over."""
        if not self.on or is_together():  # one process alone must not decide: the gradients are the same in all
            return
        if root is None:
            self._late = self.mode != SKIP
        else:
            self._reached = list(_leaves(root))

    def backward_begins(self) -> None:
        """A loss that the script found broken by itself, and let go without a backward, is nobody's any more."""
        self._reached = []

    @property
    def halting(self) -> bool:
        """At the beginning of a backward: is this where the run ends?"""
        return self.mode == HALT and bool(self._reached or self._late) and os.getpid() == self._session.pid

    @contained("remedy: backward over")
    def backward_over(self) -> None:
        if self._reached:
            marked = [(p, p.grad) for p in self._reached if p.grad is not None]
            self._tainted |= {id(p): (weakref.ref(p), weakref.ref(grad)) for p, grad in marked}
            self._reached = []
        if self._closure is not None:
            self._evaluations += 1
            searching = isinstance(self._closure, LBFGS) and self._evaluations > 1
            self.tripped = not searching and (self.tripped or self._is_broken(self._closure))

    def inside_closure(self) -> None:
        """The backward of an optimizer's own closure has ended, and whoever wants to see its gradients has."""
        if self._closure is not None and self.tripped and os.getpid() == self._session.pid:
            self._leave_out(self._closure)

    def cleared(self, target: Optimizer | nn.Module) -> None:
        """Gradients were set to zero."""
        if self._tainted:
            for parameter in _held(target) if isinstance(target, Optimizer) else target.parameters():
                self._tainted.pop(id(parameter), None)

    @guarded("remedy: look")
    def look(self, optimizer: Optimizer, closure: bool) -> None:
        """An update begins."""
        self._give_back(optimizer)  # of a call that raised
        self.tripped = False
        self._closure, self._evaluations = (optimizer if closure else None), 0
        if isinstance(optimizer, LBFGS):
            self._state_before = {p: dict(state) for p, state in optimizer.state.items()}
            self._weights_before = [p.detach().clone() for p in _held(optimizer)] if self.mode != HALT else []
        if not closure:
            self.tripped = self._is_broken(optimizer)

    def _is_broken(self, optimizer: Optimizer) -> bool:
        if self._back_at == self._session.context.step or self._late:
            return True
        tainted = self._is_tainted(optimizer)
        scaler = getattr(optimizer, "found_inf", None)
        if scaler is not None:  # the scaler leaves the update out inside the optimizer
            return tainted and not float(scaler)
        graded = [p for p in _held(optimizer) if p.grad is not None]
        bad = broken([p.grad for p in graded if p.grad is not None])
        context = self._session.context
        for i in bad[:1]:
            name = context.names.name_of(graded[i]) or "parameter"
            context.nonfinite("gradient", name, 1, context.step)
        return tainted or bool(bad)

    def _is_tainted(self, optimizer: Optimizer) -> bool:
        if not self._tainted:
            return False
        marks = ((p, self._tainted.get(id(p))) for p in _held(optimizer))
        return any(m is not None and m[0]() is p and p.grad is not None and m[1]() is p.grad for p, m in marks)

    # -- what is done ----------------------------------------------------------------------

    @guarded("remedy: act")
    def act(self, optimizer: Optimizer) -> None:
        """The last thing before the update."""
        if os.getpid() != self._session.pid:
            return
        if self.tripped:
            self._leave_out(optimizer)
        elif self._step < 0:
            self._begin(optimizer)

    def _leave_out(self, optimizer: Optimizer) -> None:
        first = id(optimizer) not in self._taken
        if first and self._must_halt():
            self.halt()
        taken = self._taken.setdefault(id(optimizer), [])
        for parameter in _held(optimizer):
            if parameter.grad is not None:
                if first:
                    taken.append((parameter, parameter.grad))
                parameter.grad = None

    def _must_halt(self) -> bool:
        return self.mode == HALT or (self.mode == ROLLBACK and self._returns >= IN_A_ROW)

    def halt(self) -> None:
        """End the training with what is known by now."""
        session = self._session
        self._halted = session.context.step
        self._reached, self._late, self.tripped, self._closure = [], False, False, None
        self._write()
        session.hunt.poll(PATIENCE)
        if torch.cuda.is_initialized():
            session.deferred.drain()
        raise TrainingHalted(self._words())

    def _words(self) -> str:
        why = f" after {IN_A_ROW} rollbacks to the same snapshot" if self.mode == ROLLBACK else ""
        said = f"{HALTED} {self._halted}{why}: the loss or a gradient is not finite"
        try:
            verdict = self._session.findings_so_far()
            finding = verdict.findings[0] if verdict is not None and verdict.findings else None
        except Exception as error:
            let_through(error)
            log.debug("torchdoctor: no verdict for the halt", exc_info=True)
            return said
        if finding is None:
            return said
        place = next((f" ({p.file}:{p.line})" for p in finding.where if p.file and p.line), "")
        born = next((f"; {e.text}" for e in finding.evidence if e.signal == "birth"), "")
        return f"{said}. {finding.name}: {finding.title.rstrip('.')}{place}{born}"

    @guarded("remedy: after")
    def after(self, optimizer: Optimizer) -> None:
        """The optimizer is done, with an update or without."""
        self._closure = None
        for parameter in _held(optimizer) if self._tainted else ():
            self._tainted.pop(id(parameter), None)
        if id(optimizer) in self._taken or self._is_lost(optimizer):
            self._give_back(optimizer)
            self._left_out()
        else:
            self._made(optimizer)
        self.tripped = False

    def _is_lost(self, optimizer: Optimizer) -> bool:
        """A search that ended in weights that are not finite is undone."""
        before, self._weights_before = self._weights_before, []
        held = list(_held(optimizer))
        if not before or not broken([p.detach() for p in held]):
            return False
        with Quiet():
            for parameter, value in zip(held, before, strict=True):
                parameter.data.copy_(value)
        self._taken[id(optimizer)] = []
        return True

    def _give_back(self, optimizer: Optimizer) -> None:
        taken = self._taken.pop(id(optimizer), None)
        for parameter, gradient in taken or ():
            parameter.grad = gradient
        if taken is not None and self._state_before is not None and isinstance(optimizer, LBFGS):
            optimizer.state.clear()
            optimizer.state.update(self._state_before)
        self._state_before = None

    def _left_out(self) -> None:
        session = self._session
        step = session.context.step
        if self.mode == ROLLBACK:
            self._go_back(step)
        else:
            self._buffers.put_back()
            self._count_skip(step)
        session.wiring.forget_marks()

    @contained("remedy: scaler")
    def scaler_skipped(self, optimizer: Optimizer) -> None:
        """A gradient scaler left the update out by itself. What a bad batch did beside that is still to be mended."""
        if not self.on:
            return
        broke = self._is_tainted(optimizer) or self._late
        self._tainted.clear()
        if broke and self.mode == ROLLBACK:
            if self._must_halt():
                self.halt()
            self._go_back(self._session.context.step)
        elif broke:
            self._buffers.put_back()

    # -- the way back -------------------------------------------------------------------------

    def _go_back(self, step: int) -> None:
        self._late = False
        if self._back_at == step:  # another optimizer's update of a step that was taken back
            return
        self._returns += 1
        if self._snapshot.step is None:
            self._count_skip(step)
            return
        self._back_at = step
        self._cadence.restart()
        self._snapshot.put_back()
        self._rollbacks += 1
        if len(self._back) < STEPS_KEPT:
            self._back.append((step, self._snapshot.step))
        log.warning("torchdoctor: step %d is not finite; back to the state of step %d", step, self._snapshot.step)
        self._write()

    def _count_skip(self, step: int) -> None:
        self._skips += 1
        if len(self._skipped) < STEPS_KEPT:
            self._skipped.append(step)
        if self._skips == 1:
            log.warning("torchdoctor: step %d is not finite; its update is left out; others are counted", step)
        self._spoilt = self._spoilt or next((name for name, b in self._named_buffers() if holds_nan(b)), None)
        self._write()

    def _begin(self, optimizer: Optimizer) -> None:
        """Before the first update."""
        self._step = self._session.context.step
        odd = next((why for p in _held(optimizer) if (why := stats.unsupported(p)) is not None), None)
        if odd is not None:
            self._session.context.unsupported["on_nonfinite"] = f"gradients of {odd} are not looked at"
        if self.mode == ROLLBACK:
            self._keep()
        elif self.mode == SKIP:
            self._buffers.watch(b for _, b in self._named_buffers())

    def _made(self, optimizer: Optimizer) -> None:
        """A good update."""
        session = self._session
        if session.context.step != self._step:
            self._step = session.context.step
            self._updated.clear()
        self._updated.add(id(optimizer))
        if self.mode == SKIP:
            if session.structural:
                self._buffers.watch(b for _, b in self._named_buffers())
            self._buffers.keep()
        elif self.mode == ROLLBACK and len(self._updated) >= session.loop.at_work and self._cadence.count():
            self._keep()

    def _keep(self) -> None:
        session = self._session
        optimizers, weights, buffers = gather(session.registry)
        self._cadence.restart()
        begun = perf_counter()
        sound = is_sound(weights, buffers)
        step = session.context.step + bool(self._updated)
        why = self._snapshot.take([*weights, *buffers], optimizers, step) if sound else None
        if why is not None:
            session.context.unsupported["rollback"] = f"{why}; updates are left out instead"
        self._cadence.spent(perf_counter() - begun)
        if is_together():
            self._cadence.every = EVERY_TOGETHER
        self._returns = 0 if sound else self._returns

    def _named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        for _, model in self._session.registry.live_models():
            yield from model.named_buffers()

    # -- the record -----------------------------------------------------------------------------

    def _write(self, last: bool = False) -> None:
        """Each of the first; then fewer and fewer, and all at the end."""
        count = self._skips + self._rollbacks
        if not last and self._halted is None and count > STEPS_KEPT and count < 2 * self._written:
            return
        self._written = count
        fact = RemedyFact(
            mode=self.mode,
            skips=self._skips,
            skipped=list(self._skipped),
            rollbacks=self._rollbacks,
            rolled_back=[list(pair) for pair in self._back],
            halted=self._halted,
            spoilt=self._spoilt,
        )
        self._session.record.fact(fact, self._session.context.step)

    @contained("remedy: close")
    def close(self) -> None:
        if self.on:
            self._write(last=True)


def _held(optimizer: Optimizer) -> Iterator[Tensor]:
    return (p for group in optimizer.param_groups for p in group["params"])


def _leaves(root: Tensor) -> Iterator[Tensor]:
    """The parameters that a backward from here gives gradients to."""
    if root.grad_fn is None:
        return
    seen, waiting = {root.grad_fn}, [root.grad_fn]
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            yield node.variable
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
