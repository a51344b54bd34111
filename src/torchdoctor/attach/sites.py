"""The guarded functions that torch calls: each turns one patched call into an event for the session."""

from __future__ import annotations

from collections.abc import Callable, ValuesView
from threading import get_ident
from time import thread_time
from types import GeneratorType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from torchdoctor import stats
from torchdoctor.attach import guard
from torchdoctor.attach.clearing import ClearingCheck
from torchdoctor.attach.guard import guarded
from torchdoctor.attach.patches import Switch
from torchdoctor.attach.places import Place, caller, direct_caller
from torchdoctor.attach.scaling import ScalerSites
from torchdoctor.attach.session import LOOK, Session
from torchdoctor.attach.steady import is_inside_backward
from torchdoctor.attach.waiting import SITES_KEPT
from torchdoctor.facts import CallSiteFact
from torchdoctor.probes.device import BACKWARD, FORWARD, UPDATE
from torchdoctor.probes.graph import Graph
from torchdoctor.probes.inplace import first_root

ITEMS_KEPT = 4
GRAD_ARGUMENTS = ("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph")
"""of torch.autograd.grad"""


def _are_parameters(inputs: Any) -> bool:
    """Whether these hold a parameter. An iterator is left as it is, for torch to walk through; that of
    Module.parameters() is known by its code."""
    if isinstance(inputs, GeneratorType):
        return inputs.gi_code is torch.nn.Module.parameters.__code__
    values = inputs.values() if type(inputs) is dict else (inputs,) if isinstance(inputs, Tensor) else inputs
    return isinstance(values, list | tuple | ValuesView) and any(isinstance(each, Parameter) for each in values)


