"""On a device a bad loss is known some steps late, and by then it has spoilt the weights: the way back to before it.

A copy of weights, buffers, optimizer and scaler state is made in the memory of the host every so many updates, so that
it takes a fixed share of the time. The training does not wait for it: it goes into a second piece of memory, and takes
the place of the one before once it is there and every loss before it is known to be finite. The batches that loaders
gave since, in their order, and every step's random states and rates are kept as they were. All of it stays within the
limit of a capture; what does not fit is not kept, and that is said. A capture taken when the failure shows holds the
copy and the steps from it on, and a replay walks them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor.attach.contents import UnknownError, storages_of
from torchdoctor.attach.guard import contained
from torchdoctor.attach.options import NONFINITE
from torchdoctor.attach.past import Copy, Fetched, Past, PastStep, Randoms, Step, Stopwatch
from torchdoctor.attach.ranks import is_together
from torchdoctor.attach.restoring import SCALER_FIELDS
from torchdoctor.attach.snapshots import Cadence, Snapshot, copied, gather, soundness
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


def is_late(parameters: Iterable[Tensor]) -> bool:
    """Values of these are known only after the program has gone on."""
    return any(p.is_cuda for p in parameters)


class Rolling:
    def __init__(self, session: Session) -> None:
        self._session = session
        self.undecided = NONFINITE in session.options.capture
        self.on = False
        self._limit = 0
        self._places: list[Snapshot] = []
        """memory for copies: two, or one where there is no room for a second"""
        self._is_room_for_two = False
        self._copy: Copy | None = None
        """to go back to"""
        self._coming: Copy | None = None
        """to take its place"""
        self._cadence = Cadence()
        self._devices: list[int] = []
        self._stream: list[Fetched] = []
        """batches that loaders gave, from the first that the copy's step used on"""
        self._total = 0
        self._held = self._held_there = 0
        """bytes of those on the host and on the device"""
        self._steps: list[Step] = []
        """from the copy's on; none while the way back is broken"""
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
        size = sum(p.numel() * p.element_size() for p in weights if p.requires_grad)
        size *= STATE_SIZE if not any(o.state for o in optimizers) else 1
        room, left = session.options.capture_bytes, self._memory()
        self._limit = room if left is None else min(room, left)
        self._is_room_for_two = left is None or 2 * size <= left
        if size > self._limit:
            session.context.unsupported[UNTIL] = (
                f"weights and optimizer state take {size / 1e6:.3g} MB, and {self._limit / 1e6:.3g} MB "
                "are allowed (--capture-limit)"
            )
            return
        self._devices = sorted({p.device.index or 0 for p in weights if p.is_cuda})
        start = session.step_start
        first = Randoms(start.random, {i: self._before[i] for i in self._devices if i in self._before})
        self.on = True
        if self._keep(session.context.step):
            self._begin_step(session.context.step, first)
            for batch in start.of_this_walk():
                self._take(batch, first)

    def _memory(self) -> int | None:
        """Of the host, that may be taken."""
        left = memory_left()
        share = MEMORY_SHARE / max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1))
        return None if left is None else int(left * share)

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
        elif self._held + max((place.nbytes for place in self._places), default=0) > self._limit:
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
        if self._is_due(step) and self._keep(step):
            self._begin_step(step, self._randoms())
        elif self._steps:
            by_loader = self._total > self._steps[-1].fetched
            self._begin_step(step, None if by_loader else self._randoms())

    def _is_due(self, step: int) -> bool:
        """Processes that train together wait for each other, so all of them copy at the same steps."""
        due = self._cadence.count()
        return due and (not is_together() or step % (1 << (self._cadence.every - 1).bit_length()) == 0)

    def _begin_step(self, number: int, random: Randoms | None) -> None:
        self._steps.append(Step(number, random, self._total, {}))
        self._hold(RANDOM_BYTES, 0)

    def _keep(self, step: int) -> bool:
        """Have the device copy what the step begins with; False where that is not done."""
        session = self._session
        if self._coming is not None or (self._devices and torch.cuda.is_current_stream_capturing()):
            return False
        self._cadence.restart()
        watch = Stopwatch(self._devices)
        place = self._free_place()
        if place is None or not self.on:
            return False
        optimizers, weights, buffers = gather(session.registry)
        sound = soundness(weights, buffers)
        why = place.take([*(p for p in weights if p.requires_grad), *buffers], optimizers, step)
        if why is not None:
            self._end(why)
            return False
        scalers = [
            copied({n: getattr(s, n) for n in SCALER_FIELDS if hasattr(s, n)}) for s in session.capturing.scalers
        ]
        watch.stop()
        fetched = self._total - min(session.step_start.ahead, len(self._stream))
        copy = Copy(step, place, scalers, random.getstate(), np.random.get_state(), fetched, watch)
        self._coming = copy

        def told(value: NDArray[Any]) -> None:
            copy.is_sound = bool(np.isfinite(value).all())

        session.deferred.read(sound, told)
        session.deferred.after(lambda: self._arrived(copy))
        return copy in (self._coming, self._copy)

    def _free_place(self) -> Snapshot | None:
        """Where there is no second, losses have to be known first, and that is waited for."""
        for place in self._places:
            if self._copy is None or self._copy.snapshot is not place:
                return place
        if not self._places or self._is_room_for_two:
            self._places.append(Snapshot(self._limit, in_host=True))
            return self._places[-1]
        if torch.cuda.is_initialized():
            self._session.deferred.drain()
        self._copy = None
        return next(iter(self._places), None)

    @contained("rolling: arrived")
    def _arrived(self, copy: Copy) -> None:
        """It is in the host's memory, and so is every loss before it."""
        if self._coming is not copy:
            return  # given up meanwhile
        self._coming = None
        seconds = copy.watch.wait()
        if not copy.snapshot.grew:  # which takes longer than it will from now on
            self._cadence.spent(seconds)
        if not copy.is_sound:
            if self._copy is None:
                self._lose("weights or buffers were not finite when they were copied")
            return
        self._copy = copy
        del self._stream[: max(0, copy.fetched - (self._total - len(self._stream)))]
        self._held = sum(f.nbytes for f in self._stream)
        self._held_there = sum(f.on_device for f in self._stream)
        self._steps = [s for s in self._steps if s.number >= copy.step]
        self._session.context.unsupported.pop(UNTIL, None)

    def _randoms(self) -> Randoms:
        cuda = {i: torch.cuda.default_generators[i].get_state() for i in self._devices}
        return Randoms(_torch_state() if self._session.step_start.draws else None, cuda)

    def _lose(self, why: str) -> None:
        """There is no way back until the next copy."""
        self._copy = self._coming = None
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
        copy, steps = self._copy, self._steps
        stream, first = self._stream, self._total - len(self._stream)
        if not self.on or copy is None or step not in [s.number for s in steps]:
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
        return Past(copy.snapshot, copy.scalers, copy.python, copy.numpy, past, lead, copy.snapshot.places)

    def given(self, step: int) -> list[Tensor]:
        """What loaders gave for that step, as far as it is known."""
        ends = {s.number: s.fetched for s in self._steps}
        first = self._total - len(self._stream)
        begin, end = ends.get(step, self._total), ends.get(step + 1, self._total)
        lead = self._session.step_start.lead
        stream = self._stream[max(0, begin - lead - first) : max(0, end - lead - first)]
        return [tensor for fetched in stream for tensor in reversed(storages_of(fetched.batch)[0])]

    @contained("rolling: close")
    def close(self) -> None:
        """Nothing is kept any more."""
        self.on = self.undecided = False
        self._copy = self._coming = None
        self._steps, self._stream, self._places = [], [], []
