"""Paths and descriptors that other programs may have changed: deleted, replaced by a link or a pipe, or closed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
"""Flag of os.open by which a symbolic link is refused: in a folder that others may write to, it could lead anywhere."""


NOWHERE = Path(os.devnull, "deleted folder")
"""Stands for a current folder that has been deleted: no file can be below it."""


def current_folder() -> Path:
    """The current folder, or NOWHERE."""
    try:
        return Path.cwd()
    except OSError:
        return NOWHERE


def absolute(path: str | os.PathLike[str]) -> Path:
    """`Path.absolute` that does not raise in a deleted current folder."""
    return current_folder() / path


def open_plain(path: Path) -> int | None:
    """A descriptor for reading, if the path is a plain file: no link, pipe or device. OSError if it cannot be read."""
    descriptor = os.open(path, os.O_RDONLY | NO_LINK | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def identity_of(descriptor: int) -> tuple[int, int] | None:
    """The file that a descriptor stands for; None where it is closed. A script that closes files which are not its own
    may have given the number to another one."""
    try:
        found = os.fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino
