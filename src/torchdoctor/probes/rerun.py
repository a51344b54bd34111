"""The step that broke runs again in the user's own loop, with every operation checked: where its first NaN was made.

For a process that may be spent on it (second_run.py): a forked child of the run, or a fresh one that replays a
capture. The loop is sent back to the beginning of its body where it can be (rewind.py), and else gets the same batches
again from its loader. Nothing is learned: gradients are taken away before an update.
"""

from __future__ import annotations

import math
import sys
from types import FrameType
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch.nn.modules import module as hooks
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from torchdoctor.attach.places import Place, caller
from torchdoctor.probes import rewind
from torchdoctor.probes.activations import first_tensor
from torchdoctor.probes.batches import batch_tensors
from torchdoctor.probes.context import Names
from torchdoctor.probes.forking import tell
from torchdoctor.probes.graph import line_of
from torchdoctor.probes.inspector import NAN, Birth, Inspector, Where, is_checked
from torchdoctor.probes.second_run import SecondRun
from torchdoctor.probes.step_start import StepStart

ATTEMPTS = 4
"""Backwards beyond the batches that are given again before it is given up."""
_current_node = getattr(torch._C, "_current_autograd_node", lambda: None)


class Rerun(SecondRun):
    def __init__(
        self,
        pipe: int,
        start: StepStart,
        names: Names,
        roles: dict[int, str] | None = None,
        known: dict[str, Any] | None = None,
    ) -> None:
        """`known` goes into the report."""
        super().__init__(pipe, start, names, known)
        self._known = {_storage(t): name for name, t in _state(names)} | (roles or {})
        """names of what was there before the step, by their place in memory"""
        weights = {_storage(p) for _, p in names.parameters()}
        self._inspector = Inspector(
            self._locate, lambda t: self._known.get(_storage(t)), lambda t: _storage(t) in weights
        )
        self._attempts = 0
        self._outside: FrameType | None = None
        """the frame that called backward"""
        self._handles: list[Any] = []
        self._loss: Tensor | None = None
        self._samples = next((int(t.shape[0]) for b in start.batches[-1:] for t in batch_tensors(b) if t.dim()), 0)
        """in the batch, as far as is known"""

    def begin_in_child(self, optimizer: Optimizer | None = None) -> None:
        """The broken step is under way; the caller returns into it. `optimizer`: its update begins now."""
        self._confine()
        self.take_over(optimizer)

    def take_over(self, optimizer: Optimizer | None, serves: bool = True) -> None:
        """The same in a process that need not be confined."""
        self._hold_back(optimizer)
        rewind.to_loop_start(self._restore, self._failed)
        self.begin(serves)

    def begin(self, serves: bool = True, restores: bool = True) -> None:
        """Everything is set; the caller returns into the user's loop. `serves`: loaders give the kept batches;
        `restores`: after an update the step begins anew (not for a caller in such a hook: torch goes through them)."""
        register_optimizer_step_pre_hook(lambda updated, _args, _kwargs: self._clear(updated))
        if restores:
            register_optimizer_step_post_hook(lambda _optimizer, _args, _kwargs: self._restore())
        hooks.register_module_forward_pre_hook(self._count_samples)
        self._put_in_place(self._inspector, serves)

    # -- the loop -------------------------------------------------------------------

    def _restore(self) -> None:
        self._inspector.forget()
        super()._restore()

    def _next(self) -> Any:
        batch = super()._next()
        self._restore()
        return batch

    def _hold_back(self, optimizer: Optimizer | None) -> None:
        """What the broken step still does moves no weight: a backward that begins now leaves no gradients behind."""
        if optimizer is not None:
            self._clear(optimizer)
        for _, parameter in self._names.parameters():
            parameter.grad = None
            if parameter.requires_grad and parameter.is_leaf:
                self._handles.append(parameter.register_post_accumulate_grad_hook(_forget_gradient))

    def _clear(self, optimizer: Optimizer) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _run_backward(self, *args: Any, **kwargs: Any) -> None:
        if torch._C._current_graph_task_id() != -1:
            self._backward(*args, **kwargs)
            return
        root = args[0] if args else kwargs.get("tensors")
        loss = first_tensor(root)
        self._loss = loss
        if loss is not None and not self._is_good(loss):
            self._found(self._inspector.birth_of(loss), "loss")
        for handle in self._handles:
            handle.remove()
        parameters = list(self._names.parameters())
        for _, parameter in parameters:
            parameter.grad = None
        self._outside = _user_frame(sys._getframe(1))
        self._backward(*args, **kwargs)
        self._outside = None
        bad = [(name, p.grad) for name, p in parameters if p.grad is not None and not self._is_good(p.grad)]
        births = [(b, name) for name, grad in bad if (b := self._inspector.birth_of(grad)) is not None]
        if bad:
            self._found(*min(births, key=lambda item: item[0].step.order, default=(None, bad[0][0])))
        self._attempts += 1
        if self._attempts >= ATTEMPTS + len(self._start.batches):
            self._give_up("the step was run again and did not break", unbroken=True)
        for _, parameter in parameters:
            parameter.grad = None
        self._restore()

    def _is_good(self, tensor: Tensor) -> bool:
        self._inspector.resting = True
        try:
            return bool(tensor.detach().isfinite().all())
        finally:
            self._inspector.resting = False

    def last_words(self, loss: Tensor) -> None:
        """The script gave up on this loss before its backward."""
        self._loss = loss
        self._found(self._inspector.birth_of(loss), "loss")

    # -- where ------------------------------------------------------------------------

    def _count_samples(self, _module: Any, args: Any) -> None:
        if self._modules.current is None:
            given = first_tensor(args)
            self._samples = int(given.shape[0]) if given is not None and given.dim() else self._samples

    def _locate(self) -> Where:
        place = caller()
        node = _current_node()
        if node is None:
            return Where(place, self._modules.current)
        module = self._modules.around(node._sequence_nr())
        if place is None or (self._outside is not None and place == _at(self._outside)):
            place = line_of(node) or place  # a device's backward runs in a thread of its own
        return Where(place, module, node.name())

    # -- the end ----------------------------------------------------------------------

    def _found(self, birth: Birth | None, noticed: str) -> NoReturn:
        if birth is None:
            self._give_up("what broke was made where it cannot be seen")
        self._inspector.resting = True
        loss = None if self._loss is None else _plain(float(self._loss.detach().sum()))
        found = {"birth": describe(birth, noticed, self._samples), "loss": loss}
        tell(self._pipe, found | self._known_before)


