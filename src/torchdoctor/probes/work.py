"""The work of a training step, read off the graph behind its loss: operations, FLOPs, bytes, sizes of outputs."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch

from torchdoctor.probes.graph import ACCUMULATE, Graph
from torchdoctor.probes.saved import Packing, saved

VIEWS = frozenset(
    {
        "View",
        "UnsafeView",
        "T",
        "Transpose",
        "Permute",
        "Unsqueeze",
        "Squeeze",
        "Expand",
        "ReshapeAlias",
        "Alias",
        "Split",
        "SplitWithSizes",
        "Unbind",
        "Detach",
        "Movedim",
    }
)
"""They give no work to the device in either direction. A view of a part does: its gradient is put into zeros."""
POINTWISE = frozenset(
    {
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Pow",
        "Tanh",
        "Sigmoid",
        "Exp",
        "Log",
        "Log1P",
        "Sqrt",
        "Rsqrt",
        "Neg",
        "Relu",
        "Gelu",
        "Silu",
        "Clamp",
        "ClampMin",
        "ClampMax",
        "Where",
        "Abs",
        "Sin",
        "Cos",
        "Reciprocal",
        "Erf",
        "Softplus",
        "LeakyRelu",
        "Elu",
        "Hardswish",
        "Hardtanh",
        "Mish",
        "NativeDropout",
        "MaskedFill",
        "ToCopy",
        "Rsub",
        "Square",
        "Maximum",
        "Minimum",
        "LogSigmoid",
        "Sign",
        "Expm1",
    }
)
FORWARD_AND_BACKWARD = 3.0
"""A backward pass has twice the products of the forward one."""
TIMES_MOVED = 5.0
"""An output is written, its input read; backward reads its gradient and what was kept, and writes a gradient."""

_NUMBERED = re.compile(r"Backward\d*$")


@dataclass
class Work:
    operations: int = 0
    flops: float = 0.0
    bytes: float = 0.0
    pointwise_bytes: float = 0.0
    outputs: list[int] = field(default_factory=list)
    """elements that each layer with weights gives"""
    parameters: set[int] = field(default_factory=set)
    by_dtype: Counter[torch.dtype] = field(default_factory=Counter)
    opaque: bool = False

    @property
    def dtype(self) -> torch.dtype | None:
        return max(self.by_dtype, key=lambda d: self.by_dtype[d]) if self.by_dtype else None


def work_of(graph: Graph, work: Work) -> None:
    """Add what is in this graph."""
    work.opaque = work.opaque or graph.opaque or graph.truncated
    work.parameters.update(graph.reached)
    for node in graph.nodes:
        kind = _NUMBERED.sub("", node.name())
        if kind in VIEWS or node.name() == ACCUMULATE:
            continue
        work.operations += 1
        metadata = getattr(node, "_input_metadata", None)
        if not metadata:
            continue
        shape = [int(n) for n in metadata[0].shape]
        dtype = metadata[0].dtype
        elements = math.prod(shape)
        moved = TIMES_MOVED * elements * dtype.itemsize
        work.bytes += moved
        if kind in POINTWISE:
            work.pointwise_bytes += moved
            continue
        flops = _flops(kind, node, shape, elements)
        if flops is not None:
            work.flops += FORWARD_AND_BACKWARD * flops
            work.by_dtype[dtype] += int(flops)
            work.outputs.append(elements)


def _flops(kind: str, node: Any, shape: list[int], elements: int) -> float | None:
    """Of the forward product; None for what is none."""
    if kind in ("Addmm", "Mm", "Linear"):
        return 2.0 * elements * _inner(node)
    if kind in ("Bmm", "Baddbmm"):
        names = ("self", "mat2") if kind == "Bmm" else ("batch1", "batch2")
        left, right = (saved(node, name) for name in names)
        inner = left.shape[-1] if left is not None else right.shape[-2] if right is not None else 0
        return 2.0 * elements * inner
    if "Convolution" in kind:
        weight = _weight(node)
        return 2.0 * elements * weight.numel() / max(1, weight.shape[0]) if weight is not None else 0.0
    if kind.startswith("ScaledDotProduct"):
        key = saved(node, "key")
        return 4.0 * elements * key.shape[-2] if key is not None else 0.0
    if "CudnnRnn" in kind and not Packing.seen:
        sequence, weights = saved(node, "input"), node._saved_weight
        rows = sequence.numel() / max(1, sequence.shape[-1]) if sequence is not None else 0.0
        return 2.0 * rows * sum(w.numel() for w in weights)
    return None


def _inner(node: Any) -> int:
    """Length of the sums of a matrix product."""
    for name, at in (("mat1", -1), ("self", -1), ("mat2", 0), ("input", -1)):
        sizes = getattr(node, f"_saved_{name}_sym_sizes", None)
        if sizes:
            return int(sizes[at])
    kept = saved(node, "input")
    return int(kept.shape[-1]) if kept is not None else 0


def _weight(node: Any) -> torch.Tensor | None:
    kept = saved(node, "weight")
    if kept is not None:
        return kept
    below = node.next_functions[1][0] if len(node.next_functions) > 1 else None
    return below.variable if below is not None and below.name() == ACCUMULATE else None
