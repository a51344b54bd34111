"""The folder that keeps what was trained: the user's own, small, and nothing is lost where it is deleted."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from torchdoctor.errors import LabError, RunError
from torchdoctor.last_seen import RUNNING
from torchdoctor.store.info import read_info, read_status
from torchdoctor.store.listing import list_runs
from torchdoctor.store.names import RUN_FILE

MOST_BYTES = 64_000_000
"""Of all trainings together, those of earlier versions among them: sixteen take about eight million."""
FREE_BYTES = 20_000_000
"""That the disk must have left before one more is trained: ten times what a training takes."""
FINISHED = "finished"


NOWHERE = Path(os.devnull) / "lab"
"""The folder of somebody who has no home: there is nothing in it, and nothing can be put there."""


def usual_folder() -> Path:
    """By the XDG rules, which want an absolute path."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (given if given.is_absolute() else Path.home() / ".cache") / "torchdoctor" / "lab"
    except RuntimeError:  # neither HOME nor an entry among the users, as in a container that runs under any number
        return NOWHERE


class Cabinet:
    """Runs in a folder, known by names that are made here, never by names that somebody sent."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = usual_folder() if folder is None else folder

    @property
    def trouble(self) -> str:
        """Why nothing can ever be kept here; empty where nothing is known against it."""
        if self.folder != NOWHERE:
            return ""
        return (
            "The gallery keeps its trainings in your home folder, and you have none on this machine (HOME is not set); "
            "set XDG_CACHE_HOME to a folder that can be written to, and start this page again"
        )

    def status(self, name: str) -> str:
        """Of the run of that name; empty where there is none."""
        path = self.folder / name / RUN_FILE
        try:
            return read_status(path, read_info(path))
        except (RunError, OSError):
            return ""

    def holds(self, name: str) -> bool:
        """Whether it was trained to its end."""
        return self.status(name) == FINISHED

    def is_running(self, name: str) -> bool:
        return self.status(name) == RUNNING

    def prepare(self) -> None:
        """Makes the folder, for this user alone. LabError where it cannot be written to."""
        if self.trouble:
            raise LabError(self.trouble)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.folder.stat(follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                raise LabError(f"{self.folder} is not a folder of yours; set XDG_CACHE_HOME to one that is")
            self.folder.chmod(0o700)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise LabError(
                f"the gallery keeps its trainings in {self.folder}, which cannot be written to "
                f"({error.strerror or error}); set XDG_CACHE_HOME to a folder that can"
            ) from None
        if not os.access(self.folder, os.W_OK | os.X_OK):
            raise LabError(f"{self.folder} is read-only; set XDG_CACHE_HOME to a folder that can be written to")
        if free < FREE_BYTES:
            raise LabError(
                f"the disk of {self.folder} has {free / 1e6:.0f} MB left, and the gallery asks for "
                f"{FREE_BYTES / 1e6:.0f}; make room or set XDG_CACHE_HOME to another disk"
            )

    def make_room(self, keep: set[str]) -> None:
        """Trainings of earlier versions go, oldest first, where all take too much; those to keep stay."""
        held = list_runs(self.folder)
        total = sum(entry.size_bytes for entry in held)
        for entry in held:
            if total <= MOST_BYTES:
                return
            if entry.name not in keep and entry.status != RUNNING:
                self.remove(entry.name)
                total -= entry.size_bytes

    def size(self) -> int:
        return sum(entry.size_bytes for entry in list_runs(self.folder))

    def remove(self, name: str) -> None:
        """LabError where it stays, with the reason."""
        if name not in self._names():
            return
        try:
            shutil.rmtree(self.folder / name)
        except OSError as error:
            raise LabError(f"{self.folder / name} cannot be removed: {error.strerror or error}") from None

    def clear(self) -> None:
        """All that was trained, by other versions too."""
        for name in list(self._names()):
            self.remove(name)

    def _names(self) -> Iterator[str]:
        """Folders that lie in it themselves; links are not followed."""
        try:
            with os.scandir(self.folder) as held:
                yield from [entry.name for entry in held if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return