class Sites:
    """Handlers for everything but forward passes (forward.py), data loaders (loaders.py) and scalers (scaling.py)."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.clearing = ClearingCheck(session.context)
        self.scaling = ScalerSites(session, self.clearing, lambda: self._stepped)
        session.steady.on_leaving_late = self.clearing.forget
        self.arm: Callable[[], None] = lambda: None
        self.grad_off: Callable[[bool], None] = lambda _: None
        self.forget_calls: Callable[[], None] = lambda: None
        self.hooks_in: Callable[[], bool] = lambda: False
        self.reads: Switch | None = None
        """numbers read from tensors are of interest inside no_grad blocks only"""
        self._no_grad_blocks = 0
        self._backward_depth = 0
        self._called_backward = False
        self._mode_depth = 0
        self._stepped = 0
        self._stepping = False
        self._closures: set[int] = set()
        self._last_sites: set[tuple[str, str, int]] = set()

    # -- numbers -------------------------------------------------------------------------

    @guarded("number read")
    def item_read(self, _token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], value: Any) -> None:
        """A hand-written validation loss shows when its value is read on a line that speaks of a loss."""
        loop = self.session.loop
        if self._stepping or type(value) is not float or not loop.backwards:
            return
        if args[0].requires_grad or torch.is_grad_enabled():
            return
        place = direct_caller()
        if place is None or "loss" not in place.code.lower():
            return
        if loop.is_by_hand and value in self.session.training_loss.pending():
            return  # the update by hand reads the loss that it was made from
        self.session.steady.leave()
        seen = loop.evaluating() or loop.loss(False)
        seen.losses += 1
        items = seen.data.setdefault("items", [])
        if len(items) < ITEMS_KEPT:
            items.append((value, place))

    # -- backward --------------------------------------------------------------------

    @guarded("backward begins")
    def backward_begins(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        if is_inside_backward():
            self._backward_depth += 1
            return False
        self._called_backward = True
        self._begin_backward(first_root(args, kwargs))
        return True

    @guarded("gradients begin")
    def gradients_begin(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """torch.autograd.grad. It is the backward pass of a training where the script has neither an optimizer nor a
        backward of its own, and the gradients are those of parameters and not differentiated further."""
        self.session.lines.pause()  # while they are kept, torch would say more of an error than the script asked for
        if self._called_backward or self.session.loop.calls or is_inside_backward():
            return False
        call = dict(zip(GRAD_ARGUMENTS, args, strict=False)) | kwargs
        if call.get("create_graph") or not _are_parameters(call.get("inputs")):
            return False
        self._begin_backward(first_root((call.get("outputs"),), {}))
        return True

    def _begin_backward(self, loss: Tensor | None) -> None:
        self._forget_unended()
        self._backward_depth = 1
        session = self.session
        session.steady.leave()
        if guard.STATE.thread is None:
            guard.STATE.thread = get_ident()
            session.registry.keep_thread(guard.STATE.thread)
            session.registry.held()
        self.forget_calls()
        session.begin_record()
        session.unused_losses.forget()
        self.clearing.before_backward()
        session.loop.backward()
        session.turn()
        if session.device.measuring:
            session.device.end(FORWARD)
        session.clock.backward_begins(guard.STATE.own_seconds)
        session.remedy.backward_begins()
        if loss is not None and not stats.has_own_dispatch(loss):
            self._look_at_root(loss)
        elif loss is not None:
            session.context.unsupported.setdefault("loss", stats.unsupported(loss) or "it cannot be read")
        if session.structural:
            if session.loop.backwards_since_step == 1:
                session.step_start.compare()
            if not session.loop.stepped_ever:
                session.unstepped_backward()
        session.lines.pause()
        if session.device.measuring:
            session.device.begin(BACKWARD)
        session.hunt.begin()
        if session.remedy.halting:
            self._backward_depth = 0
            session.remedy.halt()

    def _forget_unended(self) -> None:
        """Calls whose end was not reported, since an exception from outside came just as they began."""
        self._mode_depth = 0
        if torch.is_grad_enabled():
            self._no_grad_blocks = 0

    def _look_at_root(self, loss: Tensor) -> None:
        session = self.session
        looking = session.looks_at_pass(LOOK)
        graph = None
        if session.structural or looking:
            start = thread_time()
            place = caller()
            if place and len(session.loss_sites) < SITES_KEPT:
                session.loss_sites.setdefault(str(place))
                self._note_site("backward", place)
            graph = session.graph.look(loss, place, str(place or "loss"))
            if graph is not None:
                self._look_at_graph(loss, graph, place, looking)
            session.activations.finish()
            session.spend(LOOK, start)
        if session.structural:
            session.precision.look(loss, graph)
        if loss.numel() == 1:
            try:
                session.root = loss
                original, divisor = self.scaling.original(loss)
                session.training_loss.backward(original, divisor)
            finally:
                session.root = None

    def _look_at_graph(self, loss: Tensor, graph: Graph, place: Place | None, looking: bool) -> None:
        session = self.session
        leaves = [leaf for leaf, _ in graph.reached.values()]
        if session.structural:
            session.discover([leaf for leaf in leaves if isinstance(leaf, Parameter)])
            session.graph.place(graph)
            if not graph.cut:
                session.device.look_at_work(loss, graph)
        session.wiring.graph_reached(leaves, session.registry.stray_parameters())
        session.liveness.look(loss, graph)
        session.operations.look(loss, graph)
        if session.loop.backwards_since_step == 1:
            session.token_targets.look(loss, session.targets, place)
        if looking:
            session.activations.graph(graph)
        session.interior.look(graph, session.batch, structural=session.structural and not graph.cut, looking=looking)

    @guarded("backward ends")
    def backward_ends(self, outermost: bool | None, _args: Any, _kwargs: Any, _result: Any) -> None:
        self._backward_depth = max(0, self._backward_depth - 1)
        if outermost:
            self._end_backward()

    @guarded("gradients end")
    def gradients_end(self, is_training: bool | None, _args: Any, _kwargs: Any, _result: Any) -> None:
        if is_training:
            self._backward_depth = 0
            self._end_backward()
        else:
            self._resume_lines()

    def _resume_lines(self) -> None:
        if not is_inside_backward() and not self._backward_depth:
            self.session.lines.resume(self.session.context.step)

    def _end_backward(self) -> None:
        session = self.session
        if session.device.measuring:
            session.device.end(BACKWARD)
        session.clock.backward_ends()
        self.clearing.after_backward()
        if session.structural:
            session.wiring.gradients()
        session.lines.resume(session.context.step)
        session.pass_ended()
        session.remedy.backward_over()
        if self._closures:
            session.hunt_gradients()
            session.remedy.inside_closure()

    @guarded("backward failed")
    def backward_failed(self, _token: Any, args: Any, kwargs: Any, error: BaseException) -> bool:
        return self._fail_backward(first_root(args, kwargs), error)

    def _fail_backward(self, loss: Tensor | None, error: BaseException) -> bool:
        self._backward_depth = 0
        passed_over = bool(self.session.inplace.failed(loss, error))
        if not passed_over:
            self.session.pass_failed()
        return passed_over

    @guarded("gradients failed")
    def gradients_failed(self, is_training: Any, args: Any, kwargs: Any, error: BaseException) -> bool:
        if not is_training:
            self._resume_lines()
            return False
        return self._fail_backward(first_root((args or (kwargs.get("outputs"),))[:1], {}), error)

    # -- optimizers --------------------------------------------------------------------

    @guarded("optimizer created")
    def optimizer_created(self, _token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
        key = self.session.registry.optimizer_key(args[0])
        self.session.loop.optimizer(key)
        self.session.optimizers.created(key, caller())
        if not self.session.loop.backwards:
            self.session.step_start.look()
        if self.session.rolling.undecided:
            self.session.rolling.not_begun()
        self.session.steady.leave()
        self.session.governor.loop_changed(self.session.context.step)
        self.session.resuming.created()
        self.session.optimizers.describe(key, args[0])
        self.session.registry.held()
        self._look_at_beginning(args[0])

    def _look_at_beginning(self, optimizer: Optimizer) -> None:
        """Another training begins: what is frozen in it is looked at before it can move."""
        session, start = self.session, thread_time()
        if session.frozen_state.is_beginning(session.loop.updates):
            if session.registry.is_partly_frozen(optimizer):
                session.discover([])
                session.frozen_state.boundary(session.loop.updates)
            session.spend(LOOK, start)

    @guarded("zero_grad")
    def zeroed(self, _token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
        target = args[0]
        key = self.session.registry.optimizer_key(target) if isinstance(target, Optimizer) else None
        if key is not None:
            self.session.loop.optimizer(key)
        self.session.loop.call("zero_grad", key)
        self.clearing.zeroed(key)
        self.session.remedy.cleared(target)
        if self.session.structural:
            self._note_site("zero_grad", caller())

    @guarded("step begins")
    def step_begins(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        session = self.session
        session.steady.leave()
        closure = (args[1] if len(args) > 1 else kwargs.get("closure")) is not None
        key = session.registry.optimizer_key(optimizer)
        session.registry.stepped_here(optimizer)
        session.loop.optimizer(key)
        session.begin_record()
        self._stepping = not closure
        self._closures.discard(id(optimizer))
        if closure:
            self._closures.add(id(optimizer))
            session.training_loss.closure_begins()
        session.clock.optimizer_begins(closure)
        if session.structural:
            session.discover([])
            self._note_site("step", caller())
        session.before_update(key, optimizer)
        if not closure:
            session.look_at_gradients(key, optimizer)
            if session.device.measuring:
                session.device.begin(UPDATE)
            session.hunt_gradients(optimizer)
        if session.rolling.undecided:
            session.rolling.begin()

    @guarded("step ends")
    def step_ends(self, optimizer: Optimizer, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        session = self.session
        self._stepped += 1
        session.step_start.updated(session.loop.at_work == 1)
        if session.rolling.on:
            session.rolling.updated(optimizer)
        if session.steady.on and session.steady.stepped(optimizer):
            if session.rolling.on:
                session.rolling.stepped()
            if session.live and session.live.stop_for is not None:
                session.live.check()
            return
        if session.device.measuring:
            session.device.end(UPDATE)
        key = session.registry.optimizer_key(optimizer)
        closure = id(optimizer) in self._closures
        self._closures.discard(id(optimizer))
        self._stepping = False
        if closure:
            session.look_at_gradients(key, optimizer)
        session.clock.optimizer_ends()
        self.clearing.after_step(key, optimizer, session.context.step)
        session.training_loss.stepped(session.key(key), session.deferred.after, first_only=closure)
        calls = session.loop.optimizer_step(key)
        session.optimizers.stepped(key, optimizer, calls, closure)
        session.after_update(key)
        session.batch, session.targets = [], []
        session.loop.settle()
        session.turn()
        if session.rolling.on:
            session.rolling.stepped()
        session.steady.learn()
        if not closure:
            session.steady.consider(key, optimizer, self.hooks_in())
        if session.live:
            session.live.check()

    @guarded("gradients clipped by norm")
    def clipped_norm(self, _token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], norm: Any) -> None:
        threshold = args[1] if len(args) > 1 else kwargs.get("max_norm")
        norm_type = args[2] if len(args) > 2 else kwargs.get("norm_type", 2.0)
        self._clipped("norm", args, kwargs, threshold, norm, float(norm_type))

    @guarded("gradients clipped by value")
    def clipped_value(self, _token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _result: Any) -> None:
        threshold = args[1] if len(args) > 1 else kwargs.get("clip_value")
        self._clipped("value", args, kwargs, threshold, None, None)

    def _clipped(
        self, how: str, args: tuple[Any, ...], kwargs: dict[str, Any], threshold: Any, norm: Any, norm_type: Any
    ) -> None:
        session = self.session
        session.loop.call("clip")
        parameters = args[0] if args else kwargs.get("parameters")
        tensors = 1 if isinstance(parameters, Tensor) else len(parameters) if hasattr(parameters, "__len__") else 0
        place = caller() if session.structural else None
        details = {
            "parameters": tensors,
            "after_step": session.loop.backwards_since_step == 0,
            "file": place.file if place else None,
            "line": place.line if place else None,
        }
        session.optimizers.clipped(how, float(threshold), norm, norm_type, details)

    @guarded("scheduler step")
    def scheduled(self, _token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
        session = self.session
        scheduler = args[0]
        if not getattr(scheduler, "_is_initial", False):
            session.loop.call("scheduler")
        optimizer = getattr(scheduler, "optimizer", None)
        key = session.registry.optimizer_key(optimizer) if isinstance(optimizer, Optimizer) else None
        place = None if session.schedules.known(scheduler) else caller()
        session.schedules.called(scheduler, key, session.loop.updates, place)

    # -- modes, compile ----------------------------------------------------------------

    @guarded("mode changes")
    def mode_changes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._mode_depth += 1
        if self._mode_depth == 1:
            training = args[1] if len(args) > 1 else kwargs.get("mode", True)
            if bool(training) != args[0].training:
                self.session.epoch_ended()
            if not training:
                self.arm()
            self._note_site("train" if training else "eval", caller())

    @guarded("mode changed")
    def mode_changed(self, _token: Any, _args: Any, _kwargs: Any, _result: Any) -> None:
        self._mode_depth = max(0, self._mode_depth - 1)

    @guarded("mode change failed")
    def mode_failed(self, _token: Any, _args: Any, _kwargs: Any, _error: BaseException) -> None:
        self._mode_depth = 0

    @guarded("state loaded")
    def state_loaded(self, _token: Any, args: tuple[Any, ...], _kwargs: dict[str, Any], _result: Any) -> None:
        registry = self.session.registry
        trained = registry.held() if self.session.loop.backwards else {}
        registry.loaded.update(id(p) for p in args[0].parameters() if id(p) not in trained)

    @guarded("gradients switched off")
    def grad_switched_off(self, _args: Any, _kwargs: Any) -> None:
        """Before the block is entered: an exception from outside in a site must not leave gradients switched off."""
        self._no_grad_blocks += 1
        if self.reads is not None:
            self.reads.on()
        self.grad_off(True)

    @guarded("gradients switched back")
    def grad_switched_back(self, _token: Any, _args: Any, _kwargs: Any, _result: Any) -> None:
        self._no_grad_blocks = max(0, self._no_grad_blocks - 1)
        if self.session.custody.waiting and self.session.loop.evaluating() is not None:
            self.session.custody.validated()
        if self.reads is not None and not self._no_grad_blocks:
            self.reads.off()
        self.grad_off(False)

    @guarded("compile")
    def compiling(self, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        self.session.compiled = True
        self.arm()

    def _note_site(self, call: str, place: Place | None) -> None:
        if place is None or (call, *place) in self._last_sites or len(self._last_sites) > 64:
            return
        self._last_sites.add((call, *place))
        fact = CallSiteFact(call, place.file, place.line, place.code[:200], place.library)
        self.session.record.fact(fact, self.session.context.step, f"{call}@{place}")
