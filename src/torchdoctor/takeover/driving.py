"""The loop of a user's script as a function from a batch to its loss.

The script waits in its own thread where it asks a loader for a batch, and again at the backward of what it made of it.
In between another thread has the loss with its graph, and does with it what it likes. What the script does
beside that (its updates, schedules, modes and clearing of gradients) is left out while it is driven.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Queue
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils._python_dispatch import _disable_current_modes

from torchdoctor.errors import TorchdoctorError
from torchdoctor.instruments.state import Randomness
from torchdoctor.instruments.subject import Subject
from torchdoctor.probes.activations import first_tensor
from torchdoctor.takeover.modes import Modes

if TYPE_CHECKING:
    from torchdoctor.takeover.taping import Tapes

PASSED_OVER = 16
"""Batches beside those of two updates that a loop may take without a backward; one that skips all would never end."""


class LoopEndedError(BaseException):
    """The script's loop is over, or failed with what it was given. Not an Exception: nobody who tries something out is
    to take it for an answer."""


class NoLossError(TorchdoctorError):
    """There is no way from a batch to a loss."""


@dataclass(frozen=True)
class _Made:
    loss: Tensor


@dataclass(frozen=True)
class _Ended:
    why: str


class Driver:
    """`lead`: batches that the loop fetches before it needs them; `accumulation`: backwards an update."""

    def __init__(self, models: list[nn.Module], lead: int = 0, accumulation: int = 1) -> None:
        self._script = threading.get_ident()
        self._models = models
        self.is_evaluating = False
        """the script has asked for eval mode: what it fetches now is not for training"""
        self._batch: Any = None
        self._drawn = Randomness()
        """as it is to be when that batch is given: what the loop draws on its way to it does not count"""
        self._wanted = threading.Event()
        """a loss of that batch is waited for; a loop that fetches ahead gets it more than once"""
        self._answers: Queue[_Made | _Ended] = Queue()
        self._lead = lead
        self._accumulation = accumulation
        self._ended: str | None = None
        self._released = threading.Semaphore(0)
        self._is_held = False
        """the script waits at its backward"""
        self._is_fresh = False
        """a batch was fetched since the last backward: a second backward on one batch is passed over"""
        self._fetched = 0
        """batches since then"""
        self._modes = Modes()
        """of the thread that asks: they hold in a thread alone, and what they are to see is done in the script's"""
        self._entered: Modes | None = None
        self._backward = torch.autograd.backward

    # -- in the thread of the script ----------------------------------------------------

    @property
    def is_script(self) -> bool:
        return threading.get_ident() == self._script

    def take_over(self, optimizers: Iterable[Optimizer]) -> None:
        """From now on the script is driven."""
        for optimizer in optimizers:
            if "step" in vars(optimizer):  # schedulers put theirs in its place
                self._leave_out(optimizer, "step", lambda *args, **kwargs: _only_closure(None, *args, **kwargs))
        torch.autograd.backward = self._at_backward
        backward = Tensor.backward

        @functools.wraps(backward)
        def unseen(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
            # A mode is off the stack while it looks at a call, and cannot be taken off it.
            self._leave_modes()
            backward(tensor, *args, **kwargs)

        Tensor.backward = unseen  # type: ignore[method-assign]
        for name in ("step", "update", "unscale_"):
            self._leave_out(torch.amp.GradScaler, name)
        self._leave_out(torch.amp.GradScaler, "scale", lambda _scaler, outputs: outputs)
        for kind in _with_own(Optimizer, "zero_grad"):
            self._leave_out(kind, "zero_grad")
        for kind in _with_own(Optimizer, "step"):
            self._leave_out(kind, "step", _only_closure)
        for kind in _with_own(LRScheduler, "step"):
            self._leave_out(kind, "step")
        self._leave_out(nn.Module, "zero_grad")
        self._leave_out(nn.Module, "train", self._note_mode)
        self._leave_out(nn.Module, "eval", lambda module: self._note_mode(module, False))
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            self._leave_out(nn.utils, name, lambda *_args, **_kwargs: torch.zeros(()))

    def _leave_out(self, holder: Any, name: str, instead: Callable[..., Any] = lambda *_args, **_kwargs: None) -> None:
        """What the script calls by that name does nothing; what others call does what it did."""
        original = getattr(holder, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return (instead if self.is_script else original)(*args, **kwargs)

        setattr(holder, name, call)

    def _note_mode(self, module: nn.Module, mode: bool = True) -> nn.Module:
        if any(module is part or part in module.modules() for part in self._models):
            self.is_evaluating = not mode
        return module

    def next_batch(self) -> Any:
        self._wanted.wait()
        self._fetched += 1
        if self._fetched > 2 * self._accumulation + self._lead + PASSED_OVER:
            self.ended("the script's loop takes batches and makes no backward of them; does it skip such losses?")
            threading.Event().wait()
        if not self._is_fresh:
            self._is_fresh = True
            self._drawn.put_back()
            self._entered = self._modes
            self._entered.put_on()
        return self._batch

    def _at_backward(self, *args: Any, **kwargs: Any) -> None:
        loss = first_tensor(args[0] if args else kwargs.get("tensors"))
        if not self.is_script or torch._C._current_graph_task_id() != -1 or loss is None:
            self._backward(*args, **kwargs)
        elif self._is_fresh:
            self._is_fresh, self._fetched = False, 0
            self._leave_modes()
            self._wanted.clear()
            self._answers.put(_Made(loss))
            self._released.acquire()

    def _leave_modes(self) -> None:
        if self.is_script and self._entered is not None:
            self._entered.take_off()
            self._entered = None

    def ended(self, why: str) -> None:
        """The script is over; whoever waits for it is told."""
        self._answers.put(_Ended(why))

    # -- in the thread of the work --------------------------------------------------------

    def loss(self, batch: Any) -> Tensor:
        """Of that batch, by the script's own loop. What it had fetched ahead goes first."""
        for _ in range(self._lead):
            self._ask(batch, Modes())
        return whole(self._ask(batch, Modes.of_this_thread()), self._accumulation)

    def _ask(self, batch: Any, modes: Modes) -> Tensor:
        if self._ended is not None:
            raise LoopEndedError(self._ended)
        self._batch, self._modes, self._drawn = batch, modes, Randomness()
        with self._gradients_kept():
            self._wanted.set()
            if self._is_held:
                self._released.release()
            answer = self._answers.get()
        if isinstance(answer, _Ended):
            self._ended = answer.why
            raise LoopEndedError(answer.why)
        self._is_held = True
        return answer.loss

    @contextlib.contextmanager
    def _gradients_kept(self) -> Iterator[None]:
        """The script goes on after its backward: it may clip, scale or drop what it finds. That is a copy."""
        held = [(p, p.grad) for model in self._models for p in model.parameters() if p.grad is not None]
        for parameter, gradient in held:
            parameter.grad = gradient.detach().clone()
        try:
            yield
        finally:
            for parameter, gradient in held:
                parameter.grad = gradient


def whole(loss: Tensor, accumulation: int) -> Tensor:
    """Without the division by the batches of an update."""
    node, factor = loss.grad_fn, 1.0
    while node is not None and (by := _divisor(node)) is not None:
        node, factor = node.next_functions[0][0], factor * by
    return loss * accumulation if accumulation > 1 and abs(factor - accumulation) < 1e-6 * accumulation else loss


def _divisor(node: Any) -> float | None:
    """Of a division or multiplication by a number."""
    name, other = node.name(), getattr(node, "_saved_other", None)
    if not name.startswith(("DivBackward", "MulBackward")) or not isinstance(other, Tensor) or other.numel() != 1:
        return None
    with _disable_current_modes():  # such a mode is handed a wrapped number as a plain one, which no operator takes
        number = float(other)
    return number if name.startswith("Div") else 1 / number if number else None


class Undriven:
    """For a loop that cannot be driven: what needs a loss of it is not examined."""

    def __init__(self, why: str) -> None:
        self._why = why

    def loss(self, _batch: Any) -> Tensor:
        raise NoLossError(self._why)


class LoopSubject(Subject):
    """The model of a script, with the script's own loop as the way to its loss."""

    def __init__(self, model: nn.Module, driver: Driver | Tapes | Undriven) -> None:
        super().__init__(model)
        self._driver = driver
        self._called: nn.Module | None = None
        self._calls: dict[int, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {}

    def loss(self, batch: Any) -> Tensor:
        loss = self._driver.loss(batch)
        return loss.reshape(()) if loss.numel() == 1 else loss.mean()

    def outputs(self, batch: Any) -> Any:
        """The model is called as the loop calls it, in the mode that it is in now."""
        if id(batch) not in self._calls:
            self._calls[id(batch)] = (batch, *self._called_with(batch))
        _, args, kwargs = self._calls[id(batch)]
        return self.called(*args, **kwargs)

    @property
    def called(self) -> nn.Module:
        """The model, or the part of it that the loop calls: a LightningModule's step calls what it holds."""
        return self._called or self.model

    def _called_with(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        mine = set(self.model.modules())
        given: list[tuple[nn.Module, tuple[Any, ...], dict[str, Any]]] = []

        def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given.append((module, args, kwargs))

        handles = [module.register_forward_pre_hook(note, with_kwargs=True) for module in mine]
        try:
            self._driver.loss(batch)
        finally:
            for handle in handles:
                handle.remove()
        if not given:
            raise NoLossError("the loop does not call the model")
        self._called, args, kwargs = max(given, key=lambda call: sum(p.numel() for p in call[0].parameters()))
        return args, kwargs

    def target(self, batch: Any) -> Any:
        return None


def _with_own(kind: type, name: str) -> list[type]:
    """The class and those derived from it that have a method of that name of their own."""
    found, waiting = [], [kind]
    while waiting:
        here = waiting.pop()
        waiting += here.__subclasses__()
        if name in vars(here) and here not in found:
            found.append(here)
    return found


def _only_closure(_optimizer: Any, closure: Callable[[], Any] | None = None, **_kwargs: Any) -> Any:
    return closure() if closure is not None else None
