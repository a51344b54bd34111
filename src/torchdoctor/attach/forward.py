"""Forward passes: the calls of modules, watched only when something is to be seen.

`Module.__call__` itself reports them (see instrumentation.py). Hooks on the user's modules would travel with a pickled
or copied model and switch off fast paths; torch's global hooks add a frame to every call, show in tracebacks, and make
torch.compile warn and strict export refuse. With torch.compile the watch stays on once it is on.
"""

from __future__ import annotations

import weakref
from itertools import islice
from time import thread_time
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor import stats
from torchdoctor.attach import guard
from torchdoctor.attach.ceiling import ACTIVATIONS
from torchdoctor.attach.guard import guarded
from torchdoctor.attach.lines import STEPS
from torchdoctor.attach.loop import Pass
from torchdoctor.attach.loss_sites import is_wrapped
from torchdoctor.attach.patches import Switch
from torchdoctor.attach.places import caller
from torchdoctor.attach.registry import unwrap
from torchdoctor.attach.session import BATCH, LOOK, Session
from torchdoctor.attach.weak import IdentitySet
from torchdoctor.probes.activations import first_tensor, tensors_in
from torchdoctor.probes.batches import count_nan, input_tensors, look_at
from torchdoctor.probes.device import FORWARD

EARLY_STEPS = 3
WATCHED_PASSES = 16
"""Passes that are watched after the loop shows signs of validating, before the hooks go out again."""
OUTPUTS_KEPT = 8
OUTPUT_TENSORS = 8
"""Tensors of one output at which a backward pass is noticed."""
IDLE_CONTEXTS = 20
DEEP = 100
"""Modules inside one another from which on no lines are noted: formatting a stack at each operation takes frames,
and a script this deep may be near its recursion limit."""
HELD_BYTES = 1 << 26
"""A larger input is not held, nor a view of something larger: memory is the user's."""
FIXED_SAMPLES = 4
FIXED_OUTPUTS = 16
OPERATIONS_PER_MODULE = 3
"""A guess, before the first walk through a graph."""


