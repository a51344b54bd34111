"""File and line in the user's own code: the innermost frame that is neither ours, torch's nor a library's."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from functools import lru_cache
from types import FrameType
from typing import NamedTuple

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - frames hold strings
_LIBRARIES = tuple(
    {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_TRANSPARENT = ("torch", "accelerate", "torchdoctor")
"""Packages whose calls the user makes: torch itself, and wrappers that pass a call on."""
_ZOO = os.path.join(_OWN, "zoo")  # noqa: PTH118 - our example scripts are user code


class Place(NamedTuple):
    file: str
    line: int
    library: str | None = None
    """the installed package whose code made the call, below that line; None where the user's own code did"""

    @property
    def code(self) -> str:
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"  # noqa: PTH119


@lru_cache(maxsize=4096)
def is_user_file(file: str) -> bool:
    if file.startswith("<"):
        return file in ("<string>", "<stdin>") or file.startswith("<ipython")
    path = os.path.realpath(file)
    if path.startswith(_ZOO):
        return True
    return not (path.startswith((_OWN, *_LIBRARIES)) or "site-packages" in path or "dist-packages" in path)


@lru_cache(maxsize=4096)
def library_of(file: str) -> str | None:
    """Return the installed package that a file belongs to; None for the user's files, Python, torch and wrappers."""
    for folder in ("site-packages", "dist-packages"):
        _, found, inside = file.rpartition(f"{os.sep}{folder}{os.sep}")
        if found and not is_user_file(file) and not is_own(os.path.realpath(file)):
            package = inside.partition(os.sep)[0].removesuffix(".py")
            return None if package in _TRANSPARENT else package
    return None


def is_own(path: str) -> bool:
    """A file of ours; the example scripts count as the user's."""
    return path.startswith(_OWN) and not path.startswith(_ZOO)


def caller(frame: FrameType | None = None) -> Place | None:
    """The innermost user frame above us, or None if the loop runs wholly inside libraries."""
    frame = frame or sys._getframe(1)
    library: str | None = None
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return Place(frame.f_code.co_filename, frame.f_lineno, library)
        library = library or library_of(frame.f_code.co_filename)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def applier() -> Place | None:
    """As `caller`, but where the user's function was handed to `Module.apply`, the line that did so."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    own, outer = frame, frame.f_back if frame is not None else None
    while outer is not None and _is_apply(outer):
        outer = outer.f_back
    return caller(outer if own is not None and outer is not own.f_back else own)


def _is_apply(frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name == "apply" and code.co_filename.endswith(os.path.join("torch", "nn", "modules", "module.py"))  # noqa: PTH118


def direct_caller() -> Place | None:
    """The frame that called into us, if it is the user's own code and no library stands between."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or not is_user_file(frame.f_code.co_filename):
        return None
    return Place(frame.f_code.co_filename, frame.f_lineno)


def from_traceback(lines: list[str]) -> Place | None:
    """The innermost user line of a formatted stack, as autograd's metadata keeps it."""
    for entry in reversed(lines):
        head = entry.split("\n", 1)[0].strip()
        if not head.startswith('File "'):
            continue
        file, _, rest = head[len('File "') :].partition('"')
        number = rest.removeprefix(", line ").split(",", 1)[0]
        if number.isdigit() and is_user_file(file):
            return Place(file, int(number))
    return None
