"""Cases that do not repeat themselves bare either, each with its reason; they are listed, not counted."""

from __future__ import annotations

NOT_REPEATABLE = {
    "style signal SIGINT": "the interrupted line, and so the traceback, differs from one bare run to the next",
    "style trains in a daemon thread, main ends": "how far the thread gets within its second differs",
}


def failing_bare(name: str) -> str | None:
    """Return why a case may fail without us being the reason, or None."""
    return NOT_REPEATABLE.get(name)
