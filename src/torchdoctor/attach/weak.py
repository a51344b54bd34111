"""A weak map by identity, used in place of weakref.WeakKeyDictionary wherever the keys are the script's objects.

It calls nothing of its keys (a module may define `__eq__`), and a key's end runs C code alone: Python code would run
signal handlers, whose exceptions Python drops inside the callback of a weak reference.
"""

from __future__ import annotations

import functools
import weakref
from typing import Generic, TypeVar

V = TypeVar("V")


class IdentityMap(Generic[V]):
    """Values for objects, for as long as the objects live."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[object], V]] = {}

    def __setitem__(self, key: object, value: V) -> None:
        identity = id(key)
        self._entries[identity] = (weakref.ref(key, functools.partial(self._entries.pop, identity)), value)

    def get(self, key: object) -> V | None:
        entry = self._entries.get(id(key))
        return entry[1] if entry is not None else None

    def values(self) -> list[V]:
        return [value for _, value in list(self._entries.values())]

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return id(key) in self._entries


class IdentitySet(IdentityMap[None]):
    """Objects that are still alive."""

    def add(self, key: object) -> None:
        self[key] = None

    def discard(self, key: object) -> None:
        self._entries.pop(id(key), None)
