"""A bar for what takes more than a moment: on a terminal, on the error stream, and gone when it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import count

from torchdoctor.console import BarColumn, Console, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[], None]
Listener = Callable[[str, int | None, int], None]
"""Gets what is being done, how many parts it has, and how many are done."""
_listeners: list[Listener] = []


@contextlib.contextmanager
def progress_bar(text: str, total: int | None, shown: bool = True) -> Iterator[Advance]:
    """What it gives is called once for each part that is done."""
    if _listeners:
        yield _told(_listeners[-1], text, total)
        return
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield _nothing
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(text, total=total)
        yield lambda: progress.advance(task)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Inside, what bars would show is told to somebody who shows it elsewhere."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def _told(listener: Listener, text: str, total: int | None) -> Advance:
    done = count(1)
    listener(text, total, 0)
    return lambda: listener(text, total, next(done))


def _nothing() -> None:
    pass
