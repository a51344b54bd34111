"""Several optimizers in one loop: do they step together after one backward, one stage after the other, or by turns?"""

from __future__ import annotations

from typing import Any


class Turns:
    """A group is what steps after the same backward, or after none since the group before."""

    def __init__(self) -> None:
        self.count = 0
        """updates: groups of steps"""
        self._groups: list[set[int]] = []
        """each different from the one before"""
        self._group: set[int] = set()
        self._backwards = -1

    def stepped(self, optimizer: Any, backwards: int) -> None:
        """`backwards`: so many were made before it."""
        if backwards != self._backwards or id(optimizer) in self._group:
            self._close()
            self.count += 1
            self._group, self._backwards = set(), backwards
        self._group.add(id(optimizer))

    def _close(self) -> None:
        if self._group and (not self._groups or self._groups[-1] != self._group):
            self._groups.append(self._group)

    def _known(self) -> list[set[int]]:
        """With the group that is under way, unless it is still being filled up to the one before."""
        last = self._groups[-1] if self._groups else set()
        return self._groups if not self._group or self._group <= last else [*self._groups, self._group]

    @property
    def are_taken(self) -> bool:
        """One has stepped without another, and with it or after it again: stages come once."""
        groups = self._known()
        return any(groups[i] & later for i in range(len(groups)) for later in groups[i + 1 :])

    def is_at_work(self, optimizer: Any) -> bool:
        groups = self._known()
        return bool(groups) and id(optimizer) in groups[-1]
