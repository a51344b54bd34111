"""While the user's own code saves or loads a checkpoint: what it writes goes to a folder of ours, whatever its path.

Nothing is trained and no loader is walked through meanwhile: code that would do so is not what was looked for.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from torchdoctor.attach.places import is_user_file
from torchdoctor.checks.repeats.training_state import OPTIMIZER, SCALER, SCHEDULE, WEIGHTS

SUFFIXES = (".pt", ".pth", ".ckpt", ".tar", ".bin", ".pkl", ".chkpt", ".model", ".safetensors")
DEPTH, ITEMS = 3, 20_000


class NotWantedError(BaseException):
    """The code goes on to train, or to walk through data; no handler of the user's is to catch it."""


@dataclass(frozen=True)
class Saved:
    """A file that was written, under the name that the user's code gave it."""

    name: str
    file: Path
    holds: frozenset[str]


@dataclass
class Redirection:
    """`files` are what was saved before; a load of another name gets the one of that number."""

    folder: Path
    files: list[Saved] = field(default_factory=list)
    number: int = 0
    read: list[Saved] = field(default_factory=list)
    """what was loaded"""
    made: set[str] = field(default_factory=set)
    """OPTIMIZER, SCHEDULE: kinds of which a new object was made, so that the old one need not hold what was loaded"""
    _led: dict[int, Callable[..., Any]] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """For whoever asks for one."""
        return str(self.files[self.number].file if self.files else self.folder / "checkpoint.pt")

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """In this thread."""
        with contextlib.ExitStack() as undo:
            put = functools.partial(self._put, undo, threading.get_ident())
            put(torch, "save", self._saving(torch.serialization.save))
            put(torch, "load", self._loading(torch.serialization.load))
            for module in filter(None, [sys.modules.get("safetensors.torch")]):
                put(module, "save_file", self._saving(module.save_file))
                put(module, "load_file", self._loading(module.load_file))
            put(os, "stat", self._looking(os.stat))
            put(os, "mkdir", self._making(os.mkdir))
            put(torch.autograd, "backward", _refuse)
            put(DataLoader, "__iter__", _refuse)
            put(Optimizer, "__init__", self._noting(OPTIMIZER, Optimizer.__init__))
            put(LRScheduler, "__init__", self._noting(SCHEDULE, LRScheduler.__init__))
            yield

    def _put(
        self, undo: contextlib.ExitStack, thread: int, holder: Any, name: str, instead: Callable[..., Any]
    ) -> None:
        original = getattr(holder, name)

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            return (instead if threading.get_ident() == thread else original)(*args, **kwargs)

        self._led[id(original)] = call
        importers = _importers(name, original) if isinstance(holder, ModuleType) else []
        for owner in (holder, *importers):
            setattr(owner, name, call)
            undo.callback(setattr, owner, name, original)

    def names(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """The same, with what was imported by its own name (`from torch import save`) led, too."""
        return {name: self._led.get(id(value), value) for name, value in names.items()}

    def _saving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def save(obj: Any, f: Any = None, *args: Any, **kwargs: Any) -> None:
            f = kwargs.pop("filename", f)
            file = self.folder / f"{len(self.files)}.pt"
            original(obj, str(file), *args, **kwargs)
            self.files.append(Saved(_name(f), file, frozenset(kinds_in(obj))))

        return save

    def _loading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def load(f: Any = None, *args: Any, **kwargs: Any) -> Any:
            f = kwargs.pop("filename", f)
            saved = self._find(_name(f))
            self.read.append(saved)
            return original(str(saved.file), *args, **kwargs)

        return load

    def _find(self, name: str) -> Saved:
        same = [s for s in self.files if s.name == name]
        alike = [s for s in self.files if name and Path(s.name).name == Path(name).name]
        return [*same, *alike, self.files[self.number]][0]

    def _looking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A checkpoint that the user's code looks for is there."""

        def stat(path: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(path, *args, **kwargs)
            except FileNotFoundError:
                name = _name(path)
                if self.files and (name.endswith(SUFFIXES) or name in {s.name for s in self.files}):
                    return original(self._find(name).file)
                raise

        return stat

    def _making(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
            if _name(path).startswith(str(self.folder)):
                original(path, *args, **kwargs)

        return mkdir

    def _noting(self, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def made(new: Any, *args: Any, **kwargs: Any) -> None:
            original(new, *args, **kwargs)
            self.made.add(kind)

        return made


def kinds_in(value: Any, depth: int = DEPTH) -> set[str]:
    """Which states what is saved holds."""
    if isinstance(value, nn.Module | Tensor):
        return {WEIGHTS}
    if isinstance(value, Optimizer):
        return {OPTIMIZER}
    if isinstance(value, LRScheduler):
        return {SCHEDULE}
    if isinstance(value, list | tuple):
        return set().union(*(kinds_in(v, depth - 1) for v in value[:ITEMS])) if depth else set()
    if not isinstance(value, Mapping):
        return set()
    if "param_groups" in value and "state" in value:
        return {OPTIMIZER}
    if "last_epoch" in value or "_step_count" in value:
        return {SCHEDULE}
    if "growth_factor" in value and "scale" in value:
        return {SCALER}
    return set().union(*(kinds_in(v, depth - 1) for v in list(value.values())[:ITEMS])) if depth else set()


def _refuse(*_args: Any, **_kwargs: Any) -> None:
    raise NotWantedError


def _name(path: Any) -> str:
    try:
        return os.fsdecode(path)
    except TypeError:
        return ""


def _importers(name: str, function: Any) -> list[ModuleType]:
    """Modules of the user's that hold it under its own name."""
    return [
        module
        for module in list(sys.modules.values())
        if isinstance(module, ModuleType)
        and vars(module).get(name) is function
        and is_user_file(getattr(module, "__file__", None) or "<frozen>")
    ]
