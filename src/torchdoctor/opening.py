"""Files that somebody else may have put there are opened so that neither a link nor a pipe does harm."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def open_plain(path: Path) -> int | None:
    """A descriptor for reading, if the path is a plain file: no link, pipe or device. OSError if it cannot be read."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None
