"""One watched run in one process: the probes, the loop they serve, and the record they write.

`Session` turns events (see sites.py) into measurements. It knows the current step and which looks it gets, holds
what must wait until a pass's phase is known, and closes everything at the end.
"""

from __future__ import annotations

import logging
import math
import os
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from time import thread_time
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor.attach import guard
from torchdoctor.attach.capturing import Capturing
from torchdoctor.attach.ceiling import LATER_PART, Ceiling
from torchdoctor.attach.closing import close_loop
from torchdoctor.attach.deferred import Deferred
from torchdoctor.attach.governor import Governor
from torchdoctor.attach.last_words import tell_loss
from torchdoctor.attach.lines import LineTracing
from torchdoctor.attach.live import LiveEngine
from torchdoctor.attach.loop import Loop
from torchdoctor.attach.options import EXCEPTION, NONFINITE, OVERHEAD, SPIKE, Options
from torchdoctor.attach.probing import Probes
from torchdoctor.attach.ranks import find_rank
from torchdoctor.attach.recording import LateRecorder
from torchdoctor.attach.registry import Registry
from torchdoctor.attach.remedy import Remedy
from torchdoctor.attach.rolling import Rolling
from torchdoctor.attach.steady import Steady
from torchdoctor.attach.unused_losses import UnusedLosses
from torchdoctor.attach.waiting import PassWriter
from torchdoctor.errors import TorchdoctorError
from torchdoctor.facts import (
    UNKNOWN,
    LoaderFact,
    ModelFact,
)
from torchdoctor.findings import Verdict
from torchdoctor.interruptions import let_through
from torchdoctor.probes import forking, memory, regularizers
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import layer_inputs, saved_inputs, saved_targets
from torchdoctor.probes.nonfinite import apart
from torchdoctor.probes.spikes import LossWatch
from torchdoctor.run import Run

log = logging.getLogger("torchdoctor")

NORMS, TENSORS, BATCH, LOOK = "norms", "tensors", "batch", "look"
TOO_LATE = "on a device the step is over when its loss is known"
UNDECIDED_STEPS = 3
"""Steps before which it is not known which optimizers share a step; all that exist are taken to."""
PASS_LOOKS = frozenset((BATCH, LOOK))
"""Looks at what goes through the model; a step may have many passes."""
PARTS = {TENSORS: 64, LOOK: 8}
"""Looks that can be divided, and into how many parts."""
SHARES = {NORMS: 0.25, TENSORS: 0.25, BATCH: 0.2, LOOK: 0.3}
"""How the overhead budget is divided between the kinds of look."""
STRUCTURE_STEPS = frozenset((0, 1, 2, 3, 5, 8, 12, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 100_000))
"""Steps at which wiring and graph are read again."""

_STRUCTURE_ORDER = [*sorted(STRUCTURE_STEPS), math.inf]

Examine = Callable[[Run], Verdict]


