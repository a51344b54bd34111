"""Who is who: the user's models, parameters, optimizers and loaders, by the names the user gave them.

Models are found by what the optimizers hold and the loss reaches: every `nn.Module` alive that no other module
contains and that has such a parameter. Objects are held weakly, so that nothing lives longer because of us.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

WRAPPERS = ("OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")
"""Modules that only wrap the user's; names are given without them."""
WRAPPER_ATTRIBUTES = ("_orig_mod", "module", "_fsdp_wrapped_module")


class Registry:
    """Names for everything seen so far."""

    def __init__(self, globs: tuple[str, ...] = ("*",)) -> None:
        self.globs = globs
        self.models: dict[str, weakref.ref[nn.Module]] = {}
        self.optimizers: dict[str, weakref.ref[Optimizer]] = {}
        self._optimizer_keys: dict[int, str] = {}
        self._held: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        self.parameter_names: dict[int, str] = {}
        self._parameters: dict[str, weakref.ref[Tensor]] = {}
        self.module_names: dict[int, str] = {}
        self._loaders: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._loader_kinds: dict[tuple[Any, ...], tuple[Any, str]] = {}
        self.strays: dict[int, weakref.ref[nn.Module]] = {}
        """modules called inside a model without being registered in it"""
        self._inside: dict[int, weakref.ref[nn.Module]] = {}
        self._roots: set[int] = set()
        self.loaded: set[int] = set()
        """ids of parameters that load_state_dict filled"""

    # -- optimizers and loaders -------------------------------------------------

    def optimizer_key(self, optimizer: Optimizer) -> str:
        key = self._optimizer_keys.get(id(optimizer))
        if key is None or self.optimizers[key]() is not optimizer:
            inner = getattr(optimizer, "optimizer", None)
            if isinstance(inner, Optimizer):  # accelerate's wrapper around the user's
                return self.optimizer_key(inner)
            dead = next((k for k, ref in self.optimizers.items() if ref() is None), None)
            key = self._optimizer_keys[id(optimizer)] = dead or str(len(self.optimizers))
            self.optimizers[key] = weakref.ref(optimizer)
        return key

    def live_optimizers(self) -> Iterator[tuple[str, Optimizer]]:
        for key, ref in self.optimizers.items():
            optimizer = ref()
            if optimizer is not None:
                yield key, optimizer

    def held(self) -> dict[int, str]:
        """id of every parameter that an optimizer holds, or held in an earlier stage -> the optimizer's key."""
        for key, optimizer in self.live_optimizers():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self._held[id(parameter)] = (weakref.ref(parameter), key)
        return {i: key for i, (reference, key) in self._held.items() if reference() is not None}

    def loader_name(self, loader: Any) -> str:
        """A name that stays: a loader built anew over the same data (as trainers do) keeps the old one's."""
        name = self._loaders.get(loader)
        if name is None:
            dataset = getattr(loader, "dataset", None)
            kind = (id(dataset), type(getattr(loader, "sampler", None)), getattr(loader, "batch_size", None))
            known, name = self._loader_kinds.get(kind, (None, ""))
            if known is None or known() is not dataset:
                name = self._new_loader_name(loader)
                if hasattr(dataset, "__weakref__"):
                    self._loader_kinds[kind] = (weakref.ref(dataset), name)
            self._loaders[loader] = name
        return name

    def _new_loader_name(self, loader: Any) -> str:
        taken = set(self._loaders.values())
        base = name = variable_name(loader) or type(loader).__name__
        number = 2
        while name in taken:
            name, number = f"{base}{number}", number + 1
        return name

    # -- models and parameters ----------------------------------------------------

    def add_model(self, model: nn.Module, name: str | None = None) -> str:
        """Register a root; its parameters and modules get their dotted names."""
        model = unwrap(model)
        known = self.module_names.get(id(model))
        if known is not None and any(ref() is model for ref in self.models.values()):
            return known
        name = name or variable_name(model) or attribute_name(model) or type(model).__name__
        while name in self.models:
            name += "'"
        self.models[name] = weakref.ref(model)
        self._rename()
        return name

    def discover(self, reached: Iterable[int] = ()) -> bool:
        """Look for models that hold an optimized or reached parameter; True if there is a new one."""
        wanted = {*self.held(), *reached} - {i for i, n in self.parameter_names.items() if self._is_live(n, i)}
        if not wanted:
            return False
        tops = _top_modules()
        found = [m for m in tops if any(id(p) in wanted for p in m.parameters())]
        named = {id(unwrap(m)) for ref in self.models.values() if (m := ref()) is not None}
        new = []
        for model in found:
            if id(unwrap(model)) in named:
                new.append(model)  # a part of it was replaced
                self._rename()
                continue
            if self._is_stray(model):
                self.strays[id(model)] = weakref.ref(model)
            else:
                new.append(model)
                self.add_model(model)
        self._name_loose_parameters(wanted)
        return bool(new)

    def is_partly_frozen(self, optimizer: Optimizer) -> bool:
        """A model that this optimizer trains holds parameters that do not."""
        trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
        holding = (m for m in _top_modules() if any(id(p) in trained for p in m.parameters()))
        return any(not p.requires_grad for m in holding for p in m.parameters())

    def called_as_root(self, module: nn.Module) -> None:
        self._roots.add(id(module))

    def called_inside(self, module: nn.Module) -> None:
        """A module was called while another one ran."""
        if id(module) not in self._inside and id(module) not in self.module_names and module._parameters:
            self._inside[id(module)] = weakref.ref(module)

    def _is_stray(self, module: nn.Module) -> bool:
        """Only ever called from inside another module, and no module contains it."""
        inside = self._inside.get(id(module))
        return inside is not None and inside() is module and id(module) not in self._roots

    def stray_parameters(self) -> dict[int, str]:
        """Parameters of strays, by id, each with a name that tells what it is."""
        named: dict[int, str] = {}
        for i, reference in enumerate(self.strays.values()):
            module = reference()
            for name, parameter in module.named_parameters() if module is not None else ():
                named[id(parameter)] = f"{type(module).__name__}#{i}.{name}"
        return named

    def live_models(self) -> Iterator[tuple[str, nn.Module]]:
        for name, ref in self.models.items():
            model = ref()
            if model is not None:
                yield name, model

    def parameter(self, name: str) -> Tensor | None:
        ref = self._parameters.get(name)
        return ref() if ref else None

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Every named parameter that lives, each once."""
        for name, ref in self._parameters.items():
            parameter = ref()
            if parameter is not None:
                yield name, parameter

    def chosen(self, name: str) -> bool:
        """Whether the user's globs take this module or parameter in."""
        return self.globs == ("*",) or any(fnmatch(name, glob) or fnmatch(name, glob + ".*") for glob in self.globs)

    def name_of(self, parameter: Tensor) -> str | None:
        name = self.parameter_names.get(id(parameter))
        return name if name is not None and self.parameter(name) is parameter else None

    def _is_live(self, name: str, identity: int) -> bool:
        parameter = self.parameter(name)
        return parameter is not None and id(parameter) == identity

    def _rename(self) -> None:
        """One model: names as in named_parameters. Several: the model's own name goes in front."""
        models = list(self.live_models())
        self.parameter_names.clear()
        self._parameters.clear()
        self.module_names.clear()
        for label, model in models:
            prefix = f"{label}." if len(models) > 1 else ""
            for name, module in model.named_modules():
                self.module_names[id(module)] = clean(prefix + name).rstrip(".") or label
            for name, parameter in model.named_parameters():
                self._name_parameter(parameter, clean(prefix + name))

    def _name_parameter(self, parameter: Tensor, name: str) -> None:
        self.parameter_names[id(parameter)] = name
        self._parameters[name] = weakref.ref(parameter)

    def _name_loose_parameters(self, wanted: set[int]) -> None:
        """Optimized leaves that no module holds: plain tensors with requires_grad."""
        for key, optimizer in self.live_optimizers():
            for g, group in enumerate(optimizer.param_groups):
                for i, parameter in enumerate(group["params"]):
                    if id(parameter) in wanted and self.name_of(parameter) is None:
                        name = variable_name(parameter) or f"optimizer{key}.group{g}.{i}"
                        self._name_parameter(parameter, name)


