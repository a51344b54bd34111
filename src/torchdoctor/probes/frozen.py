"""Parameters that do not require gradients when an optimizer steps, and whether they look fresh from their making."""

from __future__ import annotations

import math
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.optim import Optimizer

from torchdoctor.attach.guard import contained
from torchdoctor.facts import FrozenFact
from torchdoctor.probes.context import Context

NAMES_KEPT = 4000
LEAST_ELEMENTS = 64
"""Fewer say nothing about the distribution they were drawn from."""
SIGMAS = 4.0
UNIFORM_ERROR, NORMAL_ERROR = 0.2, 0.5
"""Variance of a sample's standard deviation, relative, times n: (kurtosis - 1) / 4."""


class FrozenProbe:
    """Looks at structural steps; weights are read only when the set of frozen parameters has changed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._trained: set[str] = set()
        self._fresh: dict[str, bool] = {}
        self._written: dict[str, FrozenFact] = {}

    @contained("frozen: look")
    def look(self, key: str, optimizer: Optimizer, loaded: set[int]) -> None:
        """This optimizer is about to step; `loaded` are ids of parameters filled by load_state_dict."""
        named = list(self._context.names.parameters())
        frozen = [(n, p) for n, p in named if not p.requires_grad][:NAMES_KEPT]
        self._trained.update(n for n, p in named if p.requires_grad)
        if not frozen and key not in self._written:
            return
        groups = [
            {
                "parameters": len(g["params"]),
                "frozen": sum(not p.requires_grad for p in g["params"]),
                "lr": float(g["lr"]) if isinstance(g.get("lr"), (int, float)) else None,
            }
            for g in optimizer.param_groups
        ]
        kept = [n for n, p in frozen if id(p) in loaded]
        before = [n for n, _ in frozen if n in self._trained]
        step = self._context.step

        def write(_values: Any = None) -> None:
            fresh = [n for n, _ in frozen if self._fresh.get(n)]
            fact = FrozenFact(key, [n for n, _ in frozen], fresh, kept, before, groups)
            if self._written.get(key) != fact:
                self._written[key] = fact
                self._context.record.fact(fact, step, key)

        self._examine([(n, p) for n, p in frozen if n not in self._fresh], write)

    def _examine(self, frozen: list[tuple[str, Tensor]], write: Any) -> None:
        """Compare each weight's spread with the one that torch's own initialisation gives its module."""
        expected = _initial_spreads(self._context)
        chosen = [(n, p) for n, p in frozen if id(p) in expected and p.numel() >= LEAST_ELEMENTS]
        self._fresh.update({n: False for n, _ in frozen})
        if not chosen:
            write()
            return
        rows = torch.stack([torch.stack([p.detach().float().std(), p.detach().abs().max().float()]) for _, p in chosen])

        def arrived(values: NDArray[Any]) -> None:
            for (name, parameter), (std, most) in zip(chosen, values.tolist(), strict=True):
                self._fresh[name] = _is_initial(std, most, parameter.numel(), *expected[id(parameter)])
            write()

        self._context.read(rows, arrived)


def _is_initial(std: float, most: float, count: int, spread: float, uniform: bool) -> bool:
    error = spread * math.sqrt((UNIFORM_ERROR if uniform else NORMAL_ERROR) / count)
    if abs(std - spread) > SIGMAS * error:
        return False
    bound = spread * math.sqrt(3)
    return not uniform or bound * (1 - 10 / count) <= most <= bound * (1 + 1e-3)


def _initial_spreads(context: Context) -> dict[int, tuple[float, bool]]:
    """By id of a weight: the standard deviation of its module's own initialisation, and whether it is uniform."""
    found: dict[int, tuple[float, bool]] = {}
    for _, model in context.names.live_models():
        for module in model.modules():
            if isinstance(module, (nn.Linear, _ConvNd)) and isinstance(module.weight, Tensor):
                fan_in = max(1, math.prod(module.weight.shape[1:]))
                found[id(module.weight)] = (1 / math.sqrt(3 * fan_in), True)
            elif isinstance(module, nn.Embedding):
                found[id(module.weight)] = (1.0, False)
            elif isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
                spread = 1 / math.sqrt(3 * module.hidden_size)
                found.update({id(p): (spread, True) for p in module.parameters(recurse=False) if p.dim() == 2})
            elif isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
                out, fan_in = module.in_proj_weight.shape
                found[id(module.in_proj_weight)] = (math.sqrt(2 / (out + fan_in)), True)
    return found
