"""One sweep of the learning rate: updates as the user's loop would make them, with a rate that grows."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from torchdoctor.errors import UsageError
from torchdoctor.instruments.batches import endless
from torchdoctor.instruments.learning_rate.curve import Descent, Sweep
from torchdoctor.instruments.modes import evaluating
from torchdoctor.instruments.state import Bearing, Randomness
from torchdoctor.instruments.subject import Subject

FIRST = 10
"""Losses that say where an unpaired sweep starts: at the lowest rates nothing moves yet."""

HUGE = 1e4
"""Growth of the largest weight from which an error in the model is put down to the rate."""


class Rates:
    """Sets the rates of all parameter groups together: the largest to the one given, the others by their ratio."""

    def __init__(self, optimizer: Any) -> None:
        self._groups = optimizer.param_groups
        if not all("lr" in group for group in self._groups):
            raise UsageError(f"{type(optimizer).__name__} has parameter groups without a learning rate ('lr')")
        # A scheduler keeps the rate that was meant under initial_lr; a warm-up may have set lr itself to zero.
        meant = [float(group.get("initial_lr", group["lr"])) for group in self._groups]
        largest = max(meant)
        self.ratios = [rate / largest for rate in meant] if largest > 0 else [1.0] * len(meant)

    def set(self, rate: float) -> None:
        for group, ratio in zip(self._groups, self.ratios, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * ratio)
            else:
                group["lr"] = rate * ratio


class Stepper:
    """One update from a few batches: accumulation, mixed precision, clipping, closures."""

    def __init__(
        self,
        subject: Subject,
        optimizer: Any,
        *,
        scaler: Any = None,
        max_norm: float | None = None,
        closure: bool | None = None,
    ) -> None:
        self._subject, self._optimizer = subject, optimizer
        self._scaler = scaler if scaler is not None and scaler.is_enabled() else None
        self._max_norm = max_norm
        self._closure = needs_closure(optimizer) if closure is None else closure
        if self._closure and self._scaler is not None:
            raise UsageError(
                f"{type(optimizer).__name__} takes a closure, which a GradScaler cannot serve; leave `scaler` out "
                "(bfloat16 needs none)"
            )
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]

    def __call__(self, batches: Sequence[Any]) -> float:
        """The mean loss of the batches, as it was before the update."""
        if self._closure:
            seen: list[Tensor] = []

            def closure() -> Tensor:
                loss = self._backward(batches)
                seen.append(loss)
                return loss

            self._optimizer.step(closure)
            return float(seen[0])
        loss = self._backward(batches)
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        return float(loss)

    def largest_weight(self) -> float:
        """Infinite where one is not finite."""
        largest = max((float(p.detach().abs().max()) for p in self.parameters if p.numel()), default=0.0)
        return largest if math.isfinite(largest) else math.inf

    def _backward(self, batches: Sequence[Any]) -> Tensor:
        self._optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self._subject.device)
        with torch.enable_grad():
            for place, batch in enumerate(batches):
                last = place == len(batches) - 1
                with contextlib.nullcontext() if last else unsynchronised(self._subject.model):
                    loss = self._subject.loss(batch)
                    if not loss.requires_grad:
                        raise UsageError("the loss hangs on no trainable parameter; torchdoctor.overfit_batch says why")
                    part = loss / len(batches)
                    (part if self._scaler is None else self._scaler.scale(part)).backward()
                total += part.detach()
        if self._max_norm is not None:
            if self._scaler is not None:
                self._scaler.unscale_(self._optimizer)
            nn.utils.clip_grad_norm_(self.parameters, self._max_norm)
        return total


def needs_closure(optimizer: Any) -> bool:
    if isinstance(optimizer, torch.optim.LBFGS):
        return True
    # A scheduler wraps `step` and hides its signature, but not that of the class.
    try:
        known = inspect.signature(type(optimizer).step).parameters.get("closure")
    except (TypeError, ValueError):
        return False
    return known is not None and known.default is known.empty


def unsynchronised(model: nn.Module) -> contextlib.AbstractContextManager[Any]:
    """Gradients are not exchanged between processes inside."""
    no_sync = getattr(model, "no_sync", None)
    return no_sync() if callable(no_sync) else contextlib.nullcontext()


class Twin:
    """The model as the sweep found it: it sees the same batches with the same dropout and never learns."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        found = {id(t): t for part in subject.parts for t in (*part.parameters(), *part.buffers())}
        self._tensors = list(found.values())
        self._kept = [t.detach().clone() for t in self._tensors]
        self._start = Bearing(*subject.parts)

    def loss(self, batches: Sequence[Any]) -> float:
        """Gradients stay on, so that models which differentiate inside work; there is no backward."""
        randomness, now = Randomness(), Bearing(*self._subject.parts)
        self._start.put_back()
        self._change_places()
        try:
            with torch.enable_grad(), unsynchronised(self._subject.model):
                return math.fsum(float(self._subject.loss(batch).detach()) for batch in batches) / len(batches)
        finally:
            self._change_places()
            now.put_back()
            randomness.put_back()

    @torch.no_grad()
    def _change_places(self) -> None:
        for tensor, kept in zip(self._tensors, self._kept, strict=True):
            held = tensor.detach().clone()
            tensor.copy_(kept)
            kept.copy_(held)