def unwrap(module: nn.Module) -> nn.Module:
    """The user's own module inside compile and parallel wrappers."""
    while type(module).__name__ in WRAPPERS:
        inner = next(
            (getattr(module, a) for a in WRAPPER_ATTRIBUTES if isinstance(getattr(module, a, None), nn.Module)), None
        )
        if inner is None:
            return module
        module = inner
    return module


def clean(name: str) -> str:
    """A dotted name without the parts that wrappers put in."""
    return ".".join(part for part in name.split(".") if part not in ("_orig_mod", "_fsdp_wrapped_module"))


def variable_name(thing: Any) -> str | None:
    """The name of a global of the user's script that is this very object."""
    main = sys.modules.get("__main__")
    for name, value in list(vars(main).items()) if main else ():
        if value is thing and not name.startswith("_"):
            return name
    return None


def attribute_name(thing: Any) -> str | None:
    """The name under which a plain object (a trainer) keeps this one. Looks through all objects: not for hot paths."""
    for owner in gc.get_referrers(thing):
        fields = owner if type(owner) is dict else getattr(owner, "__dict__", None)
        if type(fields) is not dict or "__name__" in fields:
            continue
        for name, value in list(fields.items()):
            if value is thing and isinstance(name, str) and name.isidentifier() and not name.startswith("_"):
                return name
    return None


def _top_modules() -> list[nn.Module]:
    """Modules alive that no other module contains. One pass over the collector's objects."""
    alive = [o for o in gc.get_objects() if issubclass(type(o), nn.Module) and "_modules" in o.__dict__]
    inner = {id(child) for m in alive for child in m._modules.values() if child is not None}
    return [m for m in alive if id(m) not in inner and not isinstance(m, torch.jit.ScriptModule)]
