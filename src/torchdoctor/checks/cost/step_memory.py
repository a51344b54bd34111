"""What a training step keeps in memory, part by part, and how high it comes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.repeats.updating import update
from torchdoctor.probes.batches import batch_tensors

STATUS, REFERENCES, MEMORY = Path("/proc/self/status"), Path("/proc/self/clear_refs"), Path("/proc/meminfo")
HIGHEST_ANEW = "5"
"""Written to clear_refs, it lets the highest resident size begin anew (proc(5))."""


@dataclass(frozen=True)
class Memory:
    """In bytes."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    """kept from the forward pass for the backward pass"""
    peak: int
    """on the device of the model: all of these, and on CUDA what the step itself needs beside them"""
    process: int | None
    """highest resident size of the process, where the system tells"""
    limit: int | None
    """of the device, or what the system has left for this process"""

    @property
    def needed(self) -> int:
        """To compare with the limit."""
        return self.process if self.process is not None else self.peak


def measure_memory(bench: Bench) -> Memory:
    model, device = bench.model, bench.subject.device
    known = [*model.parameters(), *model.buffers()]
    copies = _size(known) + _state_size(bench) + _size(p.grad for p in known if p.grad is not None)
    activations = _activations(bench, known)
    cuda = device.type == "cuda"
    for parameter in model.parameters():
        parameter.grad = None
    before = torch.cuda.memory_allocated(device) if cuda else 0
    held = _state_size(bench)
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    watched = _watch_anew()
    for _ in range(2):
        update(bench, bench.train[: max(1, bench.accumulation)])
    parts = {
        "parameters": _size(known),
        "gradients": _size(p for p in model.parameters() if p.requires_grad),
        "optimizer": _state_size(bench),
        "activations": activations,
    }
    if cuda:
        peak = parts["parameters"] + held + torch.cuda.max_memory_allocated(device) - before
        return Memory(**parts, peak=peak, process=None, limit=torch.cuda.get_device_properties(device).total_memory)
    highest = _status("VmHWM") if watched else None
    process = highest - copies if highest is not None else None
    available = _available()
    now = _status("VmRSS")
    limit = available + now if available is not None and now is not None else None
    return Memory(**parts, peak=sum(parts.values()), process=process, limit=limit)


def _activations(bench: Bench, known: list[Tensor]) -> int:
    """By what autograd saves; the same memory counts once, and parameters and inputs not at all."""
    batch = bench.train[0]
    own = {_place(t) for t in (*known, *batch_tensors(batch))}
    found: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.layout == torch.strided and _place(tensor) not in own:
            found[_place(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with _saving(pack):
        loss = bench.subject.loss(batch)
    del loss
    return sum(found.values())


@contextlib.contextmanager
def _saving(pack: Any) -> Iterator[None]:
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else id(tensor)


def _size(tensors: Iterable[Tensor]) -> int:
    found = {id(t): t for t in tensors}
    return sum(t.numel() * t.element_size() for t in found.values() if t.layout == torch.strided)


def _state_size(bench: Bench) -> int:
    state = (v for o in bench.optimizers for entries in o.state.values() for v in entries.values())
    return _size(v for v in state if isinstance(v, Tensor))


def _watch_anew() -> bool:
    try:
        REFERENCES.write_text(HIGHEST_ANEW)
    except OSError:
        return False
    return True


def _status(name: str) -> int | None:
    return _kilobytes(STATUS, name)


def _available() -> int | None:
    return _kilobytes(MEMORY, "MemAvailable")


def _kilobytes(path: Path, name: str) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    found = next((line.split() for line in lines if line.startswith(f"{name}:")), None)
    return int(found[1]) * 1024 if found is not None else None
