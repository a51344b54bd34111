"""How much the last hidden features and the directions of the outputs differ between samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from torchdoctor import signals
from torchdoctor.attach.guard import contained
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import ACCUMULATE, Graph
from torchdoctor.probes.layers import multiplied_by
from torchdoctor.probes.saved import saved

ROWS, COLUMNS, OUTPUTS = 128, 256, 1024
"""Samples and features that are looked at; wider outputs (a vocabulary) are not computed again."""
LAST_LAYERS = 4


class RepresentationProbe:
    """On a look: features that go into the last layers, what comes out, and the inputs for comparison."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @contained("representation: look")
    def look(self, graph: Graph, batch: list[Tensor]) -> None:
        rows: dict[str, Tensor] = {}
        for node in list(graph.positions):
            if len(rows) >= 2 * LAST_LAYERS:
                break
            name = self._name(node)
            if name is not None:
                _measure(rows, name, node)
        if not rows:
            return
        given = next((t for t in batch if t.is_floating_point() and t.dim() >= 2 and t.shape[0] > 1), None)
        if given is not None and given.device == next(iter(rows.values())).device:
            rows["input"] = spread_and_rank(given.detach().reshape(given.shape[0], -1))
        step, record, columns = self._context.step, self._context.record, tuple(rows)

        def arrived(values: NDArray[Any]) -> None:
            values = values.astype(np.float32)
            named = {signals.REPRESENTATION_SPREAD.name: values[:, 0], signals.REPRESENTATION_RANK.name: values[:, 1]}
            record.matrix(step, columns, named)

        self._context.read(torch.stack(list(rows.values())), arrived)

    def _name(self, node: Any) -> str | None:
        """The layer behind an operator of the graph's head."""
        weight = multiplied_by(node)
        name = self._context.names.name_of(weight) if weight is not None else None
        return (name.rpartition(".")[0] or name) if name else None


def _measure(rows: dict[str, Tensor], name: str, node: Any) -> None:
    if f"features into {name}" in rows:
        return
    given = saved(node, "mat1")
    given = saved(node, "self") if given is None else given
    weight = saved(node, "mat2")
    if not isinstance(given, Tensor) or given.dim() != 2 or given.shape[0] < 4:
        return
    given = thinned(given.detach())
    rows[f"features into {name}"] = spread_and_rank(given)
    if isinstance(weight, Tensor) and 1 < weight.shape[1] <= OUTPUTS and weight.dtype == given.dtype:
        output = _added_bias(node, given @ weight.detach())
        rows[f"output of {name}"] = spread_and_rank(nn.functional.normalize(output, dim=1))


def _added_bias(node: Any, product: Tensor) -> Tensor:
    first = node.next_functions[0][0]
    is_bias = node.name() == "AddmmBackward0" and first is not None and first.name() == ACCUMULATE
    bias = first.variable.detach() if is_bias else None
    return product if bias is None or bias.dtype != product.dtype else product + bias


def thinned(given: Tensor) -> Tensor:
    """Rows from all over the batch."""
    return given[:: max(1, given.shape[0] // ROWS)][:ROWS]


def spread_and_rank(given: Tensor) -> Tensor:
    """Standard deviation over samples relative to the root mean square, and the participation ratio."""
    x_NF = thinned(given)[:, :COLUMNS].float()
    centred = x_NF - x_NF.mean(0)
    spread = (centred.square().mean() / x_NF.square().mean().clamp_min(1e-30)).sqrt()
    gram = centred @ centred.T if x_NF.shape[0] <= x_NF.shape[1] else centred.T @ centred
    rank = gram.trace().square() / gram.square().sum().clamp_min(1e-30)
    return torch.stack([spread, rank])
