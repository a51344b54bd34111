"""Commit, branch and uncommitted changes of the user's git repository, read without starting what it configures.

`git status` and `git diff` bring the index up to date, and for that they start the repository's filters (git-lfs, or
whatever somebody wrote into .git/config), its file monitor and its drivers. Here git only lists: its index with the
times and sizes that it noted, the tree of HEAD, and single objects. Files are compared in this process.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import re
import stat
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchdoctor.opening import open_plain
from torchdoctor.scrubbing import scrub_text

SECONDS = 2.0
"""For all of it."""
MAX_DIFF = 200_000
"""Characters of the diff that are kept."""
MAX_LISTING = 16_000_000
MAX_TRACKED = 20_000
"""Files of a repository that are looked at: each costs some microseconds in the training's own process."""
MAX_FILE = 400_000
"""Bytes of a file that is compared line by line."""
MAX_LINES = 20_000
MAX_SHOWN = 50
"""Files in a diff."""

_ENTRY = re.compile(
    rb"(?P<tag>\S) (?P<mode>\d{6}) (?P<digest>[0-9a-f]{40,64}) (?P<stage>\d)\t(?P<path>[^\0]+)\0"
    rb"\s+ctime: [\d:]+\s+mtime: (?P<seconds>\d+):(?P<nanoseconds>\d+)\s+dev: \d+\s+ino: \d+\s+uid: \d+\s+gid: \d+"
    rb"\s+size: (?P<size>\d+)\s+flags: [0-9a-f]+\n"
)
_TREE_ENTRY = re.compile(rb"(?P<mode>\d{6}) \w+ (?P<digest>[0-9a-f]{40,64})\t(?P<path>[^\0]+)\0")
_FILES = ("100644", "100755")
_SETTINGS = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false"),
    *("-c", "protocol.allow=never", "-c", "core.untrackedCache=false", "-c", "core.pager=cat"),
)
_VARIABLES = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",  # an object that is missing in a partial clone would be fetched, over ssh
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ATTR_NOSYSTEM": "1",
    "LC_ALL": "C",
}


@dataclass(frozen=True)
class Tracked:
    """A file as the index or a tree has it; size and time only where the index noted them."""

    mode: str
    digest: str
    size: int = -1
    time: int = -1
    """nanoseconds since 1970"""
    is_trusted: bool = False
    """git was told not to look at the file in the work tree (sparse checkouts)"""


def read_git(folder: Path) -> dict[str, Any]:
    """Commit, branch and what differs from the commit; {} outside a repository or without git."""
    top = _find_top(folder)
    if top is None:
        return {}
    repository = _Repository(top, time.monotonic() + SECONDS)
    commit = repository.ask("rev-parse", "--verify", "HEAD")
    if not commit:
        return {}
    found: dict[str, Any] = {"commit": commit.decode().strip()}
    branch = repository.ask("rev-parse", "--abbrev-ref", "HEAD")
    if branch:
        found["branch"] = branch.decode(errors="replace").strip()
    changed = repository.find_changes()
    if changed is None:
        return found
    if changed or not repository.is_unsure:
        found["dirty"] = bool(changed)
    if changed:
        diff, is_cut = repository.describe(changed)
        found["diff"] = scrub_text(diff[:MAX_DIFF])
        found["diff_cut"] = is_cut or len(diff) > MAX_DIFF
    return found


def _find_top(folder: Path) -> Path | None:
    """The folder with .git, this one or one above it. Not where core.worktree says: that may be anywhere."""
    ceilings = {Path(p) for p in os.environ.get("GIT_CEILING_DIRECTORIES", "").split(os.pathsep) if p}
    for each in (folder, *folder.parents):
        if (each / ".git").exists():
            return each
        if each.parent in ceilings:
            return None
    return None


