"""Outputs of modules and of activation functions: scale, zeros, saturation, dead units."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from torchdoctor import signals, stats
from torchdoctor.attach.guard import contained
from torchdoctor.facts import ModuleFact
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import Graph, nearest_parameter, saved_activations
from torchdoctor.probes.tensors import HISTOGRAM_GROWTH

DEAD_WINDOW = 8
"""Looks over which a unit must have been silent to count as dead."""
MODULES_LIMIT = 512
ELEMENTS_LIMIT = 2_000_000
"""Larger outputs are measured on a part of their samples."""
HISTOGRAM_ELEMENTS = 1 << 16
"""Elements, spread over an output, that are enough to draw how its values are distributed."""

KINDS: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.LeakyReLU: "leaky_relu",
    nn.PReLU: "prelu",
    nn.ELU: "elu",
    nn.SELU: "selu",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.Mish: "mish",
    nn.Hardswish: "hardswish",
    nn.Softplus: "softplus",
    nn.Sigmoid: "sigmoid",
    nn.Hardsigmoid: "hardsigmoid",
    nn.Tanh: "tanh",
    nn.Hardtanh: "hardtanh",
    nn.Softmax: "softmax",
    nn.LogSoftmax: "log_softmax",
}
RELU_LIKE = ("relu", "relu6")
_STATISTICS = ("mean", "std", "absmax", "zeros", "saturated", "nonfinite")
_CONVOLUTIONS = (nn.modules.conv._ConvNd,)


class ActivationProbe:
    """Collects one pass's outputs on a look; `finish` writes them as one row."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._rows: dict[str, Tensor] = {}
        self._alive: dict[str, Tensor] = {}
        self._history: dict[str, deque[Tensor]] = {}
        self._seen: set[int] = set()
        self._described: dict[str, ModuleFact] = {}
        self._facts: dict[str, tuple[float, ModuleFact]] = {}
        self._channels_first = False
        self._histograms: dict[str, Tensor] = {}
        self._histogram_at = 0.0

    @contained("activations: module")
    def module(self, name: str, module: nn.Module, output: Any) -> None:
        """A leaf module gave this output in a training pass. Measured now: later it may be changed in place."""
        tensor = first_tensor(output)
        if tensor is None or stats.unsupported(tensor) is not None:
            return
        if not tensor.is_floating_point() or len(self._rows) >= MODULES_LIMIT:
            return
        if isinstance(module, _CONVOLUTIONS):
            self._channels_first = True
        elif isinstance(module, (nn.Linear, nn.RNNBase)):
            self._channels_first = False
        kind = KINDS.get(type(module))
        unit_dim = 1 if self._channels_first and tensor.dim() >= 3 else -1
        self._seen.add(tensor.data_ptr())
        self._measure(name, type(module).__name__, kind, tensor, unit_dim, float(len(self._facts)))

    def passed_over(self, output: Any) -> None:
        """A module's output that is not measured; nor is it when it turns up in the graph."""
        tensor = first_tensor(output)
        if tensor is not None and stats.unsupported(tensor) is None:
            self._seen.add(tensor.data_ptr())

    @contained("activations: graph")
    def graph(self, graph: Graph) -> None:
        """Activation functions that are no modules: their results are kept in the graph."""
        counts: dict[str, int] = {}
        for kind, result, node in saved_activations(graph):
            if result.data_ptr() in self._seen or len(self._rows) >= MODULES_LIMIT or not result.is_floating_point():
                continue
            parameter, operator = nearest_parameter(node)
            owner = self._context.names.name_of(parameter) if parameter is not None else None
            base = f"{kind} after {owner.rpartition('.')[0] or owner}" if owner else kind
            counts[base] = counts.get(base, 0) + 1
            name = base if counts[base] == 1 else f"{base} #{counts[base]}"
            unit_dim = 1 if operator.startswith(("Convolution", "MkldnnConvolution")) and result.dim() >= 3 else -1
            module = owner.rpartition(".")[0] if owner else ""
            after = self._facts[module][0] if module in self._facts else float(len(self._facts))
            self._measure(name, kind, kind, result, unit_dim, after + 0.5)

    def _measure(
        self, name: str, type_name: str, kind: str | None, output: Tensor, unit_dim: int, position: float
    ) -> None:
        if stats.unsupported(output) is not None or output.numel() == 0:
            return
        output = thin(output.detach())
        self._rows[name] = stats.activation(output, kind)
        if self._context.step >= self._histogram_at:
            self._histograms[name] = stats.histograms([_spread(output)])[0]
        units = int(output.shape[unit_dim]) if output.dim() > 1 else None
        if kind in RELU_LIKE and units:
            self._alive[name] = stats.alive_units(output, unit_dim)
        dtype = str(output.dtype).removeprefix("torch.")
        fact = ModuleFact(name=name, type=type_name, activation=kind, units=units, dtype=dtype)
        self._facts[name] = (position, fact)

    @contained("activations: finish")
    def finish(self) -> None:
        """Write what this pass showed."""
        rows, self._rows = self._rows, {}
        alive, self._alive = self._alive, {}
        facts, self._facts = self._facts, {}
        self._seen.clear()
        if not rows:
            return
        self._describe(facts)
        columns = tuple(rows)
        dead = []
        for name in columns:
            dead.append(self._dead_share(name, alive[name]) if name in alive else None)
        device = next(iter(rows.values())).device
        nan = torch.full((), float("nan"), device=device)
        stacked = torch.stack([row.to(device) for row in rows.values()])
        dead_T = torch.stack([nan if d is None else d.to(device) for d in dead]).unsqueeze(1)
        step, record = self._context.step, self._context.record
        self._context.read(torch.cat([stacked, dead_T], 1), lambda values: self._write(step, columns, values))
        if self._histograms:
            names = tuple(self._histograms)
            counts = torch.stack([h.to(device) for h in self._histograms.values()])
            self._context.read(counts, lambda values: record.histogram(step, "activation", names, values))
            self._histograms = {}
            self._histogram_at = max(step * HISTOGRAM_GROWTH, 1.0)

    def _describe(self, facts: dict[str, tuple[float, ModuleFact]]) -> None:
        """Modules with their places in this pass; written when new or when the order has changed."""
        for order, (name, (_, fact)) in enumerate(sorted(facts.items(), key=lambda item: item[1][0])):
            placed = replace(fact, order=order)
            if self._described.get(name) != placed:
                self._described[name] = placed
                self._context.record.fact(placed, self._context.step, name)

    def _write(self, step: int, columns: tuple[str, ...], values: NDArray[Any]) -> None:
        values = values.astype(np.float32)
        named = {signals.ACTIVATION[s].name: values[:, i] for i, s in enumerate((*_STATISTICS, "dead"))}
        self._context.record.matrix(step, columns, named)
        counts = values[:, _STATISTICS.index("nonfinite")]
        for i in np.flatnonzero(counts > 0):
            self._context.nonfinite("activation", columns[i], int(counts[i]), step)

    def _dead_share(self, name: str, alive: Tensor) -> Tensor | None:
        """Share of units silent over the recent looks; None until there are a few."""
        history = self._history.setdefault(name, deque(maxlen=DEAD_WINDOW))
        if history and history[0].shape != alive.shape:
            history.clear()
        history.append(alive)
        return 1.0 - torch.stack(list(history)).any(0).float().mean()


def first_tensor(output: Any) -> Tensor | None:
    """The tensor of a module's output: itself, or the first one in a tuple, list or mapping."""
    return next(tensors_in(output, 4), None)


def tensors_in(output: Any, most: int = 16) -> Iterator[Tensor]:
    """The tensors of a module's output, looked for in so many entries of each tuple, list or mapping."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, (dict, tuple, list)):
        for entry in islice(output.values() if isinstance(output, dict) else output, most):
            yield from tensors_in(entry, most)


def thin(tensor: Tensor) -> Tensor:
    """A large output, cut down to some of its samples."""
    if tensor.numel() <= ELEMENTS_LIMIT or tensor.dim() < 2 or tensor.shape[0] < 2:
        return tensor
    stride = min(tensor.shape[0], -(-tensor.numel() // ELEMENTS_LIMIT))
    return tensor[::stride]


def _spread(tensor: Tensor) -> Tensor:
    """Take elements from all over a large output, at a stride that shares no factor with its dimensions, so that every
    unit is among them."""
    stride = tensor.numel() // HISTOGRAM_ELEMENTS
    if stride < 2:
        return tensor
    while math.gcd(stride, tensor.numel()) > 1:
        stride += 1
    return tensor.reshape(-1)[::stride]
