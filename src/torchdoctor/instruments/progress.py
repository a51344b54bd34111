"""A bar for what takes more than a moment: on a terminal, on the error stream, and gone when it is done."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Advance = Callable[[], None]


@contextlib.contextmanager
def progress_bar(text: str, total: int | None, shown: bool = True) -> Iterator[Advance]:
    """What it gives is called once for each part that is done."""
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield _nothing
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(text, total=total)
        yield lambda: progress.advance(task)


def _nothing() -> None:
    pass
