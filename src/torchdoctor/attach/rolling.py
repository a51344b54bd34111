"""On a device a bad loss is known some steps late, and by then it has spoilt the weights: the way back to before it.

A copy of weights, buffers, optimizer and scaler state is made in the memory of the host every so many updates, so that
it takes a fixed share of the time. What every step since began with (its batches, random states and rates) is kept as
it was. Both together stay within the limit of a capture; what does not fit is not kept, and that is said. A capture
taken when the failure shows holds the copy and the steps from it on, and a replay walks them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor.attach.guard import contained
from torchdoctor.attach.options import NONFINITE
from torchdoctor.attach.restoring import SCALER_FIELDS
from torchdoctor.attach.snapshots import Cadence, Snapshot, copied, is_sound
from torchdoctor.probes.memory import memory_left
from torchdoctor.stats.support import PLAIN_TYPES

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session

MEMORY_SHARE = 0.25
"""Of the host's free memory, what the copy and the batches may take."""
RANDOM_BYTES = 5200
"""Of the random states that a step or a batch is kept with."""
DEVICE_BYTES = 256 << 20
"""Of batches that lie on the device, where the training may need the room."""

_torch_state = torch.default_generator.get_state


@dataclass(frozen=True)
class Randoms:
    """States of torch's generators."""

    cpu: Tensor | None
    """None where the loop does not draw from it"""
    cuda: dict[int, Tensor]


@dataclass(frozen=True)
class Fetched:
    """A batch that a loader gave."""

    batch: Any
    random: Randoms
    """once it was there"""
    nbytes: int
    on_device: int


@dataclass
class Step:
    """What a step began with."""

    number: int
    random: Randoms
    fetched: int
    """batches before it, in all"""
    ahead: int
    """of those, how many were not used yet"""
    groups: dict[str, list[dict[str, Any]]]
    """each optimizer's rates and the like, when its update was made"""


@dataclass(frozen=True)
class PastStep:
    """A step as a capture holds it."""

    number: int
    random: Randoms
    batches: list[Fetched]
    groups: dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Past:
    """The state before an earlier step, and that step and those after it up to the one that failed."""

    snapshot: Snapshot
    scalers: list[dict[str, Any]]
    python: Any
    numpy: Any
    steps: list[PastStep]
    places: set[int]
    """where in memory its own copies lie"""

    def tensor(self, tensor: Tensor) -> Tensor:
        copy = self.snapshot.copy_of(tensor)
        return tensor if copy is None else copy

    def owns(self, tensor: Tensor) -> bool:
        """Nobody else holds it."""
        return tensor.untyped_storage().data_ptr() in self.places


def is_late(parameters: Iterable[Tensor]) -> bool:
    """Values of these are known only after the program has gone on."""
    return any(p.is_cuda for p in parameters)


