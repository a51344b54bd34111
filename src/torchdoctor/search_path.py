"""Folders on PYTHONPATH that hold modules of the user's own: we look for our modules there last, the script first.

Importing this module costs nothing and depends on nothing that such a folder could hold.
"""

# pathlib may be one of the user's modules here
# ruff: noqa: PTH100, PTH119, PTH208

from __future__ import annotations

import os
import sys

INSTALLED_IN = ("site-packages", "dist-packages")
SHARED_PACKAGES = frozenset({"numpy", "torch"})
"""A process has one of each; a folder that holds one (a source checkout) provides it to us as well."""

_original: list[str] = []
_own_folders: list[str] = []


def set_aside_own_folders() -> None:
    """Move the user's own folders to the end of sys.path, before anything of ours is imported."""
    if _original:
        return
    own = find_own_folders(sys.path)
    if own:
        _original[:], _own_folders[:] = sys.path, own
        sys.path[:] = [*(entry for entry in sys.path if entry not in own), *own]


def bring_back_own_folders() -> list[str]:
    """Give sys.path the order that python gave it, for the script. Returns the folders that were set aside."""
    own = _own_folders[:]
    if own:
        added = [entry for entry in sys.path if entry not in _original]
        sys.path[:] = [*_original, *added]
    _original.clear()
    _own_folders.clear()
    return own


def find_own_folders(path: list[str]) -> list[str]:
    """Those of a search path that PYTHONPATH names and that no packages are installed in."""
    if sys.flags.ignore_environment:
        return []
    named = {_absolute(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    return [entry for entry in path if _absolute(entry) in named and _holds_own_modules(entry)]


def _absolute(folder: str) -> str:
    """The absolute path, or the path as it is where the current folder has been deleted."""
    try:
        return os.path.abspath(folder)
    except FileNotFoundError:
        return folder


def _holds_own_modules(folder: str) -> bool:
    """Not where packages are installed: what stands there is meant for everybody, us included."""
    if os.path.basename(_absolute(folder)) in INSTALLED_IN:
        return False
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    return not any(name.endswith(".dist-info") or name in SHARED_PACKAGES for name in names)
