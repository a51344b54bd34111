"""Why a gradient does not reach a module: it never runs, it runs without a graph, or its result is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from torchdoctor.attach.places import Place, caller
from torchdoctor.attach.registry import clean
from torchdoctor.checks.bench import Bench
from torchdoctor.probes.activations import first_tensor

CUTTING = {
    Tensor.detach: ".detach()",
    Tensor.detach_: ".detach_()",
    Tensor.data.__get__: ".data",  # type: ignore[attr-defined]
    Tensor.item: ".item()",
    Tensor.tolist: ".tolist()",
    Tensor.numpy: ".numpy()",
    torch.argmax: "argmax",
    Tensor.argmax: "argmax",
}
"""What gives numbers without their history."""
FLAT = ("RoundBackward0", "SignBackward0", "FloorBackward0", "CeilBackward0", "TruncBackward0", "HeavisideBackward0")
"""Operators whose gradient is zero wherever it exists."""
PLACES_KEPT = 16


@dataclass
class Cut:
    """How the modules that get no gradient were called, and where the forward pass drops a history."""

    unused: list[str] = field(default_factory=list)
    """never called"""
    silent: list[str] = field(default_factory=list)
    """called where no graph is recorded"""
    places: list[tuple[str, Place | None]] = field(default_factory=list)
    """of what drops the history of a tensor that had one, in the order of the pass"""


def look_for_cut(bench: Bench, modules: Sequence[str], batch: Any) -> Cut:
    """One more pass over this batch."""
    named = {clean(name): module for name, module in bench.model.named_modules()}
    seen: dict[str, bool] = {}
    handles = [
        named[name].register_forward_hook(lambda _module, _args, output, name=name: _note(seen, name, output))
        for name in modules
        if name in named and not isinstance(named[name], torch.jit.ScriptModule)
    ]
    cut = Cut()
    try:
        with _Watch(cut):
            bench.subject.loss(batch)
    finally:
        for handle in handles:
            handle.remove()
    cut.unused = [name for name in modules if name in named and name not in seen and not _is_inlined(named, name)]
    cut.silent = [name for name, graph in seen.items() if not graph]
    return cut


class _Watch(TorchFunctionMode):
    def __init__(self, cut: Cut) -> None:
        super().__init__()
        self._cut = cut

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        word = CUTTING.get(func)
        if word is not None and args and isinstance(args[0], Tensor) and args[0].requires_grad:
            place = caller()
            if place is not None and (word, place) not in self._cut.places and len(self._cut.places) < PLACES_KEPT:
                self._cut.places.append((word, place))
        return func(*args, **(kwargs or {}))


def _note(seen: dict[str, bool], name: str, output: Any) -> None:
    tensor = first_tensor(output)
    seen[name] = seen.get(name, False) or (tensor is not None and tensor.requires_grad)


def _is_inlined(named: dict[str, nn.Module], name: str) -> bool:
    """Parts whose weights their owner uses without calling them, as attention does with its output layer."""
    return isinstance(named.get(name.rpartition(".")[0]), nn.MultiheadAttention)
