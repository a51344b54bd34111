"""Programs that run beside each other do not read each other's files: each has a folder of its own for what it writes.

What is written under the folder in which the program was started (or under the script's own) goes to the same place
under the run's folder, and is found there again: by open, os.stat, os.listdir, torch.load and what is built on them. So
seed 3 never loads the best checkpoint of seed 4. What native code writes by itself, and files elsewhere, are shared.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import io
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torchdoctor.attach.importing import after_import

WRITING = frozenset("wax+")
EVERYWHERE = Path(os.sep)
"""A root that holds all files; devices and what the system tells are none."""
SYSTEM = tuple(Path(name) for name in ("/dev", "/proc", "/sys"))
READERS = ("stat", "lstat", "access", "chmod", "utime")
"""Of the os module, by a path that comes first: of what was written apart, else of what was there."""
REMOVERS = ("remove", "unlink", "rmdir", "truncate")
"""Of what was written apart; what was there before stays for the others, and is only forgotten."""


class Apart:
    """`roots` are the folders whose new files go to `folder`; what lies in `shared`, such as our own records, is left
    where it is."""

    def __init__(self, folder: Path, roots: Sequence[Path], shared: Sequence[Path] = ()) -> None:
        self._folder = os.path.realpath(folder)
        self._roots = [os.path.realpath(root) for root in roots]
        self._shared = [self._folder, *(os.path.realpath(path) for path in shared)]
        self._gone: set[str] = set()
        """what the program has removed, and the others still have"""
        self._own: set[str] = set()
        """files that the program alone can have made, such as locks: they lie, and are removed, where it wants them"""
        self._stat = os.stat

    def other(self, path: Any, listed: bool = False) -> str | None:
        """Where this one would lie apart; None for what is shared, and for a root unless it is to be listed."""
        if not isinstance(path, str | bytes | os.PathLike):
            return None
        text = os.fsdecode(path)
        full = _full(text)
        if full in self._own or any(_inside(full, folder) for folder in self._shared):
            return None
        root = next((r for r in self._roots if _inside(full, r)), None)
        if root is None or (full == root and not listed):
            return None
        return f"{self._folder}{full[len(root.rstrip(os.sep)) :]}"

    def own(self, path: Any) -> None:
        self._own.add(_full(os.fsdecode(path)))

    def find(self, path: Any) -> Any:
        """What is to be read."""
        other = self.other(path)
        if other is None:
            return path
        return other if self.exists(other) or other in self._gone else path

    def make(self, path: Any, copies: bool = False) -> Any:
        """Where it is to be written. `copies`: what was there is read or added to, so it has to be there, too."""
        other = self.other(path)
        if other is None:
            return path
        with contextlib.suppress(OSError):
            _make_parents(other)
        if copies and not self.exists(other) and other not in self._gone and self.exists(path):
            _copy(path, other)
        self._gone.discard(other)
        return other

    def remove(self, path: Any) -> bool:
        """Whether it was only there before, and is forgotten now."""
        other = self.other(path)
        if other is None or other in self._gone or not self.exists(path):
            return False
        self._gone.add(other)
        return not self.exists(other)

    def rename(self, source: Any, target: Any, original: Callable[..., Any]) -> None:
        """What was there before stays for the others, so it is copied."""
        found, other, goal = self.find(source), self.other(source), self.make(target)
        if found is not source or other is None or not Path(source).is_file():
            original(found, goal)
            return
        _copy(source, goal)
        self._gone.add(other)

    def names(self, path: Any, original: Callable[..., Any]) -> list[Any]:
        """What a folder holds: what was there, and what was written apart."""
        other = self.other(path, listed=True)
        found: dict[Any, None] = {}
        for folder in (path, other):
            if folder is not None and self.exists(folder):
                found.update(dict.fromkeys(original(folder)))
        if not found and (other is None or not self.exists(other)):
            return list(original(path))
        return [name for name in found if f"{other}{os.sep}{os.fsdecode(name)}" not in self._gone]

    def entries(self, path: Any, original: Callable[..., Any]) -> Any:
        other = self.other(path, listed=True)
        if other is None or not self.exists(other):
            return original(path)
        found = {entry.name: entry for entry in original(path)} if self.exists(path) else {}
        found.update({entry.name: entry for entry in original(other)})
        return _Entries(entry for name, entry in found.items() if f"{other}{os.sep}{name}" not in self._gone)

    def is_gone(self, path: Any) -> bool:
        return self.other(path) in self._gone

    def exists(self, path: Any) -> bool:
        try:
            self._stat(path)
        except (OSError, ValueError):
            return False
        return True


class _Entries:
    """As os.scandir gives them."""

    def __init__(self, entries: Iterator[Any]) -> None:
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        return self._entries

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def keep_apart(folder: Path, roots: Sequence[Path], shared: Sequence[Path] = ()) -> None:
    """From now on in this process."""
    apart, original = Apart(folder, roots, shared), io.open

    @functools.wraps(original)
    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("opener") is not None:
            return original(file, mode, *args, **kwargs)
        if WRITING & set(mode):
            return original(apart.make(file, copies="a" in mode or "r" in mode), mode, *args, **kwargs)
        return original(apart.find(file), mode, *args, **kwargs)

    builtins.open = opening  # type: ignore[assignment]
    io.open = opening  # type: ignore[assignment]
    for name in READERS:
        _lead(name, lambda call: lambda path, *args, **kwargs: call(apart.find(path), *args, **kwargs))
    for name in REMOVERS:
        _lead(name, lambda call: lambda path, *a, **k: None if apart.remove(path) else call(apart.find(path), *a, **k))
    for name in ("rename", "replace"):
        _lead(name, lambda call: lambda src, dst: apart.rename(src, dst, call))
    _lead("open", lambda call: lambda path, flags, *args: _open(apart, call, path, flags, *args))
    _lead("mkdir", lambda call: lambda path, *args, **kwargs: _make_folder(apart, path, call, *args, **kwargs))
    _lead("symlink", lambda call: lambda src, dst, *args, **kwargs: call(src, apart.make(dst), *args, **kwargs))
    _lead("link", lambda call: lambda src, dst, **kwargs: call(apart.find(src), apart.make(dst), **kwargs))
    _lead("listdir", lambda call: lambda path=".": apart.names(path or ".", call))
    _lead("scandir", lambda call: lambda path=".": apart.entries(path or ".", call))
    # Whole folders are removed by names within descriptors, which go by; else they are removed path by path.
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    after_import("torch", functools.partial(_lead_torch, apart))


def _open(apart: Apart, call: Callable[..., int], path: Any, flags: int, *args: Any) -> int:
    if flags & os.O_EXCL:  # a temporary file or a lock, whose name is nobody else's
        opened = call(path, flags, *args)
        apart.own(path)
        return opened
    if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        return call(apart.make(path, copies=not flags & os.O_TRUNC), flags, *args)
    return call(apart.find(path), flags, *args)


def _make_folder(apart: Apart, path: Any, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """One that is there is there; a new one is made apart, as is one that the program has removed."""
    is_there = apart.other(path) is None or (apart.exists(path) and not apart.is_gone(path))
    call(path if is_there else apart.make(path), *args, **kwargs)


def _lead(name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """A call that names a folder by its descriptor goes by as it is."""
    original = getattr(os, name)
    led = wrap(original)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if any(kwargs.get(key) is not None for key in ("dir_fd", "src_dir_fd", "dst_dir_fd")):
            return original(*args, **kwargs)
        return led(*args, **{key: value for key, value in kwargs.items() if not key.endswith("dir_fd")})

    for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if original in able:
            able.add(call)
    setattr(os, name, call)


def _copy(path: Any, other: Any) -> None:
    with io.FileIO(path) as source, io.FileIO(other, "w") as target:
        while block := source.read(1 << 20):
            target.write(block)


def _lead_torch(apart: Apart, torch: Any) -> None:
    save, load = torch.save, torch.load

    @functools.wraps(save)
    def saving(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        return save(obj, apart.make(f), *args, **kwargs)

    @functools.wraps(load)
    def loading(f: Any, *args: Any, **kwargs: Any) -> Any:
        return load(apart.find(f), *args, **kwargs)

    torch.save, torch.load = saving, loading


def _make_parents(path: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)


def _full(text: str) -> str:
    return os.path.normpath(text if text.startswith(os.sep) else f"{Path.cwd()}{os.sep}{text}")


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip(os.sep)}{os.sep}")
