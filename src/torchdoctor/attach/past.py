"""What the way back to before a failure is made of (rolling.py): a copy of the state, and the steps from it on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from torchdoctor.attach.snapshots import Snapshot


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


@dataclass(eq=False)
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


class Stopwatch:
    """How long a device works at what is asked of it in between, known once it is done."""

    def __init__(self, devices: Iterable[int]) -> None:
        self._spans = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in devices]
        self._devices = list(devices)
        self._asked = perf_counter()
        self._record(0)

    def _record(self, end: int) -> None:
        for device, span in zip(self._devices, self._spans, strict=True):
            span[end].record(torch.cuda.current_stream(device))

    def stop(self) -> None:
        self._record(1)
        self._asked = perf_counter() - self._asked

    def wait(self) -> float:
        """Seconds, of the device or of the program that asked it."""
        for _, end in self._spans:
            end.synchronize()
        return max([self._asked, *(start.elapsed_time(end) / 1e3 for start, end in self._spans)])


@dataclass(eq=False)
class Copy:
    """What a step began with. It may still be under way."""

    step: int
    snapshot: Snapshot
    scalers: list[dict[str, Any]]
    python: Any
    numpy: Any
    fetched: int
    """batches before the first that the step used"""
    watch: Stopwatch
    is_sound: bool = False
    """the device has told that it is worth going back to"""
