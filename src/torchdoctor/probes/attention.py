"""Attention weights, from what the graph keeps of them: entropy by head, and what masks and padding do to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor import signals
from torchdoctor.attach.guard import contained
from torchdoctor.probes.context import Context
from torchdoctor.probes.graph import Graph, nearest_parameter
from torchdoctor.probes.padding import key_padding
from torchdoctor.probes.saved import saved

FUSED = "ScaledDotProduct"
SOFTMAXES = ("SoftmaxBackward0", "SafeSoftmaxBackward0")
PRODUCTS = ("BmmBackward0", "BaddbmmBackward0")
WAY_LIMIT = 24
LAYERS_LIMIT = 64
SAMPLES, QUERIES, KEYS = 8, 32, 4096
HIDDEN = -1e4
"""Logits below are masked: nobody's scores get there, and usual masks are -inf, -1e9 or the format's lowest."""
COLUMNS = tuple(signals.ATTENTION)


class AttentionProbe:
    """On a look: one row for every attention in the graph, in the order of the forward pass."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @contained("attention: look")
    def look(self, graph: Graph, batch: list[Tensor]) -> None:
        rows: dict[str, Tensor] = {}
        for node in reversed(graph.nodes):
            name = node.name()
            if len(rows) >= LAYERS_LIMIT or not (name.startswith(FUSED) or name in SOFTMAXES):
                continue
            try:
                look = _fused(node) if name.startswith(FUSED) else _by_hand(node)
            except (AttributeError, RuntimeError):  # this torch keeps it elsewhere, or it was changed in place since
                continue
            if look is not None:
                rows[self._name(node, rows)] = _measure(*look, batch)
        if rows:
            self._write(rows)

    def _name(self, node: Any, rows: dict[str, Tensor]) -> str:
        parameter, _ = nearest_parameter(node)
        owner = self._context.names.name_of(parameter) if parameter is not None else None
        base = f"attention after {owner.rpartition('.')[0] or owner}" if owner else "attention"
        count = sum(r == base or r.startswith(f"{base} #") for r in rows)
        return f"{base} #{count + 1}" if count else base

    def _write(self, rows: dict[str, Tensor]) -> None:
        step, record, columns = self._context.step, self._context.record, tuple(rows)

        def arrived(values: NDArray[Any]) -> None:
            values = values.astype(np.float32)
            record.matrix(step, columns, {signals.ATTENTION[c].name: values[:, i] for i, c in enumerate(COLUMNS)})

        self._context.read(torch.stack(list(rows.values())), arrived)


def _fused(node: Any) -> tuple[Tensor, Tensor | None, Tensor | None] | None:
    """Weights worked out again from queries and keys; which keys are open to which query; the largest logit."""
    query, key = saved(node, "query"), saved(node, "key")
    if (
        query is None
        or key is None
        or query.dim() != 4
        or key.dim() != 4
        or key.shape[-2] > KEYS
        or query.shape[1] != key.shape[1]
    ):
        return None
    mask = saved(node, "attn_mask")
    mask = saved(node, "attn_bias") if mask is None else mask
    scale = getattr(node, "_saved_scale", None) or 1 / math.sqrt(query.shape[-1])
    at = _spaced(query.shape[-2], query.device)
    samples = min(SAMPLES, query.shape[0])
    picked = query.detach()[:samples].index_select(-2, at).float()
    logits = picked @ key.detach()[:samples].float().transpose(-1, -2) * scale
    most = logits.abs().amax()
    if isinstance(mask, Tensor):
        shape = (query.shape[0], query.shape[1], query.shape[-2], key.shape[-2])
        picked_mask = mask.detach().expand(shape)[:samples].index_select(-2, at)
        logits = logits.masked_fill(~picked_mask, -math.inf) if mask.dtype == torch.bool else logits + picked_mask
    if getattr(node, "_saved_is_causal", False):
        later = torch.arange(key.shape[-2], device=query.device) > at.unsqueeze(1)
        logits = logits.masked_fill(later, -math.inf)
    return torch.nan_to_num(logits.softmax(-1)), logits > HIDDEN, most


