"""Who is who: the user's models, parameters, optimizers and loaders, by the names the user gave them.

Models are found by what the optimizers hold and the loss reaches: the outermost `nn.Module` that has such a
parameter. Objects are held weakly, so that nothing lives longer because of us. A script may build hundreds of models:
work on a new model is in proportion to that model.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatch
from functools import partial
from threading import get_ident, main_thread
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor.attach.ownership import Heap, Ownership
from torchdoctor.attach.weak import IdentityMap, IdentitySet

WRAPPERS = ("OptimizedModule", "DistributedDataParallel", "DataParallel", "FullyShardedDataParallel")
"""Modules that only wrap the user's; names are given without them."""
WRAPPER_ATTRIBUTES = ("_orig_mod", "module", "_fsdp_wrapped_module")


IN_VAIN, MOST_IN_VAIN = 4, 3
"""Where a search for names has found none, the next must fit the budget so many times, up to its third power."""
T = TypeVar("T")


class Discovery(NamedTuple):
    """What a search for models changed."""

    found: bool
    """a model has names that had none before"""
    renamed: bool
    """names that were in use now mean something else, or nothing"""


class _Names(NamedTuple):
    """What one model contributed to the maps of names."""

    parameters: list[tuple[int, str]]
    modules: list[int]


class Registry:
    """Names for everything seen so far."""

    def __init__(self, globs: tuple[str, ...] = ("*",)) -> None:
        self.globs = globs
        self.models: dict[str, weakref.ref[nn.Module]] = {}
        self.optimizers: dict[str, weakref.ref[Optimizer]] = {}
        self._optimizer_keys: dict[int, str] = {}
        self._makers: dict[str, int] = {}
        """of each optimizer, the thread in which it was first seen"""
        self._stepped_here = IdentitySet()
        self._foreign = IdentitySet()
        """optimizers that another thread trains with"""
        self._leaving: list[weakref.ref[Optimizer]] = []
        self._held: dict[int, str] = {}
        self._held_references: dict[int, weakref.ref[Tensor]] = {}
        self._held_ids: dict[str, list[int]] = {}
        """of each optimizer, its parameters when they were last listed"""
        self._released: dict[int, Any] = {}
        """ids of parameters that have gone -> the weak references to them"""
        self._unplaced: set[int] = set()
        """parameters that an optimizer holds and whose model is not known yet"""
        self.parameter_names: dict[int, str] = {}
        self._parameters: dict[str, weakref.ref[Tensor]] = {}
        self.module_names: dict[int, str] = {}
        self._loaders: IdentityMap[str] = IdentityMap()
        self._loader_kinds: dict[tuple[Any, ...], tuple[Callable[[Any], bool] | None, str]] = {}
        self.strays: dict[int, weakref.ref[nn.Module]] = {}
        """modules called inside a model without being registered in it"""
        self._inside = IdentitySet()
        self._roots = IdentitySet()
        self.loaded: set[int] = set()
        """ids of parameters that load_state_dict filled"""
        self.ownership = Ownership()
        self.heap = Heap()
        self.can_spend: Callable[[float], bool] = lambda _: True
        """whether a search that takes so many seconds fits the budget"""
        self.searches_skipped = 0
        """searches through all objects that did not fit the budget"""
        self._searched_in_vain = 0
        self._homeless = IdentitySet()
        """parameters that no module holds, as a search showed"""
        self._names: dict[str, _Names] = {}
        self._labels: Counter[str] = Counter()
        self._dead: dict[str, Any] = {}
        """labels of models that no longer exist and still have names; filled by C code alone, as a callback of a weak
        reference must be (see weak.py)"""
        self._former_labels: IdentityMap[str] = IdentityMap()
        """of models that were forgotten because another thread seemed to train them"""
        self._prefixed = False
        self._renamed = False
        """names that were in use mean something else since the last search"""
        self._module_counts: IdentityMap[int] = IdentityMap()
        self._sought = IdentitySet()

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
            self._makers[key] = get_ident()
        return key

    def keep_thread(self, thread: int) -> None:
        """The training of this thread is watched. What other threads train is left alone: to read a gradient while a
        backward pass puts another in its place, which needs no lock of Python's, corrupts memory."""
        usual = (thread, main_thread().ident)
        for key, optimizer in list(self.live_optimizers()):
            if self._makers.get(key) not in usual:
                self.leave(optimizer)

    def stepped_here(self, optimizer: Optimizer) -> None:
        """The thread that is watched steps with this optimizer. It may have been built in another one."""
        self._stepped_here.add(optimizer)
        if optimizer in self._foreign:
            self._foreign.discard(optimizer)
            self._held_ids.clear()  # its parameters were forgotten

    def leave(self, optimizer: Optimizer) -> None:
        """Another thread trains with this optimizer. May be called from there."""
        if optimizer not in self._foreign and optimizer not in self._stepped_here:
            self._foreign.add(optimizer)
            self._leaving.append(weakref.ref(optimizer))

    def _forget_foreign(self) -> None:
        while self._leaving:
            optimizer = self._leaving.pop()()
            if optimizer is None or optimizer not in self._foreign:
                continue
            ours = {id(p) for _, other in self.live_optimizers() for g in other.param_groups for p in g["params"]}
            theirs = {id(p) for group in optimizer.param_groups for p in group["params"]} - ours
            for identity in theirs:
                self._held.pop(identity, None)
                self._held_references.pop(identity, None)
                self._unplaced.discard(identity)
            for label, model in list(self.live_models()):
                if not theirs.isdisjoint(map(id, model.parameters())):
                    del self.models[label]
                    self._former_labels[model] = label
                    self._forget(label)
                    self._renamed = True

    def live_optimizers(self) -> Iterator[tuple[str, Optimizer]]:
        for key, ref in self.optimizers.items():
            optimizer = ref()
            if optimizer is not None and optimizer not in self._foreign:
                yield key, optimizer

    def held(self) -> dict[int, str]:
        """id of every parameter that an optimizer holds, or held in an earlier stage -> the optimizer's key."""
        self._forget_foreign()
        self._forget_released()
        for key, optimizer in self.live_optimizers():
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            identities = list(map(id, parameters))
            if self._held_ids.get(key) != identities:
                self._held_ids[key] = identities
                for parameter in parameters:
                    self._hold(parameter, key)
        return dict(self._held)

    def _hold(self, parameter: Tensor, key: str) -> None:
        identity = id(parameter)
        self._held[identity] = key
        reference = self._held_references.get(identity)
        if reference is None or reference() is not parameter:
            self._held_references[identity] = weakref.ref(parameter, partial(self._released.setdefault, identity))
        if self.name_of(parameter) is None:
            self._unplaced.add(identity)

    def _forget_released(self) -> None:
        if self._released:
            self._held_ids.clear()  # another parameter may have the id of one that has gone
        while self._released:
            identity, reference = self._released.popitem()
            if self._held_references.get(identity) is reference:
                self._held.pop(identity, None)
                self._held_references.pop(identity, None)
                self._unplaced.discard(identity)

    def is_held(self, tensor: Tensor) -> bool:
        """Whether an optimizer is known to hold this tensor."""
        reference = self._held_references.get(id(tensor))
        return reference is not None and reference() is tensor

    def loader_name(self, loader: Any) -> str:
        """A name that stays: a loader built anew over the same data (as trainers do) keeps the old one's."""
        name = self._loaders.get(loader)
        if name is None:
            dataset = getattr(loader, "dataset", None)
            kind = (id(dataset), type(getattr(loader, "sampler", None)), getattr(loader, "batch_size", None))
            known, name = self._loader_kinds.get(kind, (None, ""))
            if known is None or not known(dataset):
                name = self._new_loader_name(loader)
                self._loader_kinds[kind] = (_recognise(dataset), name)
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
        known = self.label_of(model)
        if known is not None:
            return known
        self.ownership.add(model)
        label = self._label(model, name or variable_name(model) or self._attribute_names([model]).get(id(model)))
        self._update_names([label])
        return label

    def label_of(self, model: nn.Module) -> str | None:
        """The name of a model that is registered as a root."""
        return next((label for label, reference in self.models.items() if reference() is model), None)

    def _label(self, model: nn.Module, name: str | None) -> str:
        label = self._former_labels.get(model) or self._new_label(name or type(model).__name__)
        self.models[label] = weakref.ref(model, partial(self._dead.setdefault, label))
        return label

    def _new_label(self, name: str) -> str:
        before = self._labels[name]
        self._labels[name] += 1
        return f"{name}'{before if before > 1 else ''}" if before else name

    def discover(self, reached: Iterable[Tensor] = ()) -> Discovery:
        """Look for models that hold an optimized or reached parameter."""
        self.held()
        self.forget_dead()
        unplaced = {id(t): t for i in list(self._unplaced) if (t := self._held_tensor(i)) is not None}
        wanted = {i: t for i, t in (unplaced | {id(t): t for t in reached}).items() if not self._has_name(i)}
        found = bool(wanted) and self._place(wanted)
        renamed, self._renamed = self._renamed, False
        return Discovery(found, renamed)

    def _place(self, wanted: dict[int, Tensor]) -> bool:
        """Name the models that hold these parameters; True if there is a new or changed one."""
        tops, searched = self._find_tops(wanted)
        labels = {id(model): label for label, model in self.live_models()}
        new: list[nn.Module] = []
        changed = False
        for model in map(unwrap, tops):
            label = labels.get(id(model))
            if label is not None:  # a part of it was replaced
                self._forget(label)
                self._update_names([label])
                self._renamed = changed = True
            elif self._is_stray(model):
                self.strays[id(model)] = weakref.ref(model)
            elif all(model is not other for other in new):
                new.append(model)
        if new:
            self._update_names(self._add_models(new))
        self._name_loose_parameters({i for i, t in wanted.items() if searched or not isinstance(t, nn.Parameter)})
        return bool(new) or changed

    def _held_tensor(self, identity: int) -> Tensor | None:
        reference = self._held_references.get(identity)
        return reference() if reference is not None else None

    def _add_models(self, models: list[nn.Module]) -> list[str]:
        names = {id(model): variable_name(model) for model in models}
        unnamed = [model for model in models if names[id(model)] is None]
        names.update(self._attribute_names(unnamed))
        return [self._label(model, names[id(model)]) for model in models]

    def _attribute_names(self, models: list[nn.Module]) -> dict[int, str]:
        """Names under which plain objects (a trainer) keep the models, by id."""
        if not models:
            return {}
        names = self._search(
            lambda: self.heap.attribute_names(models), IN_VAIN ** min(self._searched_in_vain, MOST_IN_VAIN)
        )
        if names is not None:
            self._searched_in_vain = 0 if names else self._searched_in_vain + 1
        return names or {}

    def _search(self, search: Callable[[], T], reluctance: int = 1) -> T | None:
        """Search through all objects of the interpreter, if so many searches would fit the budget."""
        if not self.can_spend(reluctance * self.heap.predicted_seconds):
            self.searches_skipped += 1
            return None
        start = perf_counter()
        found = search()
        self.heap.measured(perf_counter() - start)
        return found

    def _find_tops(self, wanted: dict[int, Tensor]) -> tuple[list[nn.Module], bool]:
        """The outermost modules that hold any of the parameters, and whether all of them were looked for."""
        tops, unknown = self.ownership.find_tops(wanted)
        if unknown:  # parts of known models may have been replaced
            for _, model in self.live_models():
                self.ownership.add(model)
            tops, unknown = self.ownership.find_tops(wanted)
        # a plain tensor is in no module, and what a search did not find has none
        lost = {i: t for i in unknown if isinstance(t := wanted[i], nn.Parameter) and t not in self._homeless}
        if not lost:
            return tops, True
        alive = self._search(self.heap.top_modules)
        if alive is None:
            return tops, False
        for model in alive:
            held = {id(p) for p in model.parameters()} & lost.keys()
            if held:
                self.ownership.add(model)
                tops.append(model)
                for identity in held:
                    del lost[identity]
        for tensor in lost.values():
            self._homeless.add(tensor)
        return tops, True

    def is_partly_frozen(self, optimizer: Optimizer) -> bool:
        """A model that this optimizer trains holds parameters that do not."""
        tops, _ = self._find_tops({id(p): p for group in optimizer.param_groups for p in group["params"]})
        return any(not p.requires_grad for model in tops for p in model.parameters())

    def is_unknown(self, model: nn.Module) -> bool:
        """A root that is called has no name, and was not looked for before."""
        self.forget_dead()
        if id(model) in self.module_names or model in self._sought:
            return False
        self._sought.add(model)
        self.ownership.add(model)
        return True

    def count_modules(self, model: nn.Module) -> int:
        """How many modules a model has, counted once."""
        count = self._module_counts.get(model)
        if count is None:
            count = sum(1 for _ in model.modules())
            self._module_counts[model] = count
        return count

    def called_as_root(self, module: nn.Module) -> None:
        self._roots.add(module)

    def called_inside(self, module: nn.Module) -> None:
        """A module was called while another one ran."""
        if module not in self._inside and id(module) not in self.module_names and module._parameters:
            self._inside.add(module)

    def _is_stray(self, module: nn.Module) -> bool:
        """Only ever called from inside another module, and no module contains it."""
        return module in self._inside and module not in self._roots

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

    def _has_name(self, identity: int) -> bool:
        name = self.parameter_names.get(identity)
        parameter = self.parameter(name) if name is not None else None
        return parameter is not None and id(parameter) == identity

    def forget_dead(self) -> None:
        """Take out the names of models that no longer exist; ids are used again."""
        dead = [self._dead.popitem()[0] for _ in range(len(self._dead))]
        for label in dead:
            if label in self.models and self.models[label]() is None:
                del self.models[label]
                self._forget(label)
                self._renamed = True

    def _forget(self, label: str) -> None:
        names = self._names.pop(label, None)
        if names is None:
            return
        for identity, name in names.parameters:
            if self.parameter_names.get(identity) == name:
                del self.parameter_names[identity]
                self._parameters.pop(name, None)
                if identity in self._held:
                    self._unplaced.add(identity)
        for identity in names.modules:
            self.module_names.pop(identity, None)

    def _update_names(self, labels: Iterable[str]) -> None:
        """Name what these models hold.

        One model: names as in named_parameters. Several: the model's own name goes in front.
        """
        models = dict(self.live_models())
        if (len(models) > 1) != self._prefixed:
            self._prefixed = len(models) > 1
            self._renamed = True
            for label in list(self._names):
                self._forget(label)
            labels = models
        for label in labels:
            if label in models:
                self._name_contents(label, models[label])

    def _name_contents(self, label: str, model: nn.Module) -> None:
        prefix = f"{label}." if self._prefixed else ""
        names = self._names[label] = _Names([], [])
        for name, module in model.named_modules():
            self.module_names[id(module)] = clean(prefix + name).rstrip(".") or label
            names.modules.append(id(module))
        for name, parameter in model.named_parameters():
            full = clean(prefix + name)
            self._name_parameter(parameter, full)
            names.parameters.append((id(parameter), full))

    def _name_parameter(self, parameter: Tensor, name: str) -> None:
        self.parameter_names[id(parameter)] = name
        self._parameters[name] = weakref.ref(parameter)
        self._unplaced.discard(id(parameter))

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


def _recognise(dataset: Any) -> Callable[[Any], bool]:
    """Return a test for this very dataset that does not keep it alive."""
    if hasattr(dataset, "__weakref__"):
        reference = weakref.ref(dataset)
        return lambda other: reference() is other
    if not isinstance(dataset, (list, tuple)):
        return lambda _other: False
    mark = _sequence_mark(dataset)
    return lambda other: isinstance(other, (list, tuple)) and _sequence_mark(other) == mark


def _sequence_mark(dataset: Any) -> tuple[int, ...]:
    """Lists cannot be held weakly: one of the same identity, length and ends is taken for the same."""
    return (id(dataset), len(dataset), *((id(dataset[0]), id(dataset[-1])) if dataset else ()))