class ForwardWatch:
    """Switches the watch on and off, and turns calls of root modules into passes."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.calls: Switch | None = None
        self._stack: list[nn.Module] = []
        self._pass: Pass | None = None
        self._armed = WATCHED_PASSES
        self._outputs: list[tuple[weakref.ref[Tensor], Pass]] = []
        self._looking = False
        self._activation_parts = 1
        """of the modules that a pass calls, one in so many is measured; 0: none"""
        self._activation_turn = self._calls = 0
        self._step = -1
        self._fed: IdentitySet = IdentitySet()
        """models that get what another model made, and no data, in every training pass looked at"""
        self._given: IdentitySet = IdentitySet()
        self._teachers: IdentitySet = IdentitySet()
        self._trained: IdentitySet = IdentitySet()
        self._contexts = 0
        self._idle_contexts = 0
        self._given_last: weakref.ref[Tensor] | None = None
        self._held: Tensor | None = None
        """the input of the last pass, for its loss: `model(x[rows])` keeps it nowhere; while the hooks are in"""

    # -- calls of modules ---------------------------------------------------------------

    @guarded("forward begins")
    def call_begins(self, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        self.enter(args[0], args[1:])

    @guarded("forward ends")
    def call_ends(self, _token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        self.leave(args[0], kwargs, output)

    @guarded("forward failed")
    def call_failed(self, _token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _error: BaseException) -> None:
        self._pop(args[0])
        if not self._stack:
            self.forget_calls()
            given = input_tensors(args[1:], kwargs).values()
            self.session.pass_failed(t for t in given if not stats.has_own_dispatch(t))

    # -- the watch on and off -----------------------------------------------------------

    def arm(self) -> None:
        """Something new begins (a loader, eval mode): watch the next passes."""
        self._armed = WATCHED_PASSES
        self.update()

    def grad_off(self, entered: bool) -> None:
        """A no_grad block begins or ends. Inside one a pass may validate; blocks in which no module is ever called
        (an average of weights) are soon only looked into now and then."""
        self._contexts = max(0, self._contexts + (1 if entered else -1))
        if entered:
            self._idle_contexts += 1
        elif not self._contexts:
            self.forget_input()
        self.update()

    @property
    def _inside_no_grad(self) -> bool:
        busy = self._idle_contexts <= IDLE_CONTEXTS or self._idle_contexts % IDLE_CONTEXTS == 0
        return self._contexts > 0 and busy

    def update(self) -> None:
        wanted = (
            self._armed > 0
            or self._inside_no_grad
            or self.session.compiled
            or self.session.device.measuring
            or self.session.context.step < EARLY_STEPS
            or not self.session.context.looks.isdisjoint((BATCH, LOOK))
        )
        if wanted and not self.are_in() and not self.session.finished and self.calls is not None:
            self.session.steady.leave()
            self.calls.on()
        elif not wanted and self.are_in() and not self._stack:
            self.take_out()

    def are_in(self) -> bool:
        return self.calls is not None and self.calls.is_on

    def last_input(self) -> Tensor | None:
        """The first tensor that the last root module was given, if it is still there."""
        return self._given_last() if self._given_last is not None else None

    def forget_input(self) -> None:
        self._held = None

    def take_out(self) -> None:
        if self.calls is not None:
            self.calls.off()
        self.session.loop.passes_unwatched()
        self._held = None
        self._stack.clear()

    def forget_calls(self) -> None:
        """No module runs at this point of the loop."""
        if torch.is_grad_enabled():
            self._contexts = 0
        self._stack.clear()
        self._wake()
        self._pass = None
        self._held = None
        self._looking = False

    # -- passes ---------------------------------------------------------------------------

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        session = self.session
        if session.context.step != self._step:
            self._step = session.context.step
            self._stack.clear()
            self._wake()
        if self._stack:
            if module is self._stack[-1] or type(self._stack[-1]).__name__ == "OptimizedModule":
                self._stack.append(module)
                return
            session.registry.called_inside(module)
            if len(self._stack) == DEEP:
                session.lines.pause()
        elif _has_parameters(module):
            self._begin_pass(module, args)
        self._stack.append(module)

    def _begin_pass(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        session = self.session
        model = unwrap(module)
        grad = torch.is_grad_enabled()
        named = {p: t for p, t in input_tensors(args, {}).items() if not stats.has_own_dispatch(t)}
        tensors = list(named.values())
        if any(t.is_meta for t in tensors):  # the shape of an output is asked for (Keras does, for each layer)
            return
        if grad and session.registry.is_unknown(model):
            session.discover([])
        name = session.registry.module_names.get(id(model)) or type(model).__name__
        self._given_last = weakref.ref(tensors[0]) if tensors else None
        self._mark_feeding(tensors)
        if grad:
            self._note_teachers(model, tensors)
        seen = session.loop.forward(name, module.training, grad)
        seen.teaches = not grad and model in self._teachers
        session.turn()
        self._step = session.context.step
        self._idle_contexts = 0
        if grad:
            session.clock.training_pass(guard.STATE.own_seconds)
        if self._step < STEPS:
            operations = session.graph.expect(OPERATIONS_PER_MODULE * session.registry.count_modules(model))
            session.lines.forward(self._step, grad, operations, again=session.loop.backwards_since_step > 0)
        session.registry.called_as_root(model)
        seen.data["watched"] = True
        seen.data["model"] = weakref.ref(model)
        seen.data["modes"] = session.modes.take(model)
        if not module.training or not grad:
            seen.data["place"] = caller()
        self._look_at_inputs(seen, named)
        self._looking = grad and session.looks_at_pass(LOOK)
        if self._looking:
            self._activation_parts = session.ceiling.parts_of(ACTIVATIONS, session.registry.count_modules(model))
            self._activation_turn += 1
            self._calls = 0
        self._pass = seen
        self._armed = max(0, self._armed - 1)
        if grad and session.device.measuring:
            session.device.begin(FORWARD)
        if self.calls is not None and not (self._looking or session.structural):
            self.calls.rest()

    def _look_at_inputs(self, seen: Pass, named: dict[str, Tensor]) -> None:
        session, tensors = self.session, list(named.values())
        if tensors and (session.looks_at_pass(BATCH) or (self._armed > 0 and not seen.grad)):
            start = thread_time()
            look = look_at(tensors[0], "input", detailed=seen.grad or not session.loop.in_validation)
            seen.data["inputs"] = [look] if look is not None else []
            if look is not None and len(tensors) > 1:
                look.tensors = len(tensors)
                look.others = count_nan({path: t for path, t in named.items() if t is not tensors[0]}) or {}
            seen.data["fed"] = self._is_fed(seen, tensors[0])
            if not seen.data["fed"]:
                session.membership.take(seen, tensors[0], session.batch, tensors[1:])
            session.spend(BATCH, start)
        self._held = None
        if tensors and not seen.grad:
            seen.data["first"] = weakref.ref(tensors[0])
        if tensors and (not seen.grad or session.looks_at_pass(BATCH)) and _may_be_held(tensors[0]):
            self._held = tensors[0]
            seen.data["source"] = weakref.ref(tensors[0])
        if seen.grad and session.structural:
            session.token_targets.given(tensors)
        if seen.grad and session.looks_at_pass(BATCH) and session.loop.validations and all(t.is_cpu for t in tensors):
            seen.data["given"] = [t.detach() for t in tensors]
        if seen.grad and not session.batch:
            session.batch = [t.detach() for t in tensors]

    def _is_fed(self, seen: Pass, tensor: Tensor) -> bool:
        """Whether a pass gets hidden values of a step (a decoder's code), which are not data."""
        model: nn.Module | None = seen.data["model"]()
        if model is None or not seen.grad:
            return model in self._fed
        earlier = any(other.grad and other.step == seen.step for _, other in self._outputs)
        fed = tensor.grad_fn is not None and earlier
        if not fed:
            self._fed.discard(model)
            self._given.add(model)
        elif model not in self._given:
            self._fed.add(model)
        return fed

    def _mark_feeding(self, tensors: list[Tensor]) -> None:
        """A pass whose output is this pass's input is part of the same step, not a validation."""
        for reference, earlier in self._outputs:
            output = reference()
            if output is not None and any(t is output for t in tensors):
                earlier.feeds = not earlier.grad

    def _note_teachers(self, model: nn.Module, tensors: list[Tensor]) -> None:
        """Another model's pass without gradients over this training pass's very batch gives targets (distillation), if
        that model is not trained itself: models that learn side by side are checked on the same data."""
        self._trained.add(model)
        self._teachers.discard(model)
        for _, earlier in self._outputs:
            first = earlier.data.get("first")
            given = first() if first is not None else None
            teacher = earlier.data["model"]()
            if teacher is None or teacher in self._trained or earlier.step != self.session.loop.updates:
                continue
            if given is not None and any(t is given for t in tensors):
                earlier.teaches = True
                self._teachers.add(teacher)

    def leave(self, module: nn.Module, kwargs: dict[str, Any], output: Any) -> None:
        self._pop(module)
        session = self.session
        if kwargs and not self._stack and self._pass is not None and "inputs" not in self._pass.data:
            tensors = {p: t for p, t in input_tensors((), kwargs).items() if not stats.has_own_dispatch(t)}
            self._look_at_inputs(self._pass, tensors)
        if self._looking and self._pass is not None and not module._modules:
            start = thread_time()
            name = session.registry.module_names.get(id(module))
            self._calls += 1
            parts = self._activation_parts
            is_due = parts > 0 and (self._calls + self._activation_turn) % parts == 0
            if name is not None and is_due and session.registry.chosen(name):
                session.activations.module(name, module, output)
                session.ceiling.learn(ACTIVATIONS, 1, thread_time() - start)
            else:
                session.activations.passed_over(output)
            session.spend(LOOK, start)
        if not self._stack and self._pass is not None:
            self._end_pass(output)

    def _pop(self, module: nn.Module) -> None:
        while self._stack and self._stack.pop() is not module:
            pass
        if not self._stack:
            self._wake()

    def _wake(self) -> None:
        """Report calls of modules again, since the pass whose inside was of no interest has ended."""
        if self.calls is not None:
            self.calls.wake()

    def _end_pass(self, output: Any) -> None:
        seen, self._pass = self._pass, None
        self._looking = False
        self.session.lines.model_left(self._step, seen is not None and seen.grad)
        tensor = first_tensor(output)
        if tensor is None or seen is None or stats.has_own_dispatch(tensor):
            return
        self._outputs = [*self._outputs[1 - OUTPUTS_KEPT :], (weakref.ref(tensor), seen)]
        if not seen.grad and not self.session.loop.in_validation:
            self._keep_fixed_samples(seen, tensor)
        if seen.grad:
            _note_when_reached(output, seen)
        if not self.session.loop.in_validation:
            self.update()

    def _keep_fixed_samples(self, seen: Pass, output: Tensor) -> None:
        """The first batch of a validation is the same each time, unless it is shuffled: its outputs show progress."""
        looks = seen.data.get("inputs")
        marks = looks[0].fingerprints if looks else None
        if marks is not None and output.dim() and output.shape[0] and output.is_floating_point():
            seen.data["fixed"] = (marks[:FIXED_SAMPLES], _first_samples(output))


def _note_when_reached(output: Any, seen: Pass) -> None:
    """Have backward tell whether it comes by any tensor of the output: a model may return its parts of the loss."""
    ends = {t.grad_fn for t in islice(tensors_in(output), OUTPUT_TENSORS) if not stats.has_own_dispatch(t)} - {None}
    if not ends:
        return
    seen.reached = False

    def reached(_gradients: Any) -> None:
        seen.reached = True

    for end in ends:
        end.register_prehook(reached)


def _first_samples(tensor: Tensor) -> Tensor:
    """A few numbers of the first few samples, copied: the tensor may be changed in place."""
    few = tensor.detach()[:FIXED_SAMPLES]
    return few.reshape(few.shape[0], -1)[:, :FIXED_OUTPUTS].to(torch.float32, copy=True)


def _has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def _may_be_held(tensor: Tensor) -> bool:
    """Small with all that it is a view of, on the host, and without a graph behind it."""
    if is_wrapped(tensor) or not tensor.is_cpu or tensor.grad_fn is not None or tensor.layout is not torch.strided:
        return False
    return tensor.untyped_storage().nbytes() <= HELD_BYTES