def _by_hand(node: Any) -> tuple[Tensor, Tensor | None, Tensor | None] | None:
    """The result of a softmax over products of queries and keys, and the mask that was filled in before it."""
    result, dim = saved(node, "result"), node._saved_dim
    if result is None:
        return None
    dim = dim - 2**64 if dim >= 2**63 else dim
    if result.dim() not in (3, 4) or dim not in (-1, result.dim() - 1) or not 1 < result.shape[-1] <= KEYS:
        return None
    product, hidden = _scores_below(node)
    if product is None:
        return None
    at = _spaced(result.shape[-2], result.device)
    few = min(SAMPLES, result.shape[0]) if result.dim() == 4 else result.shape[0]
    weights = torch.nan_to_num(result.detach()[:few].index_select(-2, at).float())
    is_open = None
    if isinstance(hidden, Tensor):
        shape = result.shape if hidden.dim() <= result.dim() else None
        is_open = ~hidden.expand(shape)[:few].index_select(-2, at) if shape is not None else None
    return weights, is_open, None


def _scores_below(node: Any) -> tuple[Any, Tensor | None]:
    """The product that the softmax is taken of, and where a mask hides it, if one is filled in on the way."""
    hidden: Tensor | None = None
    current = node
    for _ in range(WAY_LIMIT):
        below = [c for c, _ in current.next_functions if c is not None]
        if not below:
            return None, None
        current = below[0]
        name = current.name()
        if name in PRODUCTS:
            return current, hidden
        if name.startswith("MaskedFill"):
            hidden = saved(current, "mask")
        elif name.startswith("Where"):
            condition = saved(current, "condition")
            hidden = ~condition if condition is not None else None
        elif name.startswith(("Addmm", "Mm", "Convolution")):
            return None, None
    return None, None


def _spaced(count: int, device: torch.device) -> Tensor:
    return torch.arange(0, count, max(1, -(-count // QUERIES)), device=device)


def _measure(weights: Tensor, is_open: Tensor | None, most: Tensor | None, batch: list[Tensor]) -> Tensor:
    """The row of COLUMNS. `weights` are (samples, heads, queries, keys), or (samples times heads, queries, keys)."""
    queries, keys = weights.shape[-2:]
    nan = torch.full((), math.nan, device=weights.device)
    later = torch.arange(keys, device=weights.device) > torch.arange(queries, device=weights.device).unsqueeze(1)
    causal = (weights * later).amax() == 0 if queries == keys else torch.zeros((), device=weights.device)
    if is_open is None:
        is_open = torch.where(causal.bool(), ~later, torch.ones_like(later)).expand(weights.shape)
    count = is_open.sum(-1).float()
    entropy = -(weights * weights.clamp_min(1e-30).log()).sum(-1)
    counted = (count >= 2) & (weights.sum(-1) > 0.5)
    relative = torch.where(counted, entropy / count.clamp_min(2).log(), torch.zeros_like(entropy))
    across = [d for d in range(relative.dim()) if d != 1] if weights.dim() == 4 else None
    heads = relative.sum(across) / counted.sum(across).clamp_min(1) if across else relative.sum() / counted.sum()
    heads = torch.where(counted.any(), heads, nan).reshape(-1)
    padded, on_padding, real = key_padding(weights, batch)
    hidden = (count == 0) | (weights.sum(-1) < 0.5)
    empty = (hidden & real).float().sum() / real.expand(count.shape).float().sum().clamp_min(1)
    parts = {
        "entropy": heads.mean(),
        "entropy_low": heads.min(),
        "entropy_high": heads.max(),
        "logit": nan if most is None else most,
        "empty": empty,
        "padded": padded,
        "on_padding": on_padding,
        "causal": causal,
    }
    return torch.stack([parts[c].to(torch.float32) for c in COLUMNS])