def describe(birth: Birth, noticed: str, samples: int) -> dict[str, Any]:
    """The fields of a BirthFact, of a step with so many samples."""
    step = birth.step
    place, source = step.where.place, next(iter(step.foreign), None)
    came_in = source is not None
    return {
        "operator": "" if came_in else step.operator,
        "backward": step.backward,
        "result": "nan" if step.result.state == NAN else "inf",
        "inputs": [[_plain(e.low), _plain(e.high)] for e in step.inputs],
        "at": list(step.at),
        "shapes": [list(e.shape) for e in step.inputs],
        "dtype": step.result.dtype,
        "scalars": [_plain(s) for s in step.scalars],
        "count": step.count,
        "total": math.prod(step.result.shape),
        "samples": list(step.samples(samples)),
        "source": (source or "data") if came_in else None,
        "noticed": noticed,
        "module": step.where.module,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "code": place.code[:200] if place else None,
        "chain": [str(s) for s in birth.chain],
        "node": step.where.node,
    }


def _forget_gradient(parameter: Tensor) -> None:
    parameter.grad = None


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _state(names: Names) -> list[tuple[str, Tensor]]:
    held = list(names.parameters())
    for label, model in names.live_models():
        held += [(names.module_names.get(id(model), label) + "." + n, b) for n, b in model.named_buffers()]
    return [(name, t) for name, t in held if is_checked(t)]


def _user_frame(frame: FrameType | None) -> FrameType | None:
    place = caller(frame)
    while frame is not None and _at(frame) != place:
        frame = frame.f_back
    return frame


def _at(frame: FrameType) -> Place:
    return Place(frame.f_code.co_filename, frame.f_lineno)
