"""How layers with weights follow one another in the graph, and how many samples batch normalisations see."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor import signals
from torchdoctor.attach.guard import contained
from torchdoctor.facts import LayersFact
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import ACCUMULATE, Graph
from torchdoctor.probes.saved import saved

DATA_INPUT = {"AddmmBackward0": 1, "MmBackward0": 0, "ConvolutionBackward0": 0, "LinearBackward0": 0}
"""Which input of a layer's operator is what flows through the network."""
WEIGHT_INPUT = {"AddmmBackward0": 2, "MmBackward0": 1, "ConvolutionBackward0": 1, "LinearBackward0": 1}
TURN = "TBackward0"
CASTS = (TURN, "TransposeBackward0", "PermuteBackward0", "ToCopyBackward0", "ViewBackward0")
BATCH_NORMS = ("NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm")
LAYERS_LIMIT = 512
WAY_LIMIT = 48
"""Operators looked at on the way from a layer to those before it."""


def multiplied_by(node: Any) -> Tensor | None:
    """The leaf that this operator multiplies what flows through the network by, through a transposition or a cast.

    A backward pass that is itself differentiated (a penalty of gradients, a differential equation) multiplies gradients
    by a weight that was turned twice. What flows there are no features, so there is no such leaf."""
    at = WEIGHT_INPUT.get(node.name())
    below = node.next_functions[at][0] if at is not None and at < len(node.next_functions) else None
    turned = 0
    while below is not None and below.name() in CASTS:
        turned += below.name() == TURN
        below = below.next_functions[0][0]
    is_weight = below is not None and below.name() == ACCUMULATE and turned < 2
    return below.variable if is_weight else None


class LayerProbe:
    """Writes which layer takes which layer's output; again only when the graph's operators have changed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._operators: list[Counter[str]] = []
        self._last: LayersFact | None = None

    @contained("layers: look")
    def look(self, graph: Graph) -> None:
        if graph.truncated or graph.operators in self._operators:
            return
        self._operators = [*self._operators[-3:], graph.operators]
        nodes = {node: found for node in graph.nodes if (found := self._weight(node))}
        if not nodes or len(nodes) > LAYERS_LIMIT:
            return
        uses = Counter(child for node in graph.nodes for child, _ in node.next_functions if child is not None)
        layers = {name: _describe(node, weight, name) for node, (weight, name) in nodes.items()}
        links: dict[tuple[Any, ...], dict[str, Any]] = {}
        for node, (_, name) in nodes.items():
            way = _way_down(node, nodes, uses)
            if way is not None:
                below, ops = nodes[way[0]][1], way[1]
                links[name, below, tuple(ops)] = {"above": name, "below": below, "ops": ops}
        fact = LayersFact(list(layers.values()), list(links.values()))
        if fact != self._last:
            self._last = fact
            self._context.record.fact(fact, self._context.step)

    def _weight(self, node: Any) -> tuple[Tensor, str] | None:
        """The parameter that this operator multiplies by, through a transposition or a cast, and its name."""
        weight = multiplied_by(node)
        if weight is None or weight.dim() < 2:
            return None
        name = self._context.names.name_of(weight)
        return (weight, name) if name else None

    @contained("layers: norms")
    def norms(self, graph: Graph) -> None:
        """Samples under each batch normalisation in train mode, and how far its mean strays."""
        rows: dict[str, Tensor] = {}
        for node in graph.nodes:
            if not node.name().startswith(BATCH_NORMS) or is_instance_norm(node):
                continue
            if getattr(node, "_saved_training", True):
                values = _norm_values(node)
                if values is not None:
                    rows.setdefault(self._norm_name(node, len(rows)), values)
        if not rows:
            return
        step, record, columns = self._context.step, self._context.record, tuple(rows)

        def arrived(values: NDArray[Any]) -> None:
            values = values.astype(np.float32)
            named = {signals.NORM_SAMPLES.name: values[:, 0], signals.NORM_NOISE.name: values[:, 1]}
            record.matrix(step, columns, named)

        self._context.read(torch.stack(list(rows.values())), arrived)

    def _norm_name(self, node: Any, count: int) -> str:
        for child, _ in node.next_functions[1:]:
            if child is not None and child.name() == ACCUMULATE:
                name = self._context.names.name_of(child.variable)
                if name:
                    return name.rpartition(".")[0] or name
        return f"batch_norm #{count + 1}"


def is_instance_norm(node: Any) -> bool:
    """Return whether a batch norm operator normalises each sample alone.

    torch runs instance normalisation as batch norm over a view of shape (1, N * C, ...), with its weight repeated N
    times; batch norm proper is given the parameter itself.
    """
    source, *others = (child.name() if child is not None else "" for child, _ in node.next_functions)
    inputs = saved(node, "input")
    viewed = source.startswith(("View", "UnsafeView", "Reshape", "Alias", "Clone"))
    return inputs is not None and inputs.shape[0] == 1 and viewed and ACCUMULATE not in others


def _describe(node: Any, weight: Tensor, name: str) -> dict[str, Any]:
    shape = list(weight.shape)
    convolves = node.name().startswith("Convolution")
    through_leaf = node.next_functions[WEIGHT_INPUT[node.name()]][0].name() == ACCUMULATE
    is_transposed = not convolves and through_leaf and node.name() == "MmBackward0"
    fan_out, fan_in = (shape[1], shape[0]) if is_transposed else (shape[0], shape[1])
    groups = int(node._saved_groups) if convolves else 1
    if convolves and node._saved_transposed:
        fan_in, fan_out = shape[0], shape[1] * groups
    elif convolves:
        fan_in = shape[1] * groups
    return {
        "name": name,
        "op": node.name(),
        "fan_in": fan_in,
        "fan_out": fan_out,
        "groups": groups,
        "kernel": shape[2:] if convolves else [],
        "plain_matrix": is_transposed,
    }


def _way_down(node: Any, nodes: dict[Any, Any], uses: Counter[Any]) -> tuple[Any, list[str]] | None:
    """The layer whose output this one alone takes, and the operators on the way; None where paths join or part."""
    current = node.next_functions[DATA_INPUT[node.name()]][0]
    ops: list[str] = []
    while current is not None and current.name() != ACCUMULATE and len(ops) < WAY_LIMIT:
        if uses[current] != 1:
            return None
        if current in nodes:
            return current, ops
        below = [c for c, _ in current.next_functions if c is not None and c.name() != ACCUMULATE]
        if len(below) != 1:
            return None
        ops.append(current.name())
        current = below[0]
    return None


def _norm_values(node: Any) -> Tensor | None:
    """Number of samples, and the noise of the batch's statistics; None where what was saved cannot be read."""
    source, mean, scale = saved(node, "input"), saved(node, "result1"), saved(node, "result2")
    running, variance = saved(node, "running_mean"), saved(node, "running_var")
    if source is None:
        return None
    samples = torch.full((), float(source.shape[0]), device=source.device)
    noise = torch.full((), float("nan"), device=source.device)
    count = source.numel() // max(1, source.shape[1])
    if running is not None and variance is not None and mean is not None and scale is not None and count > 1:
        usual = variance.float().clamp_min(1e-12)
        distance = (mean.detach().float() - running.float()).square() / usual
        eps = float(getattr(node, "_saved_eps", None) or getattr(node, "_saved_epsilon", 0.0))
        own = (scale.detach().float().square().reciprocal() - eps) * count / (count - 1)
        noise = torch.maximum(distance.mean(), (own / usual - 1).square().mean() / 2)
    return torch.stack([samples, noise])
