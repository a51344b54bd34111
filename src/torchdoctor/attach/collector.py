"""Python's garbage collector rests while we import and compile: with torch loaded, a collection costs 0.1 s."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_rests() -> Iterator[None]:
    """No collection inside; the first one after it deals with what is new."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def keep_for_good() -> None:
    """What exists now counts as old, so that it does not bring the next full collection nearer. For the time at which
    torch has just been imported, and the script has no garbage yet."""
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()
