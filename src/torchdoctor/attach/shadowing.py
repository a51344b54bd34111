"""Modules beside the script that have the name of one that we need: each side imports its own.

`html.py` beside train.py, or in a folder of PYTHONPATH, stands in for the standard library's in everything that the
script imports, and so it should. What we import ourselves is looked for where it would be without these folders: inside
of `own_modules`, sys.path and sys.modules are as if they were not there. Where no name is taken, nothing is exchanged.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
from types import ModuleType

import torchdoctor
from torchdoctor.search_path import SHARED_PACKAGES, find_own_folders

STARTUP_MODULES = frozenset(
    (
        *("abc", "builtins", "codecs", "encodings", "genericpath", "io", "marshal", "ntpath", "os", "posixpath"),
        *("site", "sitecustomize", "stat", "sys", "time", "usercustomize", "zipimport"),
    )
)
"""What python imports before any script: it never sees a file of such a name beside the script."""
COMMANDS = frozenset({"__main__", "cli", "lab", "observer", "ui", "view", "zoo"})
"""Modules of ours that never run in the process of a script."""


class _Shadowed:
    """The names that the user's folders hide from us, and the modules that we imported under them."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._folders: list[str] = []
        self._path: list[str] = []
        self._other: dict[str, ModuleType] = {}
        self._depth = 0
        self._lock = threading.RLock()

    def hide(self, folders: list[str], path: list[str], *, is_running: bool = False) -> None:
        """Let the script import the modules in these folders; `path` is where ours come from, and from the folders only
        what is nowhere else. Of a script that `is_running` the modules that are there are its own."""
        elsewhere = [entry for entry in path if entry not in folders]
        self.names = frozenset(name for folder in folders for name in _find_shadowed(folder, elsewhere))
        self._folders, self._path = folders, [*elsewhere, *(entry for entry in path if entry in folders)]
        self._other = {} if is_running else self._take_out()

    @contextlib.contextmanager
    def exchanged(self) -> Iterator[None]:
        """For imports of ours while the script runs, and for all that we do once it has ended."""
        if not self.names:
            yield
            return
        with self._lock:
            before, self._depth = sys.path[:], self._depth + 1
            try:
                if self._depth == 1:
                    self._exchange()
                    added = (entry for entry in before if entry not in self._folders and entry not in self._path)
                    sys.path[:] = [*self._path, *added]
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._exchange()
                    sys.path[:] = before

    def _exchange(self) -> None:
        taken_out = self._take_out()
        sys.modules.update(self._other)
        self._other = taken_out

    def _take_out(self) -> dict[str, ModuleType]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in self.names}


_SHADOWED = _Shadowed()
hide_own_modules = _SHADOWED.hide
own_modules = _SHADOWED.exchanged


def hide_from_running_script() -> None:
    """The same in a process that the script has begun in without us: its folder is the first on sys.path."""
    first = 0 if getattr(sys.flags, "safe_path", False) else 1
    folders = [*sys.path[:first], *find_own_folders(sys.path[first:])]
    _SHADOWED.hide(folders, sys.path[first:], is_running=True)


def import_early(*packages: str) -> None:
    """Where names are shadowed, import these packages of ours, or all of them, before they are needed: they import
    many of their parts in functions, which run among the script's own modules."""
    if not _SHADOWED.names:
        return
    with own_modules():
        for module in pkgutil.walk_packages(torchdoctor.__path__, "torchdoctor."):
            top = module.name.split(".")[1]
            if top in packages or (not packages and top not in COMMANDS and not module.name.endswith("startup")):
                with contextlib.suppress(Exception):  # where one is needed, it fails again
                    importlib.import_module(module.name)


def _find_shadowed(folder: str, path: list[str]) -> Iterator[str]:
    elsewhere = set().union(*map(_names_in, path))
    for name in sorted((_names_in(folder) & elsewhere) - STARTUP_MODULES - SHARED_PACKAGES - {"torchdoctor"}):
        if BuiltinImporter.find_spec(name) or FrozenImporter.find_spec(name):
            continue  # python looks for those in no folder
        theirs, ours = PathFinder.find_spec(name, [folder]), PathFinder.find_spec(name, path)
        if theirs and theirs.loader and ours and theirs.origin != ours.origin:
            yield name


def _names_in(folder: str) -> set[str]:
    try:
        return {entry.partition(".")[0] for entry in os.listdir(folder or ".")}  # noqa: PTH208 - names alone
    except OSError:
        return set()
