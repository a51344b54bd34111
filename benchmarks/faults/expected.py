"""Cases that do not repeat themselves bare either, which are listed and not counted; and what is known and not mended."""

from __future__ import annotations

NOT_REPEATABLE = {
    "style signal SIGINT": "the interrupted line, and so the traceback, differs from one bare run to the next",
    "style trains in a daemon thread, main ends": "how far the thread gets within its second differs",
}

KNOWN = {
    "style faulthandler abort": "faulthandler writes every frame of the process, and every extension module that it has "
    "loaded: the one frame of ours below the script, and the modules of pyarrow",
}


def failing_bare(name: str) -> str | None:
    """Return why a case may fail without us being the reason, or None."""
    return NOT_REPEATABLE.get(name)
