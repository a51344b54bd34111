"""Captures of a run on disk: what they are called, how one is written so that no half of it is ever seen, which stay.

    captures/step-000123-nonfinite/capture.json          what it is, and everything in it that is no tensor
    captures/step-000123-nonfinite/tensors.safetensors   the tensors, under names such as parameter/model.fc.weight
    captures/.step-000123-nonfinite.4711.tmp             being written; readers ignore it

Rank 1 adds `-r1`, a second capture of the same step `-2`. Reading one, which trusts nothing, is in captured.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchdoctor.errors import CaptureError
from torchdoctor.store.documents import write_json

CAPTURES = "captures"
DOCUMENT, TENSORS = "capture.json", "tensors.safetensors"
CAPTURE_FORMAT = 2
"""Raised when an older torchdoctor could no longer read what is written."""

TARGETS_ONLY = "targets"
"""The `batch_source` of a capture of a loop without a loader, whose inputs were not seen on that step."""
MAX_DOCUMENT = 16_000_000
"""Bytes of a capture.json: the random state of python and the names of 100,000 tensors fit several times."""
REASON = re.compile(r"[a-z][a-z0-9_]{0,31}")
_NAME = re.compile(rf"step-(\d{{6,18}})-({REASON.pattern})(?:-r([1-9]\d{{0,5}}))?(?:-([2-9]|[1-9]\d{{1,3}}))?")
ABANDONED_SECONDS = 3600.0
"""A folder that is still being written after this long belongs to a process that was killed."""
SPARE_BYTES = 64_000_000
"""Left free on the disk beside a capture, for the run's own record."""
PRIVATE = 0o700
"""Captures hold training data: nobody but the user gets in."""
NOTICE = (
    "This capture holds training data, weights and optimizer state of the run. It never left the machine that wrote "
    "it; look at what is in the batch before you give it to others. --capture none switches captures off."
)


@dataclass(frozen=True, order=True)
class CaptureName:
    """A capture's folder name, taken apart; they sort by step."""

    step: int
    reason: str
    rank: int = 0
    number: int = 1

    def __str__(self) -> str:
        rank = f"-r{self.rank}" if self.rank else ""
        return f"step-{self.step:06d}-{self.reason}{rank}{f'-{self.number}' if self.number > 1 else ''}"

    @classmethod
    def parse(cls, text: str) -> CaptureName | None:
        match = _NAME.fullmatch(text)
        return cls(int(match[1]), match[2], int(match[3] or 0), int(match[4] or 1)) if match else None


@dataclass(frozen=True)
class CaptureEntry:
    """One line of a list of captures."""

    path: Path
    name: CaptureName
    size_bytes: int


def list_captures(run: str | os.PathLike[str]) -> list[CaptureEntry]:
    """The whole captures of a run, by step. Links and whatever else lies there are passed over."""
    found = []
    folder = Path(run) / CAPTURES
    if folder.is_symlink():
        return []
    try:
        children = list(os.scandir(folder))
    except OSError:
        return []
    for child in children:
        name = CaptureName.parse(child.name)
        if name is None or not child.is_dir(follow_symlinks=False):
            continue
        with contextlib.suppress(OSError):
            sizes = [(Path(child.path) / file).lstat().st_size for file in (DOCUMENT, TENSORS)]
            found.append(CaptureEntry(Path(child.path), name, sum(sizes)))
    return sorted(found, key=lambda entry: entry.name)


def write_capture(
    run: Path, name: CaptureName, document: Mapping[str, Any], tensors: Mapping[str, Any], keep: int
) -> Path:
    """Write a capture beside its place and move it there; then remove what the retention no longer holds.

    `tensors` are contiguous CPU tensors of torch that share no memory. CaptureError or OSError if it cannot be done;
    nothing is left behind then.
    """
    from safetensors.torch import save_file

    text = _render(document)
    folder = run / CAPTURES
    if folder.is_symlink():
        raise CaptureError(f"{folder} is a link, and captures are only written into the run's own folder")
    folder.mkdir(mode=PRIVATE, exist_ok=True)
    _sweep(folder)
    _check_room(folder, len(text) + sum(t.nbytes for t in tensors.values()))
    temporary = folder / f".{name}.{os.getpid()}.tmp"
    try:
        temporary.mkdir(mode=PRIVATE)
        save_file(dict(tensors), temporary / TENSORS)
        (temporary / DOCUMENT).write_bytes(text)
        final = _settle(temporary, name)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    retain(run, keep, name.rank)
    return final


def _render(document: Mapping[str, Any]) -> bytes:
    text = write_json(document, indent=1, strict=True).encode()
    if len(text) > MAX_DOCUMENT:
        raise CaptureError(f"a capture's JSON would be {len(text):,} bytes, and may be {MAX_DOCUMENT:,}")
    return text


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size + SPARE_BYTES:
        raise CaptureError(f"a capture of {size:,} bytes does not fit on the disk, which has {free:,} left")


def _settle(temporary: Path, name: CaptureName) -> Path:
    """Its own name, or that with a number where there is such a capture already."""
    while True:
        final = temporary.parent / str(name)
        if not os.path.lexists(final):
            return temporary.rename(final)
        name = replace(name, number=name.number + 1)


def shares(keep: int) -> tuple[int, int]:
    """How many of the first and of the last captures are kept of that many: what began it, and where it stands."""
    return (keep + 1) // 2, keep // 2


def has_place(run: Path, keep: int, rank: int = 0) -> bool:
    """Whether one more capture would stay."""
    return shares(keep)[1] > 0 or sum(entry.name.rank == rank for entry in list_captures(run)) < keep


def retain(run: Path, keep: int, rank: int = 0) -> list[Path]:
    """Remove the captures of that rank between the first and the last that are kept; gives those removed."""
    entries = [entry for entry in list_captures(run) if entry.name.rank == rank]
    first, last = shares(keep)
    surplus = entries[first : len(entries) - last] if len(entries) > keep else []
    for entry in surplus:
        remove_capture(entry.path)
    return [entry.path for entry in surplus]


def remove_capture(path: Path) -> None:
    """Out of sight first, so that no half of it is ever listed."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what a killed process left half-written."""
    for path in folder.glob(".step-*.tmp"):
        with contextlib.suppress(OSError):
            if not path.is_symlink() and time.time() - path.lstat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
