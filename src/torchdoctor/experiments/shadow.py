"""In a replay: files that the script writes go to a folder of their own, so that those of the first run stay.

Python's `open`, torch.save and safetensors are led there, and a file that was written there is read from there, under
its new name once it is renamed. Files of the first run are neither removed nor renamed. What other native code writes
by itself is not reached; temporary files, and what compilers keep, are real ones in a folder that goes with the replay.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITING = frozenset("wax+")
REMOVING = ("remove", "unlink", "rmdir", "truncate")
RENAMING = ("rename", "replace")
LOOKING = ("stat", "access", "chmod", "utime")
"""What is asked of a file that was written is asked of the one that was written aside."""
CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Folders of which compilers, as other processes, read what was written."""


class Shadow:
    """`folder` is the replay's own: what lies in it is opened as it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = folder / "written"
        self._aside.mkdir()
        self._written: dict[str, Path] = {}
        self._links: dict[str, str] = {}
        """where they lead; only what is read goes by them"""
        self._gone: set[str] = set()
        """of the first run, which the script has removed and others still have"""
        self._own: set[str] = set()
        """files that the script alone can have made, such as locks: real ones, that it may remove"""
        self._count = 0

    def find(self, path: Any, mode: str) -> Any:
        """Where this file is to be opened."""
        known = self._name(path)
        if known is None or os.fsdecode(path).startswith(("/dev/", "/proc/")) or self.is_ours(path):
            return path
        if not WRITING & set(mode):
            return self.written(path)
        self._links.pop(known, None)
        if known not in self._written:
            aside = self._next()
            if "w" not in mode and "x" not in mode and known not in self._gone and Path(known).is_file():
                aside.write_bytes(Path(known).read_bytes())
            self._written[known] = aside
        self._gone.discard(known)
        return self._written[known]

    def written(self, path: Any) -> Any:
        """Where a file that was written is, and what else there is where it is."""
        known = self._name(path)
        if known is None:
            return path
        known = self._links.get(known, known)
        if known in self._written:
            return self._written[known]
        return self._aside / "gone" if known in self._gone else path

    def remove(self, path: Any) -> None:
        """For the script."""
        known = self._name(path)
        if known is not None:
            self._gone.add(known)
            self._written.pop(known, None)
            self._links.pop(known, None)

    def come_back(self, path: Any) -> bool:
        """Whether it is a folder that the script has removed: it is there again."""
        known = self._name(path)
        if known not in self._gone:
            return False
        self._gone.discard(known)
        return Path(known).is_dir()

    def own(self, path: Any) -> None:
        self._own.add(os.path.realpath(os.fsdecode(path)))

    def is_ours(self, path: Any) -> bool:
        """It lies in the replay's own folder, or can be nobody else's."""
        known = self._name(path)
        return known is not None and (known in self._own or Path(known).is_relative_to(self._folder))

    def link(self, source: Path, target: Any) -> None:
        """Only for the script: what is read by the one name is what the other is."""
        known = self._name(target)
        if known is not None and not Path(os.fsdecode(target)).is_symlink():
            self._links[known] = os.path.realpath(source)

    def rename(self, old: Any, new: Any) -> bool:
        """Whether it was ours to do: a file that was written aside is known by its new name from now on, and one of the
        first run stays where it is. Between files of the replay's own it is left to the system."""
        source, target = (os.path.realpath(os.fsdecode(path)) for path in (old, new))
        if self.is_ours(source) and self.is_ours(target):
            return False
        aside = self._written.pop(source, Path(source) if self.is_ours(source) else None)
        if source in self._own:
            aside = self._next()
            shutil.move(source, aside)
            self._own.discard(source)
        self._written = {name: path for name, path in self._written.items() if path != aside}
        if aside is not None:
            self._written[target] = aside
            self._gone.discard(target)
        return True

    def _name(self, path: Any) -> str | None:
        return os.path.realpath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else None

    def _next(self) -> Path:
        self._count += 1
        return self._aside / str(self._count)


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
    os.open = _opening(os.open, shadow)
    os.symlink = _linking(shadow, symbolic=True)
    os.link = _linking(shadow, symbolic=False)
    os.mkdir = _making(os.mkdir, shadow, made)  # type: ignore[assignment]
    # Whole folders are removed by names within descriptors, which say nothing; else they are removed path by path.
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    os.environ.setdefault("WANDB_MODE", "disabled")
    _keep_temporary(folder.resolve() / "t")
    _lead_torch(shadow)


def _keep_temporary(folder: Path) -> None:
    folder.mkdir()
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    os.environ.update({name: str(folder / name.lower()) for name in CACHES})


def _if_ours(original: Any, shadow: Shadow) -> Any:
    def change(path: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dir_fd") is not None:
            return None
        return original(path, *args, **kwargs) if shadow.is_ours(path) else shadow.remove(path)

    return change


def _opening(original: Any, shadow: Shadow) -> Any:
    def opening(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if kwargs.get("dir_fd") is not None or flags & os.O_DIRECTORY:
            return int(original(path, flags, *args, **kwargs))
        if flags & os.O_EXCL:  # a temporary file or a lock, whose name is nobody else's
            opened = int(original(path, flags, *args, **kwargs))
            shadow.own(path)
            return opened
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        mode = "r" if not writes else "w" if flags & os.O_TRUNC else "a"
        creates = (
            os.O_CREAT if writes and Path(os.fsdecode(path)).exists() else 0
        )  # what is there may not be there aside
        return int(original(shadow.find(path, mode), flags | creates, *args, **kwargs))

    return opening


def _linking(shadow: Shadow, symbolic: bool) -> Any:
    def link(src: Any, dst: Any, *_args: Any, **_kwargs: Any) -> None:
        source = Path(os.fsdecode(src))
        shadow.link(Path(os.fsdecode(dst)).parent / source if symbolic else source, dst)

    return link


def _led(original: Any, lead: Callable[[Any], Any]) -> Any:
    def call(path: Any, *args: Any, **kwargs: Any) -> Any:
        return original(lead(path), *args, **kwargs)

    return call


def _making(original: Any, shadow: Shadow, made: Callable[[str], None] | None) -> Any:
    def make(path: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("dir_fd") is None and shadow.come_back(path):
            return
        original(path, *args, **kwargs)
        if made is not None and kwargs.get("dir_fd") is None and not shadow.is_ours(path):
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
