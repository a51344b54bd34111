"""Small files, read and written so that neither a pipe nor a kill does harm."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

from torchdoctor.store.names import TEMPORARY


def open_plain(path: Path) -> int | None:
    """A descriptor for reading, if the path is a plain file: no link, pipe or device. OSError if it cannot be read."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def write_all(descriptor: int, data: Any) -> None:
    view = memoryview(data).cast("B")
    while len(view):
        view = view[os.write(descriptor, view) :]


def replace_file(path: Path, data: bytes) -> None:
    """Write a small file so that readers see the old one or the new one, never a part."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with temporary.open("wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
