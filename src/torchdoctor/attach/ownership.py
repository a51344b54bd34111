"""Which module holds which parameter and which submodule, noted while modules are built.

A script may build hundreds of models; finding the model behind a parameter must cost what the model's size costs, and
not a walk through all objects of the interpreter. Torch calls a hook whenever a module registers a parameter or a
submodule. Copies and unpickled models are not announced: `add` notes one that is called.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.utils.hooks import RemovableHandle

from torchdoctor.attach.guard import guarded

_is_compiling = torch.compiler.is_compiling

SWEEP_AT_LEAST = 4096
"""Entries of dead modules are cleared when so many entries were added, or as many as there are."""
SECONDS_PER_BLOCK = 2.5e-8
"""Cost of a walk per memory block of the interpreter, until one was measured."""

Holders = dict[int, list["weakref.ref[nn.Module]"]]


class Ownership:
    """A weak map from parameters and submodules to the modules that hold them. Entries may be stale: ids are used
    again, and attributes change. Whatever is read from the map is checked against the module."""

    def __init__(self) -> None:
        self._parameters: Holders = {}
        self._submodules: Holders = {}
        self._added, self._sweep_at = 0, SWEEP_AT_LEAST

    def registered_parameter(self, module: nn.Module, parameter: Any) -> None:
        self._note(self._parameters, parameter, module)

    def registered_module(self, module: nn.Module, submodule: Any) -> None:
        self._note(self._submodules, submodule, module)

    def _note(self, holders: Holders, thing: Any, module: nn.Module) -> None:
        if thing is None:
            return
        alive: list[weakref.ref[nn.Module]] = []
        for reference in holders.get(id(thing), ()):
            holder = reference()
            if holder is module:
                return
            if holder is not None:
                alive.append(reference)
        # a part that many models share in turn must not get slower with each of them
        holders[id(thing)] = [*alive, weakref.ref(module)]
        self._added += 1
        if self._added > self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        for holders in (self._parameters, self._submodules):
            for identity, references in list(holders.items()):
                alive = [reference for reference in references if reference() is not None]
                if alive:
                    holders[identity] = alive
                else:
                    del holders[identity]
        self._added = 0
        self._sweep_at = max(SWEEP_AT_LEAST, len(self._parameters) + len(self._submodules))

    def add(self, root: nn.Module) -> None:
        """Note all that a model holds, however it was built."""
        for module in root.modules():
            for parameter in module._parameters.values():
                self._note(self._parameters, parameter, module)
            for submodule in module._modules.values():
                self._note(self._submodules, submodule, module)

    def find_tops(self, parameters: Iterable[int]) -> tuple[list[nn.Module], list[int]]:
        """The outermost modules that hold any of the parameters (by id), and the parameters that none is known for."""
        holders: dict[int, nn.Module] = {}
        unknown: list[int] = []
        for identity in parameters:
            found = self._holders(identity)
            holders.update((id(module), module) for module in found)
            if not found:
                unknown.append(identity)
        return self._climb(holders), unknown

    def _climb(self, modules: dict[int, nn.Module]) -> list[nn.Module]:
        contents: dict[int, set[int]] = {}

        def submodules(module: nn.Module) -> set[int]:
            """Ids of its submodules, listed once: a list of thousands of layers is asked about each."""
            if id(module) not in contents:
                contents[id(module)] = {id(child) for child in module._modules.values()}
            return contents[id(module)]

        tops, pending, seen = [], deque(modules.values()), set(modules)
        while pending:
            module = pending.popleft()
            above = [
                parent
                for reference in self._submodules.get(id(module), ())
                if (parent := reference()) is not None and id(module) in submodules(parent)
            ]
            if not above and not isinstance(module, torch.jit.ScriptModule):
                tops.append(module)
            for parent in above:
                if id(parent) not in seen:
                    seen.add(id(parent))
                    pending.append(parent)
        return tops

    def _holders(self, parameter: int) -> list[nn.Module]:
        alive = (reference() for reference in self._parameters.get(parameter, ()))
        return [m for m in alive if m is not None and any(id(p) == parameter for p in m._parameters.values())]


def watch_building(ownership: Ownership) -> list[RemovableHandle]:
    """Have torch tell whenever a module registers something; gives the handles that end it."""
    note_parameter = guarded("parameter registered")(ownership.registered_parameter)
    note_module = guarded("module registered")(ownership.registered_module)

    def parameter_registered(module: nn.Module, _name: str, parameter: Any) -> None:
        if not _is_compiling():
            note_parameter(module, parameter)

    def module_registered(module: nn.Module, _name: str, submodule: Any) -> None:
        if not _is_compiling():
            note_module(module, submodule)

    return [
        register_module_parameter_registration_hook(parameter_registered),
        register_module_module_registration_hook(module_registered),
    ]


class Heap:
    """Searches through all objects of the interpreter: the last resort, at a cost that is predicted."""

    def __init__(self) -> None:
        self._rate = SECONDS_PER_BLOCK

    @property
    def predicted_seconds(self) -> float:
        return self._rate * sys.getallocatedblocks()

    def measured(self, seconds: float) -> None:
        self._rate = max(seconds / max(1, sys.getallocatedblocks()), SECONDS_PER_BLOCK / 4)

    @staticmethod
    def top_modules() -> list[nn.Module]:
        """Modules alive that no other module contains."""
        kinds = _subclasses(nn.Module)
        alive = [o for o in gc.get_objects() if type(o) in kinds and "_modules" in o.__dict__]
        inner = {id(child) for module in alive for child in module._modules.values() if child is not None}
        return [m for m in alive if id(m) not in inner and not isinstance(m, torch.jit.ScriptModule)]

    @staticmethod
    def attribute_names(things: list[Any]) -> dict[int, str]:
        """Names under which plain objects (a trainer) keep these ones, by id."""
        names: dict[int, str] = {}
        wanted = {id(thing) for thing in things}
        for owner in gc.get_referrers(*things):
            fields = owner if type(owner) is dict else getattr(owner, "__dict__", None)
            if type(fields) is not dict or "__name__" in fields:
                continue
            for name, value in list(fields.items()):
                if id(value) in wanted and isinstance(name, str) and name.isidentifier() and not name.startswith("_"):
                    names.setdefault(id(value), name)
        return names


def _subclasses(kind: type) -> set[type]:
    found, pending = {kind}, [kind]
    while pending:
        for subclass in type.__subclasses__(pending.pop()):
            if subclass not in found:
                found.add(subclass)
                pending.append(subclass)
    return found
