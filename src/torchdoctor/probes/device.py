"""What a CUDA device does in a step: its own time, the work that is in it, copies from and to the host.

In a few steps of a run the device is put to sleep while Python queues a part of the step (forward, backward, update),
so that all its kernels then run back to back: the time between two events around them is the device's own, and the
time that Python took is Python's own. Nothing waits for either; the events are read when they are done. The sleep costs
such a step about as long again, which is counted as ours.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from torchdoctor.attach import guard
from torchdoctor.attach.guard import contained
from torchdoctor.attach.patches import Doors
from torchdoctor.attach.places import Place
from torchdoctor.attach.ranks import is_together
from torchdoctor.facts import DeviceFact, TransferFact
from torchdoctor.probes.clock import Clock
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import Graph
from torchdoctor.probes.rates import copy_rate, matmul_rate, transfer_rate
from torchdoctor.probes.work import Work, work_of

FORWARD, BACKWARD, UPDATE = "forward", "backward", "update"
PARTS = (FORWARD, BACKWARD, UPDATE)

LOOK_STEPS = (24, 60, 200, 1000, 10_000)
"""Steps from which on the next measurement is due."""
WORK_STEPS = (8, 50, 500)
"""Structural steps at which the work in the graph is counted."""
DELAYS = 8
"""Steps with other looks that a measurement lets go by; then it takes their place."""
LONGER, MARGIN = 1.5, 1e-4
"""The device sleeps so much longer than Python took for the part the last time, and some seconds more."""
ALLOWED_SECONDS, ALLOWED_SHARE = 0.1, 0.0025
"""Sleep in a run: this, and a quarter of the usual budget of the training's time so far."""
POSTPONED = 1.5
FIRST_RATE = 1.5e9
"""Cycles a second until the first sleep was timed."""
PLACES_KEPT = 64
SAMPLED = 64
"""Elements that tell whether a host tensor has changed between two copies."""


@dataclass
class Part:
    """One part of a measured step."""

    asleep: Any
    begun: Any
    cycles: int
    host: float
    own: float
    ended: Any = None
    piled: bool = False


@dataclass
class Measured:
    parts: dict[str, Part] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)


@dataclass
class Tally:
    to_device: bool
    count: int = 0
    bytes: int = 0
    seconds: float = 0.0
    repeated: int = 0
    pinned: bool = True
    non_blocking: bool = True
    last: tuple[weakref.ref[Tensor], int, float] | None = None


def _copies_may_be_timed() -> bool:
    """Not where torchvision's own tensors are: they compare what they are given with `Tensor.to` itself."""
    return torch.cuda.is_initialized() and "torchvision.tv_tensors" not in sys.modules


