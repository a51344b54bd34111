"""On a device a bad loss is known some steps late, and by then it has spoilt the weights: the way back to before it.

A copy of weights, buffers, optimizer and scaler state is made in the memory of the host every so many updates, so that
it takes a fixed share of the time. The batches that loaders gave since, in their order, and every step's random states
and rates are kept as they were. All of it stays within the limit of a capture; what does not fit is not kept, and that
is said. A capture taken when the failure shows holds the copy and the steps from it on, and a replay walks them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor.attach.contents import UnknownError, storages_of
from torchdoctor.attach.guard import contained
from torchdoctor.attach.options import NONFINITE
from torchdoctor.attach.ranks import is_together
from torchdoctor.attach.restoring import SCALER_FIELDS
from torchdoctor.attach.snapshots import Cadence, Snapshot, copied, gather, is_sound
from torchdoctor.probes.memory import memory_left
from torchdoctor.stats.support import PLAIN_TYPES

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session

MEMORY_SHARE = 0.25
"""Of the host's free memory, what the processes of a machine may take together."""
MOST_STEPS = 1024
"""Between two copies. A capture lists each of them."""
DEVICE_BYTES = 64 << 20
"""Of batches that lie on the device, where the training may need the room."""
SHARED_BYTES = 4 << 20
"""Of a batch in memory that a loader's worker shares: each holds open files, so it is copied, if that takes no time."""
RANDOM_BYTES = 5200
"""Of the random states that a step or a batch is kept with."""
STATE_SIZE = 3
"""Weights and what optimizers hold for them, at first, over the weights alone."""
UNTIL = "state before a failure"
"""What is not supported, where there is no way back."""

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
    versions: tuple[tuple[Tensor, int], ...]
    """what changes when somebody writes into it"""

    @property
    def is_as_it_was(self) -> bool:
        return all(tensor._version == version for tensor, version in self.versions)


@dataclass
class Step:
    """What a step began with."""

    number: int
    random: Randoms | None
    """None where it is the first batch's"""
    fetched: int
    """batches before it, in all"""
    groups: dict[str, list[dict[str, Any]]]
    """each optimizer's rates and the like, when its update was made"""


