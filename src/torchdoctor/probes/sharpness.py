"""How much the loss of a training batch rises when noise is added to the weights.

It takes passes of its own, so a forked child makes them: on its copy of the model, with its copy of the random state,
without hooks of ours and with its output closed. What it finds comes back through a pipe that is read when it is there.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchdoctor.attach.guard import contained
from torchdoctor.attach.ranks import is_together
from torchdoctor.facts import SharpnessFact
from torchdoctor.interruptions import let_through
from torchdoctor.probes.activations import first_tensor
from torchdoctor.probes.context import Context
from torchdoctor.probes.directions import filter_noise
from torchdoctor.probes.forking import Errand, Report, tell, unsafe
from torchdoctor.probes.loss_calls import LossCall

FUNCTIONS = ("cross_entropy", "binary_cross_entropy_with_logits", "mse_loss")
SIZES = (0.05, 0.2)
"""Noise in a row of a weight matrix over the row's norm: one that rounding to eight bits is well below, and one that
flat minima still bear."""
DRAWS = 10
MOST_FORKS = 3
LOOP_FORKS = 2
"""Forks while it trains; one is kept for the end, if the model lives until then."""
FIRST_STEP, GROWTH = 120, 5.0
"""Steps of the forks while it trains: from the first on, and then this many times later."""
SHARE, UNNOTICED = 0.1, 0.05
"""Part of the overhead budget that forks may use, and the seconds beyond it that they may take from any run."""
LEAST_STEPS = 40
"""A run that ends sooner is not measured."""
CHILD_SECONDS = 5.0
"""A child that lives longer is ended by its own alarm."""
DRAWING_SECONDS = 2.0
"""A child begins no further draw after this time."""
PATIENCE = 0.3
"""How long the end of a run waits for a child, and the share of the run's time beyond it."""
PATIENT_SHARE = 0.002
RESIDENT_LIMIT = 2 << 30
"""A fork copies the page tables: some milliseconds for each gigabyte."""
BATCH_LIMIT = 64 << 20
"""Bytes of a batch that are kept until the end."""
SAME, WORSE = 1e-3, 1.5
"""A recomputed loss is the recorded one if it differs by no more; with dropout if neither is half again as large as the
other; after further updates it may be smaller."""
BOUNDLESS = 1e30
"""Stands for a loss that is not finite."""


@dataclass(frozen=True)
class Setup:
    """A training pass that can be made again."""

    model: weakref.ref[nn.Module]
    inputs: list[Tensor]
    function: str
    shape: torch.Size
    target: Tensor
    options: Mapping[str, Any]
    recorded: float
    samples: int


class SharpnessProbe:
    """Forks at most MOST_FORKS children a run, and writes a SharpnessFact for each that reports."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._setup: Setup | None = None
        self._next = float(FIRST_STEP)
        self._forks = 0
        self._errand = Errand()
        self._step = 0
        self._began = perf_counter()
        self._spent = 0.0
        self._measured = False

    @contained("sharpness: take")
    def take(
        self, call: LossCall, batch: list[Tensor], reference: weakref.ref[nn.Module] | None, budget: float
    ) -> None:
        """A look at a training batch of a run that validates, in the midst of the batch's loss call."""
        self.poll()
        step = self._context.step
        if step < LEAST_STEPS // 2 or self._errand.under_way or self._forks >= MOST_FORKS:
            return
        if call.function not in FUNCTIONS:
            return
        model = reference() if reference is not None else None
        reason = unfit(call, batch, model)
        if reason is not None or reference is None:
            self._say_why_not(reason or "")
            self._setup = None
            return
        forking = step >= self._next and self._forks < LOOP_FORKS and self._affords(budget)
        self._setup = Setup(
            reference,
            [_own(t) for t in batch],
            call.function,
            call.input.shape,
            _own(call.target.detach()) if call.target is not None else torch.empty(0),
            {k: v for k, v in call.options.items() if k not in _PLAIN},
            float(call.result.detach()),
            call.samples,
        )
        if forking:
            self._next = GROWTH * step
            self._fork(at_end=False)

    def _affords(self, budget: float) -> bool:
        """Whether one more fork like those before is inside our part of the budget."""
        expected = self._spent / self._forks if self._forks else 0.0
        return self._spent + expected <= UNNOTICED + SHARE * budget * (perf_counter() - self._began)

    def _say_why_not(self, reason: str) -> None:
        if not self._measured:
            self._context.unsupported["sharpness"] = reason

    @contained("sharpness: close")
    def close(self, crashed: bool = False) -> None:
        """The training is over: measure where it ended, if its model is still there, and wait a moment for it."""
        if crashed:
            self._setup = None
            self._wait(0.0)
        deadline = perf_counter() + PATIENCE + PATIENT_SHARE * (perf_counter() - self._began)
        self._wait(deadline)
        if self._setup is not None and self._forks < MOST_FORKS and self._context.step >= LEAST_STEPS:
            self._fork(at_end=True)
            self._wait(deadline)
        self._setup = None
        self._errand.bury()

    @contained("sharpness: poll")
    def poll(self) -> None:
        """Take what the child has said, if it has ended; never waits."""
        self._take(0.0)

    def _take(self, patience: float) -> None:
        report = self._errand.report(patience)
        if report is not None:
            self._write(report)

    def _wait(self, deadline: float) -> None:
        self._take(deadline - perf_counter())
        if self._errand.give_up():
            self._say_why_not("the child process was too slow")

    def _write(self, report: Report) -> None:
        if "reason" in report:
            self._say_why_not(report["reason"])
            return
        self._measured = True
        self._context.unsupported.pop("sharpness", None)
        self._context.record.fact(SharpnessFact(**report), self._step)

    def _fork(self, at_end: bool) -> None:
        setup = self._setup
        model = setup.model() if setup is not None else None
        reason = unsafe(RESIDENT_LIMIT)
        if setup is None or model is None or reason is not None:
            self._say_why_not(reason or "the model is gone when the training ends")
            return
        start = perf_counter()
        self._forks += 1
        self._step = self._context.step
        try:
            pipe = self._errand.send(CHILD_SECONDS)
        except OSError as error:
            let_through(error)
            self._say_why_not(f"the process cannot be forked ({error.strerror})")
            return
        if pipe is not None:
            tell(pipe, _report(model, setup, at_end))
        self._spent += perf_counter() - start


