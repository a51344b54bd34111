"""Calls that make the host wait for the device, counted in watched training steps, with the line that makes them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchdoctor.attach.guard import contained
from torchdoctor.attach.patches import Gate
from torchdoctor.attach.places import Place
from torchdoctor.facts import SynchronisationFact
from torchdoctor.probes.context import Context

PLACES_KEPT = 64


@dataclass
class Tally:
    count: int = 0
    elements: int = 0


class SynchronisationProbe:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.gate = Gate(False)
        """open on watched steps of a run that uses a CUDA device"""
        self._steps = 0
        self._tallies: dict[tuple[str, Place], Tally] = {}

    def plan(self, looked: bool) -> None:
        """A step begins."""
        if self.gate.open:
            self._steps += 1
        self.gate.open = looked and torch.cuda.is_initialized()

    def called(self, call: str, tensor: Tensor, place: Place | None) -> None:
        if place is None or not tensor.is_cuda or not torch.is_grad_enabled():
            return
        key = (call, place)
        if key in self._tallies or len(self._tallies) < PLACES_KEPT:
            tally = self._tallies.setdefault(key, Tally())
            tally.count += 1
            tally.elements += tensor.numel()

    @contained("synchronisations: write")
    def write(self) -> None:
        for (call, place), tally in self._tallies.items():
            fact = SynchronisationFact(
                call=call,
                count=tally.count,
                steps=max(self._steps, 1),
                elements=tally.elements // max(tally.count, 1),
                file=place.file,
                line=place.line,
                code=place.code[:200],
                library=place.library,
            )
            self._context.record.fact(fact, self._context.step, f"{call}@{place}")