class DeviceProbe:
    def __init__(self, context: Context, clock: Clock) -> None:
        self._context, self._clock = context, clock
        self.measuring = False
        """the step that runs is measured"""
        self.due_at = float(LOOK_STEPS[0]) if torch.cuda.is_available() else math.inf
        self._taken = 0
        self._delays = 0
        self._slept = 0.0
        self._rate = FIRST_RATE
        self._now = Measured()
        self._pending: list[Measured] = []
        self._looks: list[tuple[bool, float, float]] = []
        """not piled up, device seconds, host seconds"""
        self._work: dict[int, Work] = {}
        self.gate = Doors()
        """open for copies on watched steps of a run that uses a CUDA device"""
        self._steps = 0
        self._tallies: dict[tuple[str, Place | None, bool], Tally] = {}

    # -- steps ------------------------------------------------------------------------------

    @contained("device: plan")
    def plan(self, step: int, looked: bool, other_looks: bool, training_seconds: float) -> None:
        """A step begins that is read in full."""
        if self.due_at == math.inf and not self._pending and not self.gate.open and not self.measuring:
            self.gate.open = looked and _copies_may_be_timed()
            return
        if self.gate.open:
            self._steps += 1
        if self.measuring:
            self._step_ended()
        self.gate.open = looked and _copies_may_be_timed()
        if self._pending:
            self._poll()
        if step >= self.due_at:
            self._consider(step, other_looks, training_seconds)

    def _consider(self, step: int, other_looks: bool, training_seconds: float) -> None:
        usual = self._clock.usual
        allowed = ALLOWED_SECONDS + ALLOWED_SHARE * training_seconds
        affordable = bool(usual) and self._slept + LONGER * usual <= allowed
        if not torch.cuda.is_initialized() or not affordable or is_together() or not self._is_here():
            self.due_at = step * POSTPONED
        elif other_looks and (self._delays < DELAYS or step in WORK_STEPS):
            self._delays += 1
        else:
            self._delays = 0
            self._now = Measured()
            self.measuring = True

    def _is_here(self) -> bool:
        """All that trains is on the current device: elsewhere our events would time nothing."""
        names, here = self._context.names, torch.cuda.current_device()
        if any(isinstance(model, torch.nn.DataParallel) for _, model in names.live_models()):
            return False
        groups = [group for _, optimizer in names.live_optimizers() for group in optimizer.param_groups]
        return all(p.is_cuda and p.get_device() == here for group in groups for p in group["params"])

    @contained("device: look begins")
    def begin(self, part: str) -> None:
        """Python begins to queue a part of the step: the device is to wait until it has."""
        self._now.calls[part] += 1
        if part in self._now.parts:
            return
        usual, parts = self._clock.usual, self._clock.parts
        expected = parts[PARTS.index(part)]
        if part == FORWARD and expected == 0:  # not timed; what is left may be the loader's
            expected = min(max(usual - parts[1] - parts[2], 0.0), parts[1])
        seconds = LONGER * min(expected, usual) + MARGIN
        cycles = int(seconds * self._rate)
        asleep, begun = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        asleep.record()
        torch.cuda._sleep(cycles)
        begun.record()
        self._slept += seconds
        self._now.parts[part] = Part(asleep, begun, cycles, perf_counter(), guard.STATE.own_now())

    @contained("device: look ends")
    def end(self, part: str) -> None:
        measured = self._now.parts.get(part)
        if measured is None or measured.ended is not None:
            return
        measured.host = perf_counter() - measured.host - (guard.STATE.own_now() - measured.own)
        measured.piled = not measured.begun.query()
        measured.ended = torch.cuda.Event(enable_timing=True)
        measured.ended.record()

    def _step_ended(self) -> None:
        self.measuring = False
        self._taken += 1
        self.due_at = float(LOOK_STEPS[self._taken]) if self._taken < len(LOOK_STEPS) else math.inf
        guard.STATE.own_seconds += sum(p.cycles for p in self._now.parts.values()) / self._rate
        if all(p in self._now.parts and self._now.parts[p].ended is not None for p in (BACKWARD, UPDATE)):
            self._pending.append(self._now)
        self._now = Measured()

    @contained("device: look arrives")
    def _poll(self) -> None:
        """Read the measurements that are done."""
        while self._pending and all(p.ended.query() for p in self._pending[0].parts.values() if p.ended is not None):
            self._read(self._pending.pop(0))

    def _read(self, measured: Measured) -> None:
        device = host = 0.0
        parts = {name: part for name, part in measured.parts.items() if part.ended is not None}
        for name, part in parts.items():
            calls = measured.calls[name]
            if name == BACKWARD and FORWARD not in parts:
                calls *= 1.5  # a forward pass is half of a backward one
            device += calls * part.begun.elapsed_time(part.ended) / 1e3
            host += calls * part.host
            asleep = part.asleep.elapsed_time(part.begun) / 1e3
            if asleep > 0:
                self._rate = part.cycles / asleep
        self._looks.append((not all(p.piled for p in parts.values()), device, host))
        self._write()

    # -- work -----------------------------------------------------------------------------------

    @contained("device: work")
    def look_at_work(self, loss: Tensor, graph: Graph) -> None:
        """How much there is to do behind a loss; several of one step are added."""
        step = self._context.step
        if loss.is_cuda and step in WORK_STEPS:
            if step not in self._work:
                self._work = {step: Work()}
            work_of(graph, self._work[step])

    def _update_bytes(self) -> float:
        """Weights are read twice, gradients written and read, weights and states read and written."""
        total = 0.0
        for _, optimizer in self._context.names.live_optimizers():
            parameters = [p for group in optimizer.param_groups for p in group["params"] if p.is_cuda]
            total += sum(6.0 * p.numel() * p.element_size() for p in parameters)
            for state in optimizer.state.values():
                total += sum(2.0 * s.numel() * s.element_size() for s in state.values() if isinstance(s, Tensor))
        return total

    # -- copies -----------------------------------------------------------------------------------

    def copied(
        self,
        call: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        seconds: float,
        caller: Callable[[], Place | None],
    ) -> None:
        source, target = (args[1], args[0]) if call == "copy_" and len(args) > 1 else (args[0], result)
        if not (isinstance(source, Tensor) and isinstance(target, Tensor)) or source.is_cuda == target.is_cuda:
            return
        host = target if source.is_cuda else source
        if not torch.is_grad_enabled() or not host.is_cpu:
            return
        key = (call, caller(), target.is_cuda)
        if key not in self._tallies and len(self._tallies) >= PLACES_KEPT:
            return
        tally = self._tallies.setdefault(key, Tally(target.is_cuda))
        tally.count += 1
        tally.bytes += source.numel() * source.element_size()
        tally.seconds += seconds
        tally.pinned = tally.pinned and host.is_pinned()
        tally.non_blocking = tally.non_blocking and bool(kwargs.get("non_blocking", any(a is True for a in args[1:])))
        if target.is_cuda:
            mark = (weakref.ref(source), source._version, _sample(source))
            last, tally.last = tally.last, mark
            tally.repeated += last is not None and last[0]() is source and last[1:] == mark[1:]

    # -- the record ---------------------------------------------------------------------------------

    def _write(self, **rates: float | str | None) -> None:
        if not self._looks:
            return
        unsure, device, host = min(self._looks)
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        work = next(iter(self._work.values()), Work())
        known = work.operations > 0 and not work.opaque
        fact = DeviceFact(
            name=properties.name,
            looks=len(self._looks),
            device_seconds=device,
            host_seconds=host,
            piled=not unsure,
            slots=properties.multi_processor_count * properties.max_threads_per_multi_processor,
            memory=properties.total_memory,
            memory_peak=torch.cuda.max_memory_allocated(),
            operations=work.operations if known else None,
            parameters=len(work.parameters) if known else None,
            elements=int(median(work.outputs)) if known and work.outputs else None,
            flops=work.flops if known else None,
            bytes=work.bytes + self._update_bytes() if known else None,
            pointwise_bytes=work.pointwise_bytes if known else None,
            **rates,  # type: ignore[arg-type]
        )
        self._context.record.fact(fact, self._context.step, "device")

    @contained("device: close")
    def close(self, crashed: bool) -> None:
        """The training has ended: what has arrived since, the copies, and what the device can do at best."""
        self.measuring = False
        if not torch.cuda.is_initialized():
            return
        if self._pending and not crashed:
            torch.cuda.synchronize()
            self._poll()
        self._write_transfers()
        if not crashed and self._looks:
            self._measure_rates()

    def _write_transfers(self) -> None:
        for (call, place, _), tally in self._tallies.items():
            fact = TransferFact(
                call=call,
                count=tally.count,
                steps=max(self._steps, 1),
                bytes=tally.bytes // tally.count,
                seconds=tally.seconds / tally.count,
                to_device=tally.to_device,
                pinned=tally.pinned,
                non_blocking=tally.non_blocking,
                repeated=tally.repeated / tally.count,
                file=place.file if place else None,
                line=place.line if place else None,
                code=place.code[:200] if place else "",
                library=place.library if place else None,
            )
            self._context.record.fact(fact, self._context.step, f"{call}@{place} {tally.to_device}")

    @contained("device: rates")
    def _measure_rates(self) -> None:
        work = next(iter(self._work.values()), Work())
        dtype = work.dtype or torch.float32
        moved = transfer_rate() if self._tallies else None
        self._write(
            dtype=str(dtype).removeprefix("torch."),
            matmul_rate=matmul_rate(dtype),
            copy_rate=copy_rate(),
            transfer_rate=moved,
        )


def _sample(tensor: Tensor) -> float:
    """A number that changes with what the tensor holds, most likely; of a host tensor."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    flat = tensor.detach().reshape(-1) if tensor.is_contiguous() else tensor.detach()[:1].reshape(-1)
    return float(flat[:: max(1, len(flat) // SAMPLED)][: 2 * SAMPLED].double().sum()) if len(flat) else 0.0