def _report(model: nn.Module, setup: Setup, at_end: bool) -> Report:
    try:
        return measure(model, setup, at_end)
    except BaseException as error:
        return {"reason": f"the pass could not be made again ({type(error).__name__})"}


_PLAIN = ("input", "target", "size_average", "reduce")


def _own(tensor: Tensor) -> Tensor:
    """The tensor, or a copy of it where keeping it would keep a data set."""
    small = tensor.untyped_storage().nbytes() <= 2 * tensor.numel() * tensor.element_size()
    return tensor if small else tensor.clone()


def unfit(call: LossCall, batch: list[Tensor], model: nn.Module | None) -> str | None:
    """Why this pass cannot be made again, or None."""
    if model is None or not batch:
        return "the model's call or its inputs were not seen"
    if is_together():
        return "several processes train together"
    if getattr(model, "_compiled_call_impl", None) is not None:
        return "the model compiles itself"
    if sys.platform != "linux":
        return "only measured on Linux"
    if call.target is None or call.result.numel() != 1:
        return "the loss has no target or is not one number"
    tensors = [*batch, call.target, call.input, *model.parameters(), *model.buffers()]
    if torch.cuda.is_initialized() or any(t.device.type != "cpu" for t in tensors):
        return "only measured on the CPU"
    if sum(t.numel() * t.element_size() for t in (*batch, call.target)) > BATCH_LIMIT:
        return "the batch is too large to be kept"
    if any(m._forward_hooks or m._forward_pre_hooks for m in model.modules()):
        return "the model has hooks of its own, which a pass would set off"
    return None


@torch.no_grad()
def measure(model: nn.Module, setup: Setup, at_end: bool) -> Report:
    """Losses with and without noise; changes the model, so only for a child's copy of it."""
    began = perf_counter()
    again = _loss(model, setup)
    same = abs(again - setup.recorded) <= SAME * max(abs(setup.recorded), abs(again))
    random = again != _loss(model, setup)
    near = again <= WORSE * setup.recorded and (at_end or (random and setup.recorded <= WORSE * again))
    if not (same or near):
        return {"reason": "a pass made again does not give the recorded loss"}
    model.eval()
    base = _loss(model, setup)
    weights = [p for p in model.parameters() if p.dim() >= 2 and p.is_floating_point()]
    if not weights or base == BOUNDLESS:
        return {"reason": "there is no weight matrix, or the loss is not finite"}
    kept = [w.clone() for w in weights]
    generator = torch.Generator().manual_seed(0)
    losses: list[list[float]] = [[] for _ in SIZES]
    for _ in range(DRAWS):
        if perf_counter() - began > DRAWING_SECONDS:
            break
        noises = [filter_noise(w, generator) for w in kept]
        for size, found in zip(SIZES, losses, strict=True):
            for weight, own, noise in zip(weights, kept, noises, strict=True):
                weight.copy_(own + size * noise)
            found.append(_loss(model, setup))
    return {
        "loss": base,
        "sizes": list(SIZES),
        "losses": losses,
        "function": setup.function,
        "samples": setup.samples,
        "weights": sum(w.numel() for w in weights),
        "at_end": at_end,
    }


def _loss(model: nn.Module, setup: Setup) -> float:
    output = first_tensor(model(*setup.inputs))
    if output is None or output.numel() != setup.shape.numel():
        raise ValueError("another output")
    loss = float(getattr(F, setup.function)(output.reshape(setup.shape), setup.target, **setup.options))
    return min(loss, BOUNDLESS) if math.isfinite(loss) else BOUNDLESS
