"""The steps of a loop that cannot be given batches, as tapes: what lies between a batch and its loss, to be done again.

A loop that slices tensors, or takes batches from several loaders, has no place where another batch could be put in. So
its first steps are listened to: every call of the model and every operation of torch from there to the loss, as far as
gradients flow through it. What goes in from outside (inputs, targets, masks, noise) makes up the batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from torchdoctor.attach.guard import unseen
from torchdoctor.instruments.state import Randomness, untouched
from torchdoctor.takeover.modes import Modes

SAME = 1e-4
"""Relative difference up to which a step done again counts as the same: kernels may add in another order."""


class _Made:
    """Stands for a tensor that a call before has made: the so-and-so-manieth of its results."""

    def __init__(self, call: int, number: int) -> None:
        self.call, self.number = call, number


class _Given:
    """Stands for a tensor of the batch."""

    def __init__(self, number: int) -> None:
        self.number = number


class _Call:
    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any, result: Any) -> None:
        self.function, self.args, self.kwargs, self.result = function, args, kwargs, result
        self.precision = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        self.cuda_precision = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None

    def make(self, args: Any, kwargs: Any) -> Any:
        with contextlib.ExitStack() as stack:
            for device, precision in (("cpu", self.precision), ("cuda", self.cuda_precision)):
                if precision is not None:
                    stack.enter_context(torch.autocast(device, dtype=precision))
            return self.function(*args, **kwargs)


class Tape:
    """One step. Not a dataclass: whoever looks for the tensors of a batch must not look into it."""

    def __init__(self, calls: list[_Call], loss: _Made) -> None:
        self._calls = calls
        self._loss = loss

    def play(self, tensors: list[Tensor]) -> Tensor:
        """The loss of these tensors, with its graph."""
        results: list[list[Tensor]] = []

        def find(value: Any) -> Any:
            if isinstance(value, _Made):
                return results[value.call][value.number]
            return tensors[value.number] if isinstance(value, _Given) else value

        for call in self._calls:
            results.append(_tensors(call.make(_exchange(call.args, find), _exchange(call.kwargs, find))))
        return results[self._loss.call][self._loss.number]


class Tapes:
    """In the place of a driver: a batch is a tape and the tensors that go into it."""

    def __init__(self, scale: Callable[[Tensor], Tensor]) -> None:
        self._scale = scale

    def loss(self, batch: list[Any]) -> Tensor:
        tape, *tensors = batch
        return self._scale(tape.play([t.clone() for t in tensors]))


class Recorder(TorchFunctionMode):
    """Listens to the thread that trains, from an update on; gives up for good where a step cannot be done again."""

    def __init__(self, roots: list[nn.Module], most: int) -> None:
        super().__init__()
        self._roots = roots
        self._most = most
        self.batches: list[list[Any]] = []
        self.why_not: str | None = None
        self._calls: list[_Call] = []
        self._depth = 0
        self._begun: Randomness | None = None
        self._scaled: tuple[Tensor, Tensor] | None = None
        self._handles: list[Any] = []

    def begin(self) -> None:
        for root in self._roots:
            for module in root.modules():
                self._handles += [
                    module.register_forward_pre_hook(self._enters, with_kwargs=True),
                    module.register_forward_hook(self._leaves, with_kwargs=True, always_call=True),
                ]
        scale = torch.amp.GradScaler.scale

        def scaled(scaler: Any, outputs: Any) -> Any:
            made = scale(scaler, outputs)
            self._scaled = (made, outputs) if isinstance(outputs, Tensor) else None
            return made

        torch.amp.GradScaler.scale = scaled  # type: ignore[method-assign]
        self.__enter__()

    def end(self) -> None:
        for handle in self._handles:
            handle.remove()
        Modes([self]).take_off()

    def forget(self) -> None:
        """An update was made: what comes now belongs to the next step."""
        self._calls, self._begun, self._scaled = [], None, None

    def _enters(self, _module: nn.Module, _args: Any, _kwargs: Any) -> None:
        if self._depth == 0 and self._begun is None and torch.is_grad_enabled():
            self._begun = Randomness()
        self._depth += 1

    def _leaves(self, module: nn.Module, args: Any, kwargs: Any, result: Any) -> None:
        self._depth -= 1
        if self._depth == 0 and torch.is_grad_enabled():
            self._calls.append(_Call(module, args, kwargs, result))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._depth or self.why_not is not None or len(self.batches) >= self._most:
            return func(*args, **kwargs)
        if getattr(func, "__name__", "") == "backward":
            if isinstance(args[0], Tensor):
                self._cut(args[0])
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if torch.is_grad_enabled() and any(t.requires_grad for t in _tensors(result)):
            self._calls.append(_Call(func, args, kwargs, result))
        return result

    def _cut(self, loss: Tensor) -> None:
        """At its backward: the calls that the loss hangs on, as a tape of its own."""
        if self._scaled is not None and self._scaled[0] is loss:
            loss = self._scaled[1]
        with torch._C.DisableTorchFunction(), unseen():
            batch = _Cut(self._calls, self._roots).tape(loss)
            if batch is None:
                self.why_not = "the loss hangs on calculations that torch's functions do not show"
            elif not self.batches and not self._is_same(batch, loss):
                self.why_not = "a step of the loop, done again, gives another loss"
            else:
                self.batches.append(batch)
        self._calls = []

    def _is_same(self, batch: list[Any], loss: Tensor) -> bool:
        now = Randomness()
        try:
            with untouched(nn.ModuleList(self._roots)), torch.enable_grad():
                if self._begun is not None:
                    self._begun.put_back()
                again = Tapes(lambda made: made).loss(batch)
        except Exception:
            return False
        finally:
            now.put_back()
        return again.shape == loss.shape and bool(
            torch.isclose(again.detach(), loss.detach(), rtol=SAME, equal_nan=True).all()
        )


class _Cut:
    """Backwards from a loss through the calls of a step."""

    def __init__(self, calls: list[_Call], roots: list[nn.Module]) -> None:
        self._calls = calls
        self._made: dict[int, list[int]] = {}
        for number, call in enumerate(calls):
            for tensor in _tensors(call.result):
                self._made.setdefault(id(tensor), []).append(number)
        self._held = {id(t) for root in roots for t in (*root.parameters(), *root.buffers())}
        self._given: dict[int, int] = {}
        self._batch: list[Tensor] = []

    def tape(self, loss: Tensor) -> list[Any] | None:
        needed = self._needed(loss)
        if needed is None or not any(isinstance(self._calls[n].function, nn.Module) for n in needed):
            return None
        place = {old: new for new, old in enumerate(needed)}
        models = [n for n in needed if isinstance(self._calls[n].function, nn.Module)]
        for number in models:  # what models take comes first in the batch, as in most
            for tensor in _tensors((self._calls[number].args, self._calls[number].kwargs)):
                if self._maker(tensor, number) is None:
                    self._give(tensor)
        calls = []
        for number in needed:
            call = self._calls[number]

            def stand_in(value: Any, at: int = number) -> Any:
                if not isinstance(value, Tensor):
                    return value
                maker = self._maker(value, at)
                if maker is not None:
                    return _Made(place[maker], _number(self._calls[maker].result, value))
                return value if self._is_kept(value) else _Given(self._give(value))

            made = _Call(call.function, _exchange(call.args, stand_in), _exchange(call.kwargs, stand_in), None)
            made.precision, made.cuda_precision = call.precision, call.cuda_precision
            calls.append(made)
        last = self._maker(loss, len(self._calls))
        assert last is not None
        return [Tape(calls, _Made(place[last], _number(self._calls[last].result, loss))), *self._batch]

    def _needed(self, loss: Tensor) -> list[int] | None:
        """Numbers of the calls, in their order; None where a tensor with a graph comes from none of them."""
        last = self._maker(loss, len(self._calls))
        if last is None:
            return None
        found, waiting = set(), [last]
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            call = self._calls[number]
            for tensor in _tensors((call.args, call.kwargs)):
                maker = self._maker(tensor, number)
                if maker is not None:
                    waiting.append(maker)
                elif tensor.requires_grad and tensor.grad_fn is not None:
                    return None
        return sorted(found)

    def _maker(self, tensor: Tensor, before: int) -> int | None:
        """The last call before that one which made this tensor, or changed it, with a gradient."""
        return max((n for n in self._made.get(id(tensor), ()) if n < before), default=None)

    def _is_kept(self, tensor: Tensor) -> bool:
        """A weight, or a buffer of the model: the tensor itself is used again."""
        return tensor.requires_grad or id(tensor) in self._held

    def _give(self, tensor: Tensor) -> int:
        if self._is_kept(tensor):
            return -1
        if id(tensor) not in self._given:
            self._given[id(tensor)] = len(self._batch)
            self._batch.append(tensor.detach().clone())
        return self._given[id(tensor)]


def _tensors(value: Any) -> list[Tensor]:
    return list(_walk(value))


def _walk(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _walk(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _walk(part)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _walk(getattr(value, name, None))


def _number(result: Any, tensor: Tensor) -> int:
    return next(number for number, made in enumerate(_tensors(result)) if made is tensor)


def _exchange(value: Any, change: Callable[[Any], Any]) -> Any:
    if type(value) is dict:
        return {key: _exchange(part, change) for key, part in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_exchange(part, change) for part in value))
    if type(value) in (list, tuple):
        return type(value)(_exchange(part, change) for part in value)
    return change(value)
