"""The user's source files, read only below the folders that the user stands in or named.

A run's record may name any path, and leads no further.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

SOURCE_BYTES = 1_000_000
"""A larger source file is not opened."""


def read_lines(file: str, folders: Iterable[str | Path]) -> tuple[str, ...]:
    """Return the lines of a Python file that lies below one of the folders, or none."""
    path = _find(file, tuple(map(str, folders)))
    return tuple(_read(*path).splitlines()) if path is not None else ()


def parse_source(file: str, folders: Iterable[str | Path]) -> ast.Module | None:
    """Return the syntax tree of a Python file below one of the folders, or of a notebook's cell."""
    if file.startswith("<"):
        return _parse("".join(linecache.getlines(file)))
    path = _find(file, tuple(map(str, folders)))
    return _parse(_read(*path)) if path is not None else None


def _find(file: str, folders: tuple[str, ...]) -> tuple[str, int, int] | None:
    """The file's path with its time and size, by which a changed file is read anew."""
    for folder in folders:
        try:
            root = Path(folder).resolve()
            path = (root / file).resolve()
            if not (path.is_relative_to(root) and path.suffix == ".py" and path.is_file()):
                continue
            state = path.stat()
        except (OSError, RuntimeError, ValueError):  # RuntimeError: links in a circle
            continue
        if state.st_size <= SOURCE_BYTES:
            return str(path), state.st_mtime_ns, state.st_size
    return None


@lru_cache(maxsize=32)
def _read(path: str, _changed: int, _size: int) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


@lru_cache(maxsize=32)
def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text) if text.strip() else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
