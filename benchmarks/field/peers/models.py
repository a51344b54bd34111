"""Finds the model that an optimizer trains, which a user would pass to a peer beside the optimizer."""

from __future__ import annotations

import gc
import weakref

import torch
from torch import nn


class Models:
    """All modules of the process, listed when an optimizer holds parameters of none that is known."""

    def __init__(self) -> None:
        self._modules: list[weakref.ref[nn.Module]] = []

    def trained_by(self, optimizer: torch.optim.Optimizer) -> list[nn.Module]:
        """Return the smallest model that holds all the optimizer's parameters, or each of the largest with some."""
        parameters = parameters_of(optimizer)
        models = self._choose(parameters)
        if not models:
            modules = [o for o in gc.get_objects() if issubclass(type(o), nn.Module) and "_modules" in vars(o)]
            self._modules = [weakref.ref(module) for module in modules]
            models = self._choose(parameters)
        return models

    def _choose(self, parameters: frozenset[int]) -> list[nn.Module]:
        modules = [module for reference in self._modules if (module := reference()) is not None]
        held = [(module, {id(p) for p in module.parameters()}) for module in modules]
        holding = [(module, ids) for module, ids in held if ids & parameters]
        covering = [(m, ids) for m, ids in holding if ids >= parameters and _is_called(m) and _has_parts(m)]
        if covering and len(parameters) > 1:  # some libraries make an optimizer for each parameter
            smallest, _ = min(covering, key=lambda pair: (len(pair[1]), sum(1 for _ in pair[0].modules())))
            return [smallest]
        inner = {id(part) for module, _ in holding for part in module.modules() if part is not module}
        return [module for module, _ in holding if id(module) not in inner]


def parameters_of(optimizer: torch.optim.Optimizer) -> frozenset[int]:
    """Return the identities of an optimizer's parameters."""
    return frozenset(id(p) for group in optimizer.param_groups for p in group["params"])


def _has_parts(module: nn.Module) -> bool:
    return next(module.children(), None) is not None


def _is_called(module: nn.Module) -> bool:
    """Return whether a module has a `forward` (a ModuleList has none)."""
    return type(module).forward is not nn.Module.forward