class Session(Probes):
    """All state of one watched run."""

    def __init__(self, options: Options, examine: Examine | None = None) -> None:
        guard.reset()
        if torch.cuda.is_available():
            guard.STATE.capturing = torch.cuda.is_current_stream_capturing
        self.options = options
        self.examine = examine
        self.rank = find_rank() or 0
        self.record = LateRecorder(options, self.rank)
        self.registry = Registry(options.modules)
        self.deferred = Deferred()
        budget = OVERHEAD if options.overhead is None else options.overhead
        self.ceiling = Ceiling(None if options.every_step else budget)
        self.registry.can_spend = self.ceiling.can_spend
        self.context = Context(self.record, self.registry, self.deferred.read, self.ceiling)
        writer = PassWriter(self)
        self.loop = Loop(writer.pass_known, writer.validation_ended)
        self.governor = Governor(
            budget,
            SHARES,
            dense=frozenset({NORMS}),
            every_step=options.every_step,
            ceiling=self.ceiling,
            parts=PARTS,
        )
        self.steady = Steady(self)
        self.lines = LineTracing(self.ceiling)
        self.live = LiveEngine(self, examine) if examine else None
        if self.live:
            self.context.on_nonfinite = self.live.alarm
        super().__init__(self.context, self.loop, options, self.loss_nonfinite, self._loss_high)
        self.capturing = Capturing(self)
        self.rolling = Rolling(self)
        self.remedy = Remedy(self)
        self.unused_losses = UnusedLosses(self)
        self.look_cost: dict[str, float] = {}
        self._passed_over: frozenset[str] = frozenset()
        """looks of this step that its later passes do not get"""
        self.batch: list[Tensor] = []
        self.targets: list[Tensor] = []
        self._failed: tuple[list[weakref.ref[Tensor]], list[weakref.ref[Tensor]]] = [], []
        """batch and targets of the last pass that raised"""
        self.root: Tensor | None = None
        """the loss whose backward begins now"""
        self.validation_sites: dict[str, None] = {}
        self.notes: dict[str, None] = {}
        self.loaders: dict[str, LoaderFact] = {}
        self.grad_losses = 0
        self.compiled = False
        self.finished = False
        self.failure: str | None = None
        self.on_turn: Callable[[], None] = lambda: None
        self.on_finish: Callable[[], None] = lambda: None
        self.forward_input: Callable[[], Tensor | None] = lambda: None
        """the first input of the last forward pass, where that is known"""
        self.forget_input: Callable[[], None] = lambda: None
        self.pid = os.getpid()
        self.context.looks = self.governor.plan(0)
        self.structural = True
        """wiring and graph are read on this step"""
        self._described_models: set[str] = set()

    # -- steps ------------------------------------------------------------------

    @property
    def several(self) -> bool:
        """More than one optimizer is at work in a step: losses and norms are kept apart by optimizer. Optimizers of
        stages that follow one another go on in one record."""
        if self.loop.step < UNDECIDED_STEPS:
            return sum(1 for _ in self.registry.live_optimizers()) > 1
        return self.loop.at_work > 1

    def key(self, optimizer_key: str) -> str:
        return optimizer_key if self.several else ""

    def turn(self) -> None:
        """Begin the next step if the loop has moved on."""
        if self.loop.step == self.context.step:
            return
        previous = self.context.step
        if not self.loop.stepped_ever:
            self.training_loss.flush(self.deferred.after)
        seconds, own = self.clock.finish(previous, guard.STATE.own_now())
        looked = 0.0
        if self.look_cost:
            for name, cost in self.look_cost.items():
                self.governor.spent(name, cost, previous)
                looked += cost
            self.look_cost = {}
        self._passed_over = frozenset()
        self.governor.earned(seconds, min(own, seconds), looked, previous)
        self.context.step = step = self.loop.step
        self.context.looks = self.governor.plan(step)
        self.read_in_full(step)
        self.deferred.poll()
        self.sharpness.poll()
        self.hunt.poll()
        if self.live:
            self.live.tick(self.loop.step)

    def read_in_full(self, step: int) -> None:
        """The step that begins is not only counted."""
        self.structural = self.precision.gate.open = self.is_structural(step)
        if self.structural:
            self.step_start.look()
        looks = self.context.looks
        self.device.plan(step, LOOK in looks, self.structural or bool(looks), self.governor.training_seconds)
        if self.device.measuring:
            self.context.looks = frozenset()
        self.synchronisations.plan(LOOK in self.context.looks)
        self.on_turn()

    @property
    def is_training(self) -> bool:
        """Gradients are recorded, and a model is in training mode, as far as any is known."""
        models = [model for _, model in self.registry.live_models()]
        return torch.is_grad_enabled() and (not models or any(model.training for model in models))

    @property
    def waiting(self) -> bool:
        """Something that happened between steps is to be looked at when the next update begins."""
        state = self.custody.waiting or self.resuming.waiting or self.frozen_state.waiting
        return bool(state or self.turning.waiting or self.device.measuring)

    def next_full_step(self, step: int) -> float:
        """From which step on counting is not enough, as far as it is known beforehand."""
        if self.governor.detailed:
            return step
        structural = _STRUCTURE_ORDER[bisect_left(_STRUCTURE_ORDER, step)]
        return min(structural, self.governor.full_at, self.device.due_at)

    def is_structural(self, step: int) -> bool:
        return step in STRUCTURE_STEPS or self.options.every_step

    def spend(self, name: str, since: float) -> None:
        """A look has cost this thread the processor time since then."""
        seconds = thread_time() - since
        self.look_cost[name] = self.look_cost.get(name, 0.0) + seconds
        self.ceiling.charge(seconds)

    def looks_at_pass(self, name: str) -> bool:
        """Whether the pass that runs gets this look of the step."""
        return name in self.context.looks and name not in self._passed_over

    def pass_ended(self) -> None:
        """A backward has ended. If another pass of the same step follows (a further micro-batch, a further loss) it is
        looked at where that costs next to nothing."""
        if self.options.every_step:
            return
        passes = max(1, self.loop.backwards_since_step)
        costs = {name: self.look_cost.get(name, 0.0) / passes for name in PASS_LOOKS & self.context.looks}
        self._passed_over |= {n for n, cost in costs.items() if not self.ceiling.can_spend(cost, LATER_PART)}

    def pass_failed(self, inputs: Iterable[Tensor] = ()) -> None:
        """A forward pass, a loss function or a backward pass raised. The script may free everything of it and try again
        with less, so from here on the script alone decides what stays alive."""
        last = self.forward_input()
        inputs = [*self.batch, *inputs, *([] if last is None else [last])]
        self._failed = [weakref.ref(t) for t in inputs], [weakref.ref(t) for t in self.targets]
        self.batch, self.targets, self.root = [], [], None
        self.forget_input()
        self.loop.forget_inputs()
        self.token_targets.forget()

    def _recover_failed(self) -> None:
        """The script ends with an error: what it still holds of the pass that raised belongs to the capture."""
        if not self.batch and not self.targets:
            alive = ({t.data_ptr(): t for ref in refs if (t := ref()) is not None} for refs in self._failed)
            self.batch, self.targets = (list(tensors.values()) for tensors in alive)

    def begin_record(self, *, anew: bool = False) -> None:
        """Training has begun: from now on there is a run directory. Without one there is nothing to do here."""
        if self.record.started or self.failure is not None:
            return
        try:
            self.record.start(self, anew=anew)
        except Exception as error:
            let_through(error)
            known = isinstance(error, TorchdoctorError)
            self.failure = str(error) if known else f"{type(error).__name__}: {error}"
            log.warning("torchdoctor: this run is not recorded: %s; training goes on without torchdoctor", self.failure)
            self.lines.stop()
            self.on_finish()

    # -- models -------------------------------------------------------------------

    def discover(self, reached: list[Tensor]) -> None:
        """Find the models behind what is optimized and reached; their names replace older ones."""
        discovery = self.registry.discover(reached)
        if discovery.found:
            self.tensors.forget_columns()
        if discovery.renamed:
            self.tensors.forget_names()
            self.wiring.renamed()
            self.custody.renamed()
        self.describe_models()

    def describe_models(self) -> None:
        for name, model in self.registry.live_models():
            if name not in self._described_models:
                self._described_models.add(name)
                parameters = list(model.parameters())
                fact = ModelFact(
                    name=name,
                    type=type(model).__name__,
                    parameters=sum(p.numel() for p in parameters),
                    trainable=sum(p.numel() for p in parameters if p.requires_grad),
                    modules=sum(1 for _ in model.modules()),
                    compiled=self.compiled,
                )
                self.record.fact(fact, self.context.step, name)
                regularizers.look(self.context, name, model)

    # -- looks at an update -----------------------------------------------------------

    def look_at_gradients(self, key: str, optimizer: Optimizer) -> None:
        """Gradients and weights as the update finds (or, with a closure, leaves) them."""
        start = thread_time()
        if TENSORS in self.context.looks:
            self.tensors.look_all(key, optimizer, self.several)
            self.spend(TENSORS, start)
        elif NORMS in self.context.looks:
            self.tensors.look_norms(key, optimizer, self.several)
            self.spend(NORMS, start)
        if self.turning.waiting or LOOK in self.context.looks:
            self.look_at_turning(key, optimizer)

    def hunt_gradients(self, optimizer: Optimizer | None = None) -> None:
        """The last thing before an update: if a gradient is not finite, find out where that began."""
        if self.structural:
            self.hunt.choose(self.graph.orders)
        if self.context.bad_gradients_at == self.context.step or self.remedy.tripped or self.hunt.watch():
            self.capturing.take(NONFINITE)
            self.hunt.gradient_broke()
            self.hunt.begin(optimizer)

    def look_at_turning(self, key: str, optimizer: Optimizer) -> None:
        start = thread_time()
        self.turning.compare(key, self.several)
        if LOOK in self.context.looks:
            self.turning.keep(key, optimizer)
        self.spend(LOOK, start)

    def before_update(self, key: str, optimizer: Optimizer) -> None:
        if LOOK in self.context.looks:
            start = thread_time()
            self.updates.before(*self.tensors.chosen(key, optimizer))
            self.spend(LOOK, start)
        start = thread_time()
        if self.structural or self.custody.waiting or self.resuming.waiting or self.frozen_state.waiting:
            self._look_at_state(key, optimizer)
        if self.structural:
            self.wiring.before_step()
            self.frozen.look(key, optimizer, self.registry.loaded)
        self.ceiling.charge(thread_time() - start)

    def _look_at_state(self, key: str, optimizer: Optimizer) -> None:
        self.custody.before_step(key, optimizer, self.structural)
        self.resuming.before_step(key, optimizer)
        if self.structural or self.frozen_state.waiting:
            self.frozen_state.before_step()

    def epoch_ended(self, walked: bool = False) -> None:
        """A loader was walked through, or a model's mode changes."""
        self.steady.leave()
        if walked and self.custody.waiting:
            self.custody.validated()
        self.custody.boundary(self.loop.updates)
        self.frozen_state.boundary(self.loop.updates)

    def after_update(self, key: str) -> None:
        if LOOK in self.context.looks:
            start = thread_time()
            self.updates.after()
            memory.look(self.context)
            self.spend(LOOK, start)
        start = thread_time()
        if self.structural:
            self.wiring.after_step(key)
            self.custody.after_step()
            self.precision.stepped()
            self.wiring.write(self.loop.updates, self.registry.loaded)
            self.tensors.describe(self.graph.orders)
            self.describe_loop(self.context.step)
            self.library_warnings.look()
        else:
            self.wiring.forget_marks()
            if self.custody.alert:
                self.custody.after_step()
        if self.structural or self.frozen_state.looking:
            self.frozen_state.after_step(key, self.loop.updates)
        self.ceiling.charge(thread_time() - start)

    def _loss_high(self, step: int, value: float, watch: LossWatch) -> None:
        if self.live:
            self.live.alarm()
        self.capturing.take(SPIKE, step)
        if self.spikes.done or self.root is None:
            return
        targets = self.targets or saved_targets(self.root)
        known = {t.data_ptr() for t in targets}
        inputs = [t for t in self.batch if t.data_ptr() not in known] or saved_inputs(self.root)
        self.spikes.examine(step, value, watch, inputs, targets)

    def loss_nonfinite(self, step: int, value: float) -> None:
        place = next(iter(self.loss_sites), "loss")
        self.context.nonfinite("loss", place, 1, step, nan=int(value != value))
        if not self.targets and self.root is not None:
            self.targets = saved_targets(self.root)
        known = {t.data_ptr() for t in self.targets}
        inputs = [t for t in self.batch if t.data_ptr() not in known]
        if not inputs and self.root is not None:
            inputs = saved_inputs(self.root)
        is_here = self.root is not None and self.root.is_cpu
        if is_here or step == self.context.step:
            self.nonfinite.examine(step, inputs, self.targets)
        else:
            self.nonfinite.examine(step, *apart(self.rolling.given(step), self.targets))
        if is_here and self.root is not None:
            known |= {t.data_ptr() for t in inputs}
            self.nonfinite.examine_model(step, [t for t in layer_inputs(self.root) if t.data_ptr() not in known])
        self.operations.trace(self.root)
        if is_here:
            self.hunt.loss_broke(inputs, self.targets)
        else:
            after = "; torchdoctor replay runs it again" if NONFINITE in self.options.capture else ""
            self.context.unsupported.setdefault("birth", TOO_LATE + after)
        self.capturing.take(NONFINITE, step, value)
        self.remedy.loss_broke(self.root)

    def flush(self, patience: float) -> None:
        """The process ends without coming back to us."""
        self.record.flush(patience)

    def leaving_early(self, error: BaseException) -> None:
        """The script ends with this, before its end."""
        self._recover_failed()
        tell_loss(self, error)

    # -- the end ----------------------------------------------------------------------------

    def findings_so_far(self) -> Verdict | None:
        if self.examine is None or not self.record.started:
            return None
        return self.examine(self.record.run())

    def finish(
        self, status: str = "finished", exception: dict[str, Any] | None = None, *, untrained: bool = False
    ) -> Verdict | None:
        """Close the record and ask the rules about the whole run. None if nothing was trained, unless a record of an
        `untrained` program is wanted, too."""
        forking.end_child()
        if self.finished or os.getpid() != self.pid:
            return None
        self.finished = True
        self.on_finish()
        guard.STATE.inside = True
        try:
            close_loop(self, crashed=exception is not None, abrupt=status != "finished", untrained=untrained)
            if exception is not None:
                self.capturing.take(EXCEPTION)
        finally:
            guard.STATE.inside = False
        if not self.record.started:
            return None
        if exception:
            self.record.update_info(exception=self.inplace.explain(exception) or exception)
        self.inplace.close()
        self.capturing.close()
        self.record.close(status)
        if self.examine is None or self.rank != 0:
            return None
        return self.examine(self.record.stored_run())

    def unstepped_backward(self) -> None:
        """No optimizer has stepped yet: whether parameters change all the same shows from backward to backward."""
        self.wiring.at_backward()
        self.wiring.write(0, self.registry.loaded)
        self.describe_loop(self.context.step)

    def describe_loop(self, step: int) -> None:
        for name, fact in self.loaders.items():
            self.record.fact(replace(fact, phase=self.loop.loader_phases.get(name, UNKNOWN)), step, name)
        self.record.fact(self.loop.describe(list(self.loss_sites), list(self.validation_sites), list(self.notes)), step)

    @property
    def directory(self) -> Path:
        return self.record.directory


def start(options: Options, examine: Examine | None = None) -> Session:
    """Attach to torch in this process. Every loop from now on is watched, until `finish`."""
    from torchdoctor.attach.install import Installation

    session = Session(options, examine)
    session.on_finish = Installation(session).remove
    _RUNNING[:] = [session]
    return session


_RUNNING: list[Session] = []


def current() -> Session | None:
    """The session that watches this process, if there is one."""
    running = _RUNNING[0] if _RUNNING else None
    return running if running is not None and not running.finished and running.pid == os.getpid() else None
