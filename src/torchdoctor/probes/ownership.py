"""Whose code put a layer into a model: the user's, or that of an installed package."""

from __future__ import annotations

import sys

from torch import nn

from torchdoctor.attach.places import library_of

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
"""Modules of torch that hold what others put into them."""


def library_of_parameters(model: nn.Module) -> dict[int, str | None]:
    """Return for each parameter, by identity, the installed package whose class put its layer into the model.

    A layer without parts of its own belongs to the module that holds it, and a container to the module around it. None
    stands for the user's own code.
    """
    found: dict[int, str | None] = {}
    seen: set[int] = set()
    waiting: list[tuple[nn.Module, str | None]] = [(model, None)]
    while waiting:
        module, around = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        children = [child for child in module._modules.values() if child is not None]
        own = package_of(type(module)) if children and not isinstance(module, CONTAINERS) else around
        found.update((id(p), own) for p in module._parameters.values() if p is not None)
        waiting += [(child, own) for child in children]
    return found


def package_of(kind: type) -> str | None:
    """Return the installed package that defines a class, torch included; None for the user's own."""
    top = kind.__module__.partition(".")[0]
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    return top if top == "torch" else library_of(file) if file else None
