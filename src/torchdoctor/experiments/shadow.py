"""In a replay: files that the script writes go to a folder of their own, so that those of the first run stay.

Python's `open` and torch.save are led there, and a file that was written there is read from there; removing and
renaming are left out. What native code writes by itself is not reached.
"""

from __future__ import annotations

import builtins
import io
import os
from pathlib import Path
from typing import Any

WRITING = frozenset("wax+")
REMOVING = ("remove", "unlink", "rename", "replace", "rmdir", "truncate")


class Shadow:
    """`folder` is the replay's own: what lies in it is opened as it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = folder / "written"
        self._aside.mkdir()
        self._written: dict[str, Path] = {}

    def find(self, path: Any, mode: str) -> Any:
        """Where this file is to be opened."""
        if not isinstance(path, str | os.PathLike) or str(os.fspath(path)).startswith(("/dev/", "/proc/")):
            return path
        known = os.path.realpath(os.fspath(path))
        if known.startswith(str(self._folder)):
            return path
        if not WRITING & set(mode):
            return self._written.get(known, path)
        if known not in self._written:
            aside = self._aside / str(len(self._written))
            if "w" not in mode and "x" not in mode and Path(known).is_file():
                aside.write_bytes(Path(known).read_bytes())
            self._written[known] = aside
        return self._written[known]


def keep_files(folder: Path) -> None:
    """From now on in this process."""
    shadow, original = Shadow(folder.resolve()), io.open

    def opening(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return original(shadow.find(file, mode), mode.replace("x", "w"), *args, **kwargs)

    builtins.open = opening  # type: ignore[assignment]
    io.open = opening  # type: ignore[assignment]
    for name in REMOVING:
        setattr(os, name, _unless_ours(getattr(os, name), str(folder.resolve())))
    os.environ.setdefault("WANDB_MODE", "disabled")
    _lead_torch(shadow)


def _unless_ours(original: Any, folder: str) -> Any:
    def change(path: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(path, str | os.PathLike) and os.path.realpath(os.fspath(path)).startswith(folder):
            return original(path, *args, **kwargs)
        return None

    return change


def _lead_torch(shadow: Shadow) -> None:
    from torchdoctor.attach.importing import after_import

    def lead(torch: Any) -> None:
        save, load = torch.save, torch.load
        torch.save = lambda obj, f, *args, **kwargs: save(obj, shadow.find(f, "w"), *args, **kwargs)
        torch.load = lambda f, *args, **kwargs: load(shadow.find(f, "r"), *args, **kwargs)

    after_import("torch", lead)
