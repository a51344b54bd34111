"""In a replay: files that the script writes go to a folder of their own, so that those of the first run stay.

Python's `open` and torch.save are led there, and a file that was written there is read from there, under its new name
once it is renamed. Files of the first run are neither removed nor renamed. What native code writes by itself (as
safetensors does) is not reached.
"""

from __future__ import annotations

import builtins
import io
import os
from pathlib import Path
from typing import Any

WRITING = frozenset("wax+")
REMOVING = ("remove", "unlink", "rmdir", "truncate")
RENAMING = ("rename", "replace")


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


def keep_files(folder: Path) -> None:
    """From now on in this process."""
    shadow, original = Shadow(folder.resolve()), io.open

    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return original(shadow.find(file, mode), mode.replace("x", "w"), *args, **kwargs)

    builtins.open = opening  # type: ignore[assignment]
    io.open = opening  # type: ignore[assignment]
    for name in REMOVING:
        setattr(os, name, _if_ours(getattr(os, name), shadow))
    for name in RENAMING:
        setattr(os, name, _renaming(getattr(os, name), shadow))
    os.environ.setdefault("WANDB_MODE", "disabled")
    _lead_torch(shadow)


def _if_ours(original: Any, shadow: Shadow) -> Any:
    def change(path: Any, *args: Any, **kwargs: Any) -> Any:
        return original(path, *args, **kwargs) if shadow.is_ours(path) else None

    return change


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

    after_import("torch", lead)
