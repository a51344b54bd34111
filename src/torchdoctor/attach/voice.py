"""What torchdoctor says while a script runs: whole lines on the standard error, and never an exception."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import Any, TextIO

from torchdoctor.findings import Finding
from torchdoctor.opening import identity_of

REST_OF_LINE = "\x1b[K"
DESCRIPTOR = 2
_AT_START = identity_of(DESCRIPTOR)


def standard_error() -> TextIO | None:
    """The stream that was the standard error before the script could replace it. A script that closed the stream has
    left its descriptor open: it is used as long as it stands for the same file."""
    stream = sys.__stderr__
    if stream is None or not stream.closed:
        return stream
    if _AT_START is None or identity_of(DESCRIPTOR) != _AT_START:
        return None
    return open(DESCRIPTOR, "w", encoding=stream.encoding, errors="backslashreplace", closefd=False)


def say(text: str) -> None:
    """One line on the standard error."""
    stream = standard_error()
    if stream is None:
        return
    line = f"torchdoctor: {_one_line(text)}"
    with contextlib.suppress(Exception):
        console = _drawing_console()
        if console is not None:
            console.print(line, markup=False, highlight=False, emoji=False, soft_wrap=True)
        elif _bars_are_drawn():
            sys.modules["tqdm"].tqdm.write(line, file=stream)
        else:
            stream.write(f"{_own_line(stream)}{line}\n")
        stream.flush()


def announce(finding: Finding) -> None:
    """A finding in a run that still trains."""
    since = f", since step {finding.first_step:,}" if finding.first_step else ""
    say(f"{finding.severity.value}: {finding.title} ({finding.name}{since})")


def point_to_view(directory: Path) -> None:
    """How to look at the run while it trains: from another terminal, since this one is the script's. The path is whole,
    because that terminal may be in another folder. Nobody opens one for a log file."""
    stream = standard_error()
    if stream is not None and stream.isatty():
        say(f"to watch it, in another terminal: {shlex.join(['torchdoctor', 'top', str(directory)])}")


def _own_line(stream: TextIO) -> str:
    """What leads to a line of our own on a terminal whose cursor may stand behind something, such as the first half of
    a line that is still being printed: nothing of it is wiped. As many blanks as the terminal has columns end on the
    next row, unless they began on an empty one, which they then fill to its end without leaving it."""
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return ""
    return f"{' ' * columns}\r{REST_OF_LINE}" if columns else ""


def _one_line(text: str) -> str:
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


def _drawing_console() -> Any:
    """The one on whose terminal Rich draws bars or tables of the script (Lightning's are): it alone knows how to write
    above them, anything else leaves torn rows behind. None where nothing is drawn."""
    console = getattr(sys.modules.get("rich"), "_console", None)
    drawn = getattr(console, "_live_stack", None) or getattr(console, "_live", None)
    return console if drawn and console is not None and console.is_terminal else None


def _bars_are_drawn() -> bool:
    bars = getattr(getattr(sys.modules.get("tqdm"), "tqdm", None), "_instances", None)
    return bool(bars)