@dataclass(frozen=True)
class PastStep:
    """A step as a capture holds it: with the batches that were fetched in it."""

    number: int
    random: Randoms | None
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
    lead: int
    """batches that the loop fetches before it needs them"""
    places: set[int]
    """where in memory its own copies lie"""

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
    def begin(self) -> None:
        """The first update is about to be made: is there need of a way back, and room for it?"""
        self.undecided = False
        session = self._session
        optimizers, weights, _ = gather(session.registry)
        if not is_late(weights):
            return
        if not all(type(p) in PLAIN_TYPES for p in weights):
            session.context.unsupported[UNTIL] = "weights lie in shards on several devices"
            return
        self._limit = self._room()
        size = sum(p.numel() * p.element_size() for p in weights if p.requires_grad)
        fresh = not any(o.state for o in optimizers)
        if size * (STATE_SIZE if fresh else 1) > self._limit:
            session.context.unsupported[UNTIL] = (
                f"weights and optimizer state take {STATE_SIZE * size / 1e6:.3g} MB, and {self._limit / 1e6:.3g} MB "
                "are allowed (--capture-limit)"
            )
            return
        self._snapshot = Snapshot(self._limit, in_host=True)
        self._devices = sorted({p.device.index or 0 for p in weights if p.is_cuda})
        start = session.step_start
        first = Randoms(start.random, {i: self._before[i] for i in self._devices if i in self._before})
        self.on = True
        self._keep(session.context.step)
        if self._steps:
            self._steps[0].random, self._steps[0].fetched = first, 0
            self._stream, self._total = [], 0
            for batch in start.of_this_walk():
                self._take(batch, first)

    def _room(self) -> int:
        left = memory_left()
        limit = self._session.options.capture_bytes
        share = MEMORY_SHARE / max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1))
        return limit if left is None else min(limit, int(left * share))

    @contained("rolling: fetched")
    def fetched(self, batch: Any) -> None:
        """A loader gave a batch for training."""
        if self._steps:
            self._take(batch, self._randoms())

    def _take(self, batch: Any, states: Randoms) -> None:
        try:
            tensors, size = storages_of(batch)
        except UnknownError as error:
            self._end(f"batches cannot be kept ({error})")
            return
        there = sum(t.untyped_storage().nbytes() for t in tensors if not t.is_cpu)
        if any(t.is_cpu and t.is_shared() for t in tensors):
            if size > SHARED_BYTES:
                self._end("batches lie in memory that loader workers share; pin_memory=True lets them be kept")
                return
            batch, tensors = copied(batch), ()
            if any(t.is_shared() for t in storages_of(batch)[0]):
                self._end("batches lie in memory that loader workers share, and are of a kind that is not copied")
                return
        versions = tuple((t, t._version) for t in tensors if not t.is_inference())
        self._stream.append(Fetched(batch, states, size - there + RANDOM_BYTES, there, versions))
        self._total += 1
        self._hold(self._stream[-1].nbytes, there)

    def _hold(self, nbytes: int, there: int) -> None:
        self._held += nbytes
        self._held_there += there
        if self._held_there > DEVICE_BYTES:
            self._end(f"batches on the device take more than {DEVICE_BYTES / 1e6:.3g} MB between two copies")
        elif self._held + self._snapshot.nbytes > self._limit:
            self._lose(
                f"the copy and the batches of {len(self._steps)} steps take more than {self._limit / 1e6:.3g} MB"
            )
        elif len(self._steps) > MOST_STEPS or len(self._stream) > 4 * MOST_STEPS:
            self._lose(f"there are more than {MOST_STEPS} steps or many batches between two copies")

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
        if not (self._is_due(step) and self._keep(step)) and self._steps:
            self._begin_step(step)

    def _is_due(self, step: int) -> bool:
        """Processes that train together wait for each other, so all of them copy at the same steps."""
        due = self._cadence.count()
        return due and (not is_together() or step % (1 << (self._cadence.every - 1).bit_length()) == 0)

    def _begin_step(self, number: int) -> None:
        by_loader = self._steps and self._total > self._steps[-1].fetched
        self._steps.append(Step(number, None if by_loader else self._randoms(), self._total, {}))
        self._hold(RANDOM_BYTES, 0)

    def _keep(self, step: int) -> bool:
        """Copy what the step begins with; False where that is no way back."""
        session = self._session
        if torch.cuda.is_initialized():
            session.deferred.drain()  # a loss that is not finite is told now, while the last copy is still there
        if not self.on:
            return False
        begun = perf_counter()
        optimizers, weights, buffers = gather(session.registry)
        if not is_sound(weights, buffers):
            self._cadence.restart()
            return False
        trained = [p for p in weights if p.requires_grad]
        why = self._snapshot.take([*trained, *buffers], optimizers, step)
        if why is not None:
            self._end(why)
            return False
        self._scalers = [
            copied({n: getattr(s, n) for n in SCALER_FIELDS if hasattr(s, n)}) for s in session.capturing.scalers
        ]
        self._python, self._numpy = random.getstate(), np.random.get_state()
        if self._snapshot.grew:  # which takes longer than it will from now on
            self._cadence.restart()
        else:
            self._cadence.spent(begun, perf_counter())
        del self._stream[: max(0, len(self._stream) - session.step_start.ahead)]
        self._held = sum(f.nbytes for f in self._stream)
        self._held_there = sum(f.on_device for f in self._stream)
        self._steps = []
        session.context.unsupported.pop(UNTIL, None)
        self._begin_step(step)
        return bool(self._steps)

    def _randoms(self) -> Randoms:
        cuda = {i: torch.cuda.default_generators[i].get_state() for i in self._devices}
        return Randoms(_torch_state() if self._session.step_start.draws else None, cuda)

    def _lose(self, why: str) -> None:
        """There is no way back until the next copy."""
        self._steps, self._stream = [], []
        self._held = self._held_there = 0
        self._session.context.unsupported[UNTIL] = why

    def _end(self, why: str) -> None:
        """There is none from now on."""
        self.close()
        self._lose(why)

    # -- when it fails, or ends ------------------------------------------------------------

    @contained("rolling: reach")
    def reach(self, step: int) -> Past | None:
        """The way to that step, which is handed over."""
        steps, stream, first = self._steps, self._stream, self._total - len(self._stream)
        numbers = [s.number for s in steps]
        if not self.on or self._snapshot.step is None or step not in numbers:
            return None
        if not all(fetched.is_as_it_was for fetched in stream):
            self._lose("batches were changed in place after they were given")
            return None
        ends = [*(s.fetched for s in steps[1:]), self._total]
        begins = [first, *ends]
        past = [
            PastStep(s.number, s.random, stream[begin - first : end - first], s.groups)
            for s, begin, end in zip(steps, begins, ends, strict=False)
            if s.number <= step
        ]
        lead = self._session.step_start.lead
        return Past(self._snapshot, self._scalers, self._python, self._numpy, past, lead, self._snapshot.places)

    @contained("rolling: close")
    def close(self) -> None:
        """Nothing is kept any more."""
        self.on = self.undecided = False
        self._steps, self._stream, self._scalers = [], [], []
        self._snapshot = Snapshot(0, in_host=True)
