"""torch's optimizers by the names that stations offer."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

MOMENTUM = 0.9


def make_optimizer(name: str, parameters: Iterable[Tensor], rate: float, weight_decay: float = 0.0) -> Optimizer:
    """As torch makes them: AdamW's decay stands by itself, that of all others is added to the gradient."""
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=rate, weight_decay=weight_decay)
    if name == "momentum":
        return torch.optim.SGD(parameters, lr=rate, momentum=MOMENTUM, weight_decay=weight_decay)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}
    return kinds[name](parameters, lr=rate, weight_decay=weight_decay)