class Rolling:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.undecided = NONFINITE in session.options.capture
        self.on = False
        self._limit = 0
        self._snapshot = Snapshot(0, in_host=True)
        self._cadence = Cadence()
        self._scalers: list[dict[str, Any]] = []
        self._python: Any = None
        self._numpy: Any = None
        self._devices: list[int] = []
        self._stream: list[Fetched] = []
        """batches that loaders gave, from the first that the snapshot's step used on"""
        self._total = 0
        self._held = self._held_there = 0
        """bytes of those on the host and on the device"""
        self._steps: list[Step] = []
        """from the snapshot's on; none while the way back is broken"""
        self._before: dict[int, Tensor] = {}
        """CUDA's random states before the first forward pass, as far as they were seen"""

    # -- while it trains ---------------------------------------------------------------

    @contained("rolling: not begun")
    def not_begun(self) -> None:
        """An optimizer was made or a batch fetched before the first update."""
        if torch.cuda.is_initialized():
            self._before = {i: g.get_state() for i, g in enumerate(torch.cuda.default_generators)}

    @contained("rolling: begin")
    def begin(self, optimizer: Optimizer) -> None:
        """The first update is about to be made: is there need of a way back, and room for it?"""
        self.undecided = False
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if not is_late(parameters) or not all(type(p) in PLAIN_TYPES for p in parameters):
            return  # shards of tensors that lie on several devices
        left = memory_left()
        limit = self._session.options.capture_bytes
        self._limit = limit if left is None else min(limit, int(left * MEMORY_SHARE))
        self._snapshot = Snapshot(self._limit, in_host=True)
        self._devices = sorted({p.device.index or 0 for p in parameters if p.is_cuda})
        start = self._session.step_start
        first = Randoms(start.random, {i: self._before[i] for i in self._devices if i in self._before})
        self._stream = [Fetched(b, first, 0, 0) for b in start.batches]
        self._total = len(self._stream)
        self.on = True
        self._keep(self._session.context.step, at_start=True)
        if self._steps:
            self._steps[0] = Step(self._steps[0].number, first, 0, 0, {})

    @contained("rolling: fetched")
    def fetched(self, batch: Any, tensors: list[Tensor]) -> None:
        """A loader gave a batch for training."""
        if self._steps:
            size = sum(t.numel() * t.element_size() for t in tensors)
            there = sum(t.numel() * t.element_size() for t in tensors if not t.is_cpu)
            self._stream.append(Fetched(batch, self._randoms(), size - there + RANDOM_BYTES, there))
            self._total += 1
            self._hold(self._stream[-1].nbytes, there)

    def _hold(self, nbytes: int, there: int) -> None:
        self._held += nbytes
        self._held_there += there
        if self._held + self._snapshot.nbytes > self._limit or self._held_there > DEVICE_BYTES:
            allowed = f"{self._limit / 1e6:.3g} MB, of which {DEVICE_BYTES / 1e6:.3g} MB on the device, are allowed"
            self._lose(f"the batches of {len(self._steps)} steps and the copy take too much memory: {allowed}")

    @contained("rolling: updated")
    def updated(self, optimizer: Optimizer) -> None:
        """An update was made: with which rates."""
        if self._steps:
            key = self._session.registry.optimizer_key(optimizer)
            self._steps[-1].groups[key] = [
                {k: v.clone() if isinstance(v, Tensor) else v for k, v in group.items() if k != "params"}
                for group in optimizer.param_groups
            ]

    @contained("rolling: stepped")
    def stepped(self) -> None:
        """A step is over, with an update or, where a scaler left it out, without: `context.step` is the next."""
        step = self._session.context.step
        if self._steps and self._steps[-1].number >= step:
            return  # another optimizer's update is still to come
        if not (self._cadence.count() and self._keep(step)) and self._steps:
            self._begin_step(step)

    def _begin_step(self, number: int) -> None:
        ahead = min(self._session.step_start.ahead(self._session.loop.backwards), len(self._stream))
        self._steps.append(Step(number, self._randoms(), self._total, ahead, {}))
        self._hold(RANDOM_BYTES, 0)

    def _keep(self, step: int, at_start: bool = False) -> bool:
        """Copy what the step begins with; False where that is no way back."""
        session = self._session
        optimizers = [o for _, o in session.registry.live_optimizers()]
        weights = {id(p): p for o in optimizers for g in o.param_groups for p in g["params"]}
        weights |= {id(p): p for _, p in session.registry.parameters()}
        buffers = [b for _, model in session.registry.live_models() for b in model.buffers()]
        if torch.cuda.is_initialized():
            session.deferred.drain()  # a loss that is not finite is told now, while the last copy is still there
        if not self.on:
            return False
        begun = perf_counter()
        if not is_sound(list(weights.values()), buffers):
            self._cadence.restart()
            return False
        why = self._snapshot.take([*weights.values(), *buffers], optimizers, step)
        if why is not None:
            self.on = False
            self._lose(why)
            return False
        self._scalers = [
            copied({n: getattr(s, n) for n in SCALER_FIELDS if hasattr(s, n)}) for s in session.capturing.scalers
        ]
        self._python, self._numpy = random.getstate(), np.random.get_state()
        self._cadence.spent(begun, perf_counter())
        unused = session.step_start.ahead(session.loop.backwards)
        if not at_start:
            del self._stream[: max(0, len(self._stream) - unused)]
        self._held = sum(f.nbytes for f in self._stream)
        self._held_there = sum(f.on_device for f in self._stream)
        self._steps = []
        self._begin_step(step)
        return bool(self._steps)

    def _randoms(self) -> Randoms:
        start = self._session.step_start
        cuda = {i: torch.cuda.default_generators[i].get_state() for i in self._devices}
        return Randoms(_torch_state() if start.draws else None, cuda)

    def _lose(self, why: str) -> None:
        """There is no way back until the next copy."""
        self._steps, self._stream = [], []
        self._session.context.unsupported["state before a failure"] = why

    # -- when it fails -------------------------------------------------------------------

    @contained("rolling: reach")
    def reach(self, step: int) -> Past | None:
        """The way to that step, which is handed over: from now on nothing more is kept."""
        numbers = [s.number for s in self._steps]
        if not self.on or self._snapshot.step is None or step not in numbers:
            return None
        self._begin_step(self._steps[-1].number + 1)
        if not self._steps:
            return None
        first = self._total - len(self._stream)
        steps = []
        for one, following in zip(self._steps, self._steps[1:], strict=False):
            used = slice(one.fetched - one.ahead - first, following.fetched - following.ahead - first)
            steps.append(PastStep(one.number, one.random, self._stream[used], one.groups))
        self.on = False
        self._steps, self._stream = [], []
        steps = [s for s in steps if s.number <= step]
        return Past(self._snapshot, self._scalers, self._python, self._numpy, steps, self._snapshot.places)
