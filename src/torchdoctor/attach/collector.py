"""Python's garbage collector rests while we import and compile: with torch loaded, a collection costs 0.1 s."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_FROZEN = gc.get_freeze_count()
"""Newer Pythons freeze some objects of their own when they start."""
_resting = False


@contextmanager
def collector_rests() -> Iterator[None]:
    """No collection inside; the first one after it deals with what is new."""
    global _resting
    if _resting or not gc.isenabled():
        yield
        return
    try:
        _resting = True
        gc.disable()
        yield
    finally:
        _wake()


def _wake() -> None:
    """Also in a child that another thread of the script has forked meanwhile."""
    global _resting
    if _resting:
        _resting = False
        gc.enable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_wake)


def keep_for_good() -> None:
    """What exists now counts as old, so that it does not bring the next full collection nearer. For the time at which
    torch has just been imported, and the script has no garbage yet."""
    if gc.get_freeze_count() <= _FROZEN:
        gc.freeze()
        gc.unfreeze()
