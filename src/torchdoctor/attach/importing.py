"""Call back once a module has been imported, and leave no trace in how it is imported.

The import goes through the finder and the loader that it would go through anyway, with no frame of ours on the
stack: only the spec gets a class of its own for the time of the import, which notices when the import system
marks the module as done. A module that fails to import is waited for again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from torchdoctor.attach.shadowing import own_modules

Callback = Callable[[ModuleType], None]
"""It must not raise: whatever it raises ends up in the user's import statement."""


class Finder:
    """Stands first in sys.meta_path, and has an answer only for the modules that somebody waits for."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callback]] = {}

    def wait(self, name: str, callback: Callback) -> None:
        self._waiting.setdefault(name, []).append(callback)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._waiting:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                self.mark(spec)
                return spec
        return None

    def mark(self, spec: ModuleSpec) -> None:
        """Have the spec tell when its module is complete."""
        kind = type(spec)
        if issubclass(kind, _Noticing):
            return
        spec.__class__ = type(kind.__name__, (_Noticing, kind), {"finder": self, "plain": kind})

    def imported(self, name: str, module: ModuleType) -> None:
        with own_modules():
            for callback in self._waiting.pop(name, ()):
                callback(module)


class _Noticing:
    """Mixed into a spec's class: `_initializing` is what importlib sets while the module's code runs."""

    finder: Finder
    plain: type[ModuleSpec]
    name: str

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__.get("_initializing", False))

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        was, self.__dict__["_initializing"] = self._initializing, value
        if was and not value:
            finder = self.finder
            self.__class__ = self.plain  # type: ignore[assignment]
            module = sys.modules.get(self.name)
            if module is not None and getattr(module, "__spec__", None) is self:
                finder.imported(self.name, module)


_FINDER = Finder()


def after_import(name: str, callback: Callback) -> None:
    """Call back with the module once it is imported: now if it is, else when its first import is complete."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        callback(module)
        return
    _FINDER.wait(name, callback)
    if isinstance(spec, ModuleSpec):
        _FINDER.mark(spec)
