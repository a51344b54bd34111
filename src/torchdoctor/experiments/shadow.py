"""In a replay: files that the script writes go to a folder of their own, so that those of the first run stay.

Python's `open`, torch.save and safetensors are led there, and a file that was written there is read from there, under
its new name once it is renamed. Files of the first run are neither removed nor renamed. What other native code writes
by itself is not reached.
"""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITING = frozenset("wax+")
REMOVING = ("remove", "unlink", "rmdir", "truncate")
RENAMING = ("rename", "replace")
LOOKING = ("stat", "access", "chmod", "utime")
"""What is asked of a file that was written is asked of the one that was written aside."""


class Shadow:
    """`folder` is the replay's own: what lies in it is opened as it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = folder / "written"
        self._aside.mkdir()
        self._written: dict[str, Path] = {}
        self._count = 0

    def find(self, path: Any, mode: str) -> Any:
        """Where this file is to be opened."""
        if not isinstance(path, str | os.PathLike) or str(os.fspath(path)).startswith(("/dev/", "/proc/")):
            return path
        known = os.path.realpath(os.fspath(path))
        if self.is_ours(known):
            return path
        if not WRITING & set(mode):
            return self._written.get(known, path)
        if known not in self._written:
            self._count += 1
            aside = self._aside / str(self._count)
            if "w" not in mode and "x" not in mode and Path(known).is_file():
                aside.write_bytes(Path(known).read_bytes())
            self._written[known] = aside
        return self._written[known]

    def written(self, path: Any) -> Any:
        """Where a file that was written is, and what else there is where it is."""
        if not self._written or not isinstance(path, str | os.PathLike):
            return path
        return self._written.get(os.path.realpath(os.fspath(path)), path)

    def forget(self, path: Any) -> None:
        """It was removed."""
        if isinstance(path, str | os.PathLike):
            self._written.pop(os.path.realpath(os.fspath(path)), None)

    def is_ours(self, path: Any) -> bool:
        """It lies in the replay's own folder."""
        is_path = isinstance(path, str | os.PathLike)
        return is_path and Path(os.path.realpath(os.fspath(path))).is_relative_to(self._folder)

    def rename(self, old: Any, new: Any) -> bool:
        """Whether it was ours to do: a file that was written aside is known by its new name from now on, and one of the
        first run stays where it is. Between files of the replay's own it is left to the system."""
        source, target = (os.path.realpath(os.fspath(path)) for path in (old, new))
        if self.is_ours(source) and self.is_ours(target):
            return False
        aside = self._written.pop(source, Path(source) if self.is_ours(source) else None)
        self._written = {name: path for name, path in self._written.items() if path != aside}
        if aside is not None:
            self._written[target] = aside
        return True


def keep_files(folder: Path, made: Callable[[str], None] | None = None) -> None:
    """From now on in this process. `made` is told of every folder that is made elsewhere: it is made, as what follows
    may look for it."""
    shadow, original = Shadow(folder.resolve()), io.open

    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return original(shadow.find(file, mode), mode.replace("x", "w"), *args, **kwargs)

    builtins.open = opening  # type: ignore[assignment]
    io.open = opening  # type: ignore[assignment]
    for name in REMOVING:
        setattr(os, name, _if_ours(getattr(os, name), shadow))
    for name in RENAMING:
        setattr(os, name, _renaming(getattr(os, name), shadow))
    for name in LOOKING:
        setattr(os, name, _led(getattr(os, name), shadow.written))
    if made is not None:
        os.mkdir = _telling(os.mkdir, shadow, made)  # type: ignore[assignment]
    os.environ.setdefault("WANDB_MODE", "disabled")
    _lead_torch(shadow)


def _if_ours(original: Any, shadow: Shadow) -> Any:
    def change(path: Any, *args: Any, **kwargs: Any) -> Any:
        if shadow.is_ours(path):
            return original(path, *args, **kwargs)
        return shadow.forget(path)

    return change


def _led(original: Any, lead: Callable[[Any], Any]) -> Any:
    def call(path: Any, *args: Any, **kwargs: Any) -> Any:
        return original(lead(path), *args, **kwargs)

    return call


def _telling(original: Any, shadow: Shadow, made: Callable[[str], None]) -> Any:
    def make(path: Any, *args: Any, **kwargs: Any) -> None:
        original(path, *args, **kwargs)
        if "dir_fd" not in kwargs and not shadow.is_ours(path):
            made(os.path.realpath(os.fsdecode(path)))

    return make


def _renaming(original: Any, shadow: Shadow) -> Any:
    def change(src: Any, dst: Any, **kwargs: Any) -> Any:
        return None if shadow.rename(src, dst) else original(src, dst, **kwargs)

    return change


def _lead_torch(shadow: Shadow) -> None:
    from torchdoctor.attach.importing import after_import

    def lead(torch: Any) -> None:
        save, load = torch.save, torch.load
        torch.save = lambda obj, f, *args, **kwargs: save(obj, shadow.find(f, "w"), *args, **kwargs)
        torch.load = lambda f, *args, **kwargs: load(shadow.find(f, "r"), *args, **kwargs)

    def lead_safetensors(module: Any) -> None:
        write, read = module.serialize_file, module.safe_open
        module.serialize_file = lambda tensors, filename, *args, **kwargs: write(
            tensors, shadow.find(filename, "w"), *args, **kwargs
        )
        module.safe_open = lambda filename, *args, **kwargs: read(shadow.written(filename), *args, **kwargs)

    after_import("torch", lead)
    after_import("safetensors.torch", lead_safetensors)