class Course:
    """How the losses of a sweep are had: each is of data that the update before it did not use."""

    def __init__(
        self,
        subject: Subject,
        stepper: Stepper,
        rates: Rates,
        *,
        accumulate: int = 1,
        paired: bool = True,
        validation: Sequence[Any] = (),
        distributed: bool = False,
        watch: Callable[[Any], None] = lambda batch: None,
    ) -> None:
        self._subject, self._stepper, self._rates = subject, stepper, rates
        self._accumulate, self._validation, self._distributed = accumulate, validation, distributed
        self._paired = paired and not validation
        self._largest = 1.0
        self._watch = watch

    def run(
        self, seed: int, loader: Iterable[Any], rates: Sequence[float], descent: Descent, advance: Callable[[], None]
    ) -> Sweep:
        sow(seed, loader)
        self._largest = max(1.0, self._stepper.largest_weight())
        losses: list[float] = []
        before: list[float] = []
        diverged = False
        with contextlib.closing(endless(loader)) as batches:
            seen = self._after_updates(rates, batches) if self._validation else self._between_updates(rates, batches)
            for loss, untrained in seen:
                advance()
                diverged = not math.isfinite(loss)
                if not diverged:
                    losses.append(loss)
                    before.append(untrained)
                    scale = max(abs(float(np.mean(before))), float(np.std(before)))
                    diverged = descent.diverges(loss - untrained, scale)
                if diverged:
                    break
        if not self._paired:
            before = before[-1:] * len(before)
        return Sweep(seed, np.array(rates[: len(losses)]), np.array(losses), np.array(before), diverged)

    def _between_updates(self, rates: Sequence[float], batches: Iterator[Any]) -> Iterator[tuple[float, float]]:
        """For each rate the loss of the next batches, and that on the weights that the sweep began with. Without a twin
        that is the mean of the first few losses."""
        twin = Twin(self._subject) if self._paired else None
        first: list[float] = []
        for place, rate in enumerate([*rates, rates[-1]]):
            seen = self._update(rate, batches, twin)
            _check_untrained(seen[0] if place == 0 else seen[1])
            if twin is None and len(first) < FIRST:
                first.append(seen[0])
            if place:
                yield seen[0], seen[1] if twin is not None else float(np.mean(first))

    def _after_updates(self, rates: Sequence[float], batches: Iterator[Any]) -> Iterator[tuple[float, float]]:
        """For each rate the loss of the validation's batches, and what it was at first."""
        start = self._validate()
        _check_untrained(start)
        for rate in rates:
            loss, _ = self._update(rate, batches, None)
            yield (self._validate() if math.isfinite(loss) else loss), start

    def _update(self, rate: float, batches: Iterator[Any], twin: Twin | None) -> tuple[float, float]:
        """The loss before it, and that of the twin; NaN where the model cannot go on."""
        taken = list(itertools.islice(batches, self._accumulate))
        for batch in taken:
            self._watch(batch)
        untrained = twin.loss(taken) if twin is not None else 0.0
        self._rates.set(rate)
        try:
            loss = self._stepper(taken)
        except (ValueError, RuntimeError, ArithmeticError):
            # Distributions and assertions raise on NaN and Inf; with ordinary weights it is the user's own error.
            if self._stepper.largest_weight() <= HUGE * self._largest:
                raise
            return math.nan, untrained
        return self._mean(loss, untrained)

    def _validate(self) -> float:
        with evaluating(self._subject.model):
            losses = [float(self._subject.loss(batch)) for batch in self._validation]
        return self._mean(math.fsum(losses) / len(losses))[0]

    def _mean(self, *values: float) -> tuple[float, ...]:
        """Over all processes, so that they stop together."""
        if not self._distributed:
            return values
        shared = torch.tensor(values, dtype=torch.float32, device=self._subject.device)
        dist.all_reduce(shared)
        return tuple((shared / dist.get_world_size()).tolist())


def _check_untrained(loss: float) -> None:
    if not math.isfinite(loss):
        raise UsageError(
            f"a batch has a loss of {loss} on weights that no update has touched, which no rate can mend; look for NaN "
            "and Inf in the data and the loss first"
        )


def sow(seed: int, loader: Any) -> None:
    """Every source of chance begins at this seed, the loader's own among them."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    samplers = (getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None))
    for holder in (loader, *samplers):
        generator = getattr(holder, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(seed)
    for sampler in samplers:
        if hasattr(sampler, "set_epoch"):
            sampler.set_epoch(seed)


@contextlib.contextmanager
def same_epoch(loader: Any) -> Iterator[None]:
    """Samplers of several processes shuffle by the epoch they are told; afterwards it is the old one."""
    samplers = [getattr(loader, name, None) for name in ("sampler", "batch_sampler")]
    told = [(s, s.epoch) for s in samplers if hasattr(s, "set_epoch") and hasattr(s, "epoch")]
    try:
        yield
    finally:
        for sampler, epoch in told:
            sampler.set_epoch(epoch)
