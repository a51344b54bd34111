"""The attention weights of a forward pass, caught where they are made, whoever makes them.

nn.MultiheadAttention is asked for them; of scaled_dot_product_attention, which never holds them, they are worked out
from queries and keys; and a softmax over products of queries and keys is one by hand, as in many a model's own code.
"""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from torchdoctor.instruments.one_batch import samples_in
from torchdoctor.instruments.seeing.calling import check_sample

SOFTMAXES = frozenset((F.softmax, torch.softmax, torch.special.softmax, Tensor.softmax))
PRODUCTS = frozenset(
    (torch.matmul, torch.bmm, torch.baddbmm, Tensor.matmul, Tensor.__matmul__, Tensor.bmm, Tensor.baddbmm, torch.einsum)
)
FROM_MULTIHEAD = inspect.signature(F.multi_head_attention_forward)
FROM_PRODUCT = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
"""Names of what scaled_dot_product_attention takes by its place."""
MOST_KEYS = 4096
"""Longer ones are left out: one head's map would fill gigabytes."""


@dataclass(frozen=True)
class Attention:
    layer: str
    weights: NDArray[np.float32]
    """heads x queries x keys, of one sample"""


class Catcher(TorchFunctionMode):
    """Keeps what is of one sample; `given` holds the tensors that the model is called with, once it is."""

    def __init__(self, sample: int, given: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._sample, self._given = sample, given
        self.within: list[str] = []
        """names of the modules that are being called, the innermost last"""
        self._products: set[tuple[int, ...]] = set()
        self.caught: list[Attention] = []
        self.too_long = 0
        self.windows: dict[str, int] = {}
        """that a sample is cut into, by layer"""
        self._windows = 1
        """of what was looked at last"""

    @property
    def _samples(self) -> int:
        samples = samples_in(list(self._given.values())) or 1
        check_sample(self._sample, samples)
        return samples

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            return self._ask_multihead(func, args, kwargs)
        if func is F.scaled_dot_product_attention:
            self._work_out({**dict(zip(FROM_PRODUCT, args, strict=False)), **kwargs})
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        if func in PRODUCTS and all(t.dim() > 2 for t in _tensors(args)):
            self._products.add(tuple(result.shape))
        elif func in SOFTMAXES and self._is_attention(result, args, kwargs):
            self._keep(self._of_sample(result))
        return result

    def _ask_multihead(self, func: Any, args: Any, kwargs: Any) -> Any:
        given = FROM_MULTIHEAD.bind(*args, **kwargs)
        given.apply_defaults()
        wanted, averaged = given.arguments["need_weights"], given.arguments["average_attn_weights"]
        given.arguments |= {"need_weights": True, "average_attn_weights": False}
        output, weights = func(*given.args, **given.kwargs)
        self._keep(self._of_sample(weights))
        if not wanted:
            return output, None
        return output, weights.mean(-3) if averaged else weights

    def _work_out(self, given: dict[str, Any]) -> None:
        query, key = (self._of_sample(given[name]) for name in ("query", "key"))
        if query is None or key is None or key.shape[-2] > MOST_KEYS:
            self.too_long += key is not None and key.shape[-2] > MOST_KEYS
            return
        if query.shape[0] != key.shape[0]:
            key = key.repeat_interleave(query.shape[0] // key.shape[0], 0)
        scale = given.get("scale") or 1 / math.sqrt(query.shape[-1])
        logits = query.float() @ key.float().transpose(-1, -2) * scale
        mask = given.get("attn_mask")
        if given.get("is_causal"):
            logits = logits.masked_fill(torch.ones_like(logits).triu(1).bool(), -math.inf)
        if isinstance(mask, Tensor):
            whole = (*given["query"].shape[:-1], given["key"].shape[-2])
            with contextlib.suppress(RuntimeError):
                mask = mask.expand(whole)
            part = self._of_sample(mask) if mask.dim() > 2 else mask
            if part is not None:
                logits = logits.masked_fill(~part, -math.inf) if part.dtype == torch.bool else logits + part
        self._keep(torch.nan_to_num(logits.softmax(-1)))

    def _is_attention(self, result: Tensor, args: Any, kwargs: Any) -> bool:
        dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
        square = result.dim() in (3, 4) and dim in (-1, result.dim() - 1) and 1 < result.shape[-1] <= MOST_KEYS
        shape = tuple(result.shape)
        flat = (math.prod(shape[:-2]), *shape[-2:])
        return square and any(p == shape or (math.prod(p[:-2]), *p[-2:]) == flat for p in self._products)

    def _of_sample(self, tensor: Tensor) -> Tensor | None:
        """Heads x rows x columns; None where the samples cannot be told apart."""
        tensor, self._windows = tensor.detach(), 1
        count, first = self._samples, tensor.shape[0]
        if tensor.dim() == 2:
            return tensor[None] if count == 1 else None
        if tensor.dim() == 3 and first % count:
            return tensor if count == 1 else None
        if tensor.dim() == 3:
            heads = first // count
            return tensor[self._sample * heads : (self._sample + 1) * heads]
        if tensor.dim() != 4:
            return None
        if first == 1:
            return tensor[0]
        if first % count:
            return None
        self._windows = first // count
        return tensor[self._sample * self._windows]

    def _keep(self, weights: Tensor | None) -> None:
        if weights is None:
            return
        base = self.within[-1] if self.within else "attention"
        again = sum(a.layer == base or a.layer.startswith(f"{base} #") for a in self.caught)
        name = f"{base} #{again + 1}" if again else base
        if self._windows > 1:
            self.windows[name] = self._windows
        self.caught.append(Attention(name, weights.float().cpu().numpy()))


@contextlib.contextmanager
def named_calls(model: nn.Module, within: list[str]) -> Iterator[None]:
    """Keeps the names of the modules that are being called."""
    handles = []
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue

        def enter(_module: nn.Module, _args: Any, name: str = name or type(model).__name__) -> None:
            within.append(name)

        def leave(_module: nn.Module, _args: Any, _result: Any) -> None:
            within.pop()

        handles += [module.register_forward_pre_hook(enter), module.register_forward_hook(leave, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensors(args: Any) -> list[Tensor]:
    flat = [a for part in args for a in (part if isinstance(part, list | tuple) else [part])]
    return [a for a in flat if isinstance(a, Tensor)]
