"""Rich, imported so that a training's random numbers stay what they were.

Rich gives its linked styles names from Python's global generator, already when it is imported; in a process that
somebody trains in, that would change every number drawn afterwards. Whoever prints gets Rich from here.
"""

from __future__ import annotations

import random

_state = random.getstate()
from rich.cells import cell_len, set_cell_size  # noqa: E402
from rich.console import Console as RichConsole  # noqa: E402
from rich.console import ConsoleOptions, Group, RenderableType, RenderResult  # noqa: E402
from rich.live import Live  # noqa: E402
from rich.padding import Padding  # noqa: E402
from rich.progress import (  # noqa: E402
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment  # noqa: E402
from rich.table import Table  # noqa: E402
from rich.text import Text  # noqa: E402

random.setstate(_state)


class Console(RichConsole):
    """Rich's console, except that a closed pipe is an OSError like any other."""

    def on_broken_pipe(self) -> None:
        """Called while the BrokenPipeError is handled. Rich would end the process, which may be somebody's training,
        and redirect its standard output."""
        raise


__all__ = [
    "BarColumn",
    "Console",
    "ConsoleOptions",
    "Group",
    "Live",
    "MofNCompleteColumn",
    "Padding",
    "Progress",
    "RenderResult",
    "RenderableType",
    "Segment",
    "SpinnerColumn",
    "Table",
    "TaskID",
    "Text",
    "TextColumn",
    "TimeElapsedColumn",
    "TimeRemainingColumn",
    "cell_len",
    "set_cell_size",
]
