"""The guarded functions that torch's loss functions call: what a loss was given, and what it gave."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any

import torch
from torch import Tensor

from torchdoctor import stats
from torchdoctor.attach.allowance import Allowance
from torchdoctor.attach.guard import guarded
from torchdoctor.attach.loop import Pass
from torchdoctor.attach.places import Place, caller
from torchdoctor.attach.session import BATCH, Session
from torchdoctor.attach.waiting import LossLook
from torchdoctor.facts import TRAIN, UNKNOWN
from torchdoctor.probes.batches import look_at
from torchdoctor.probes.loss_calls import LossCall, describe, read_call, value_statistics
from torchdoctor.probes.predictions import count
from torchdoctor.probes.samples import observe


class LossSites:
    """A handler for each loss function of torch."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._allowance = Allowance(session.ceiling)

    def loss_site(self, function: str, original: Callable[..., Any]) -> Callable[..., None]:
        """A handler for one loss function."""

        @guarded(f"loss function {function}")
        def loss_called(_token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
            if not isinstance(result, Tensor) or is_wrapped(result) or result.is_meta:
                return
            session = self.session
            target = args[1] if len(args) > 1 else kwargs.get("target")
            if session.unused_losses.waiting:
                session.unused_losses.called(result, session.forward_input(), target)
            session.steady.leave()
            grad = result.requires_grad
            session.grad_losses += grad
            if grad:
                session.loop.begin()
                session.turn()
            if grad and isinstance(target, Tensor) and not stats.has_own_dispatch(target):
                session.targets = [target]
            if grad and not session.looks_at_pass(BATCH) and session.loop.backwards:
                session.loop.loss(True)
                return
            call = read_call(function, original, args, kwargs, result)
            if call is not None:
                self._look_at_loss(call, grad)

        return loss_called

    def failure_site(self, function: str, original: Callable[..., Any]) -> Callable[..., None]:
        """A handler for a loss function that raises: what it was given tells why."""

        @guarded(f"failed loss function {function}")
        def loss_failed(_token: Any, args: tuple[Any, ...], kwargs: dict[str, Any], _error: BaseException) -> None:
            session = self.session
            call = read_call(function, original, args, kwargs, None)
            if call is not None and not is_wrapped(call.input):
                phase = TRAIN if call.input.requires_grad else UNKNOWN
                session.loss_calls.write(describe(call, caller()), value_statistics(call), phase, session.context.step)
            session.pass_failed()

        return loss_failed

    def _look_at_loss(self, call: LossCall, grad: bool) -> None:
        session = self.session
        start = thread_time()
        place = caller()
        seen = session.loop.loss(grad)
        box: list[float] = []
        if not grad or not session.loop.backwards or not seen.data.get("watched", True):
            session.context.read(_mean_loss(call), lambda value: box.append(float(value)))
        target = call.target
        if not grad and not self._allowance.permits(session.loop.backwards):
            self._only_count(call, seen, box, place)
            return
        detailed = session.looks_at_pass(BATCH)
        if grad and detailed:
            session.residuals.take(call, session.batch)
        classes = call.input.shape[call.class_dim] if call.class_dim is not None else None
        look = LossLook(
            fact=describe(call, place),
            values=value_statistics(call) if detailed or seen.losses <= 1 else None,
            counts=count(call),
            target=look_at(target, "target", detailed=detailed, classes=classes) if target is not None else None,
            box=box,
            samples=call.samples,
            site=str(place) if place else call.function,
            rows=observe(call, _source(seen), closely=not grad),
        )
        seen.data.setdefault("losses", []).append(look)
        if not grad:
            session.membership.target(seen, target)
        elif session.looks_at_pass(BATCH):
            session.leakage.look(session.membership.last_input(), target)
        if grad:
            if detailed:
                session.called_loss.called(_mean_loss(call))
            session.spend(BATCH, start)
            if detailed and session.loop.validations:
                session.sharpness.take(
                    call, seen.data.pop("given", []), seen.data.get("model"), session.governor.budget
                )
        else:
            self._allowance.spend(thread_time() - start)

    def _only_count(self, call: LossCall, seen: Pass, box: list[float], place: Place | None) -> None:
        """A batch of a validation whose close looks have used up their time."""
        look = LossLook(
            fact=describe(call, place),
            values=None,
            counts=count(call),
            target=None,
            box=box,
            samples=call.samples,
            site=str(place) if place else call.function,
            passed_over=True,
        )
        seen.data.setdefault("losses", []).append(look)


def _source(seen: Pass) -> Tensor | None:
    """What the model got in that pass, if it still exists."""
    for name in ("source", "first"):
        found = seen.data[name]() if name in seen.data else None
        if isinstance(found, Tensor):
            return found
    return None


def _mean_loss(call: LossCall) -> Tensor:
    """The call's loss as a mean: sums are divided by their number of targets, so that batches compare."""
    result = call.result.detach()
    if result.numel() != 1:
        return result.float().mean()
    if call.options.get("reduction") == "sum":
        source = call.target if call.target is not None and call.indices else call.input
        return result / max(1, source.numel())
    return result


def is_wrapped(tensor: Tensor) -> bool:
    """Inside torch.func a tensor is a wrapper that must not be kept or read."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)