class _Repository:
    """Questions to git, all of them together within a time."""

    def __init__(self, top: Path, until: float) -> None:
        self._top = top
        self._until = until
        self.is_unsure = False
        """a file with a filter, or a large one, was written anew in the same size: its content was not compared"""

    def find_changes(self) -> dict[str, tuple[Tracked | None, Tracked | None]] | None:
        """Paths whose file is not that of HEAD, with its entries in HEAD and the index; None where that is unknown."""
        index, head = self._list_index(), self._list_head()
        if index is None or head is None:
            return None
        staged = {p for p in {*index, *head} if _content(index.get(p)) != _content(head.get(p))}
        touched = [p for p, entry in index.items() if p not in staged and self._is_touched(p, entry)]
        if time.monotonic() > self._until:
            return None
        filtered = self._filtered(touched)
        edited = {p for p in touched if self._is_edited(p, index[p], p in filtered)}
        return {p: (head.get(p), index.get(p)) for p in sorted(staged | edited)}

    def describe(self, changed: dict[str, tuple[Tracked | None, Tracked | None]]) -> tuple[str, bool]:
        """A unified diff, and whether something was left out."""
        filtered = self._filtered(list(changed))
        pieces: list[str] = []
        is_cut = False
        for number, (path, (old, _)) in enumerate(changed.items()):
            late = time.monotonic() > self._until or sum(map(len, pieces)) > MAX_DIFF
            if late or number >= MAX_SHOWN:
                return "".join(pieces), True
            lines = [] if path in filtered else self._compare(path, old)
            is_cut = is_cut or not lines
            # what a filter hides from the repository is nothing for a diff
            pieces += [f"diff --git a/{path} b/{path}\n", *(lines or [f"File {path} differs\n"])]
        return "".join(pieces), is_cut

    def _compare(self, path: str, old: Tracked | None) -> list[str]:
        """Lines of a diff; none where a file is no text, large, or differs in nothing but its mode."""
        before, after = self._read_object(old), self._read_file(path)
        if before is None or after is None or b"\0" in before[:8000] + after[:8000]:
            return []
        texts = [data.decode(errors="replace").splitlines(keepends=True) for data in (before, after)]
        if sum(map(len, texts)) > MAX_LINES:
            return []
        names = (f"a/{path}" if old else "/dev/null", f"b/{path}" if os.path.lexists(self._top / path) else "/dev/null")
        lines = difflib.unified_diff(*texts, *names)
        return [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]

    def _list_index(self) -> dict[str, Tracked] | None:
        text = self.ask("ls-files", "--stage", "-v", "--debug", "-z", most=MAX_LISTING)
        if text is None or len(text) == MAX_LISTING or text.count(b"\n  mtime:") > MAX_TRACKED:
            return None
        found = {}
        for match in _ENTRY.finditer(text):
            moment = int(match["seconds"]) * 10**9 + int(match["nanoseconds"])
            trusted = match["tag"] == b"S" or match["tag"].islower()
            entry = Tracked(match["mode"].decode(), match["digest"].decode(), int(match["size"]), moment, trusted)
            found[os.fsdecode(match["path"])] = entry
        return found

    def _list_head(self) -> dict[str, Tracked] | None:
        text = self.ask("ls-tree", "-r", "-z", "--full-tree", "HEAD", most=MAX_LISTING)
        if text is None or len(text) == MAX_LISTING:
            return None
        matches = _TREE_ENTRY.finditer(text)
        return {os.fsdecode(m["path"]): Tracked(m["mode"].decode(), m["digest"].decode()) for m in matches}

    def _is_touched(self, path: str, entry: Tracked) -> bool:
        """By size and time alone, as git does it first."""
        if entry.mode not in _FILES or entry.is_trusted:
            return False
        try:
            seen = (self._top / path).lstat()
        except OSError:
            return True
        return not stat.S_ISREG(seen.st_mode) or (seen.st_size, seen.st_mtime_ns) != (entry.size, entry.time)

    def _is_edited(self, path: str, entry: Tracked, is_filtered: bool) -> bool:
        """By content. A file that a filter changes on its way into git is only known by its size to be another."""
        try:
            size = (self._top / path).lstat().st_size
        except OSError:
            return True
        if is_filtered or size > MAX_FILE:
            self.is_unsure = self.is_unsure or size == entry.size
            return size != entry.size
        data = self._read_file(path)
        return data is None or entry.digest not in (
            _digest(data, entry.digest),
            _digest(data.replace(b"\r\n", b"\n"), entry.digest),
        )

    def _filtered(self, paths: Sequence[str]) -> set[str]:
        """Those with a filter. All, where git does not answer."""
        found: set[str] = set()
        for first in range(0, len(paths), 200):
            some = paths[first : first + 200]
            text = self.ask("check-attr", "-z", "filter", "--", *some)
            words = text.split(b"\0")[:-1] if text is not None else []
            values = dict(zip(words[0::3], words[2::3], strict=False))
            found |= {p for p in some if values.get(os.fsencode(p)) not in (b"unspecified", b"unset")}
        return found

    def _read_object(self, entry: Tracked | None) -> bytes | None:
        """None where it is large, or no file."""
        if entry is None:
            return b""
        data = self.ask("cat-file", "blob", entry.digest, most=MAX_FILE + 1) if entry.mode in _FILES else None
        return data if data is not None and len(data) <= MAX_FILE else None

    def _read_file(self, path: str) -> bytes | None:
        """Empty where it is gone; None where it is large, no plain file, or lies elsewhere behind a link."""
        file = self._top / path
        if not os.path.lexists(file):
            return b""
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            if not file.parent.resolve().is_relative_to(self._top.resolve()):
                return None
            descriptor = open_plain(file)
            if descriptor is not None:
                with os.fdopen(descriptor, "rb") as opened:
                    data = opened.read(MAX_FILE + 1)
                return data if len(data) <= MAX_FILE else None
        return None

    def ask(self, *arguments: str, most: int = MAX_FILE) -> bytes | None:
        """What git prints, at most so many bytes; None if it fails or takes too long."""
        left = self._until - time.monotonic()
        if left <= 0:
            return None
        variables = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | _VARIABLES
        variables |= {"GIT_WORK_TREE": str(self._top), "GIT_CEILING_DIRECTORIES": str(self._top.parent)}
        try:
            process = subprocess.Popen(
                ["git", "--no-pager", "--literal-pathspecs", *_SETTINGS, *arguments],
                cwd=self._top,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, ValueError):
            return None
        timer = threading.Timer(left, process.kill)
        timer.daemon = True
        timer.start()
        try:
            assert process.stdout is not None
            with process.stdout as output:
                text = output.read(most)
            if len(text) == most:
                process.kill()
            status = process.wait()
        finally:
            timer.cancel()
        return text if status == 0 or len(text) == most else None


def _content(entry: Tracked | None) -> tuple[str, str] | None:
    return None if entry is None else (entry.mode, entry.digest)


def _digest(data: bytes, like: str) -> str:
    """A file's name as an object, by SHA-1 or SHA-256 as the repository has it."""
    make = hashlib.sha1 if len(like) == 40 else hashlib.sha256
    return make(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
