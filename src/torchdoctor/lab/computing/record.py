"""What torchdoctor would record of a short training, for its rules to judge: losses, rates, weights, updates."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor import signals
from torchdoctor.signals import STATISTICS
from torchdoctor.stats import change_norms, summarize, unit_spread

KEY = "0"
"""Of the only optimizer."""


class Record:
    """Signals by their names, a row a look; plain numbers, since it goes to another process."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self._named = {n: p for n, p in model.named_parameters() if p.dim() >= 2}
        self._optimizer = optimizer
        self._before: list[Tensor] = []
        self.losses: list[float] = []
        self.steps: list[int] = []
        self.scalars: dict[str, list[float]] = {}
        self.matrices: dict[str, list[list[float]]] = {}
        self.shapes = {n: list(p.shape) for n, p in self._named.items()}

    @property
    def weights(self) -> list[Tensor]:
        return [p.detach() for p in self._named.values()]

    def begin(self, step: int) -> None:
        """Before the update of a step that is looked at, with its gradients."""
        self.steps.append(step)
        self._before = [w.clone() for w in self.weights]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self._named.values()]
        rows = summarize(self.weights).tolist()
        for at, name in enumerate(STATISTICS):
            self._matrix(signals.WEIGHT[name].name, [row[at] for row in rows])
        norms = [g.norm().item() for g in gradients]
        self._matrix(signals.GRADIENT_L2.name, norms)
        self._matrix(signals.WEIGHT_UNIT_SPREAD.name, [float(unit_spread(w)) for w in self.weights])
        self._matrix(signals.GRADIENT_UNIT_SPREAD.name, [float(unit_spread(g)) for g in gradients])
        self._scalar(signals.WEIGHT_GLOBAL_L2.name, math.hypot(*(row[0] for row in rows)))
        self._scalar(signals.GRADIENT_GLOBAL_L2.name, math.hypot(*norms))

    def end(self) -> None:
        """After that update."""
        moved = change_norms(self._before, self.weights).tolist()
        sizes = self.matrices[signals.WEIGHT["l2"].name][-1]
        ratios = [m / s if s > 0 else math.nan for m, s in zip(moved, sizes, strict=True)]
        self._matrix(signals.UPDATE_RATIO.name, ratios)

    def to_json(self) -> dict[str, Any]:
        group = self._optimizer.param_groups[0]
        plain = {k: v for k, v in group.items() if isinstance(v, int | float | bool)}
        return {
            "optimizer": {"type": type(self._optimizer).__name__, "group": plain},
            "loss": self.losses,
            "steps": self.steps,
            "scalars": self.scalars,
            "matrices": self.matrices,
            "shapes": self.shapes,
        }

    def _matrix(self, name: str, row: list[float]) -> None:
        self.matrices.setdefault(name, []).append(row)

    def _scalar(self, name: str, value: float) -> None:
        self.scalars.setdefault(name, []).append(value)
