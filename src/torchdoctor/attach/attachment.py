"""Starts a session when torch is imported, and ends it once, in the process that started it and no other."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from torchdoctor.attach.collector import collector_rests, keep_for_good
from torchdoctor.attach.importing import after_import
from torchdoctor.attach.options import Options
from torchdoctor.attach.page import open_page
from torchdoctor.attach.ranks import speaks
from torchdoctor.attach.shadowing import import_early, own_modules
from torchdoctor.attach.voice import announce, point_to_view, say
from torchdoctor.errors import TorchdoctorError
from torchdoctor.findings import Finding, Verdict
from torchdoctor.launching import can_leave

if TYPE_CHECKING:
    from torchdoctor.run import Run


NEEDED = ("attach", "engine", "probes", "rules", "scrubbing", "settings", "stats", "store")
"""Packages and modules that a session imports sooner or later."""
FRESH_SECONDS = 20.0


class Live(Protocol):
    listeners: list[Callable[[Finding], None]]
    at_start: Callable[[], None] | None


class Session(Protocol):
    """What `attach.session.start` gives. `finish` gives None where nobody examines, and where nothing was trained
    unless a record of an untrained program is wanted."""

    directory: Path
    live: Live | None
    failure: str | None

    def flush(self, patience: float) -> None: ...
    def leaving_early(self, error: BaseException) -> None: ...
    def finish(
        self, status: str, exception: dict[str, Any] | None = None, *, untrained: bool = False
    ) -> Verdict | None: ...


class Attachment:
    """`begin` before the script, `finish` after it; nothing of torch is imported before the script does so.

    `examines` says that `finish` shall give a verdict; a child whose parent reads the record has no need of one.
    """

    def __init__(self, options: Options, *, examines: bool = True) -> None:
        self.options = options
        self.session: Session | None = None
        self.problem: str | None = None
        self.run: Run | None = None
        """the record as the rules last saw it"""
        self._examines = examines or options.live or bool(options.stop_on)
        self._pid = os.getpid()
        self._open = False
        self._fresh_until = 0.0
        """torch is to be imported yet, and the script has no garbage before that time"""

    def begin(self) -> None:
        self._open = True
        self._fresh_until = 0.0 if "torch" in sys.modules else time.monotonic() + FRESH_SECONDS
        after_import("torch", self._start)

    @property
    def is_here(self) -> bool:
        """False in a process that was forked from the one that attached: there we are inert."""
        return os.getpid() == self._pid

    @property
    def unrecorded(self) -> str | None:
        """Why the training was not recorded, which was said when it began."""
        return self.session.failure if self.session is not None else None

    @property
    def saw_torch(self) -> bool:
        return self.session is not None or self.problem is not None

    def _start(self, torch: ModuleType) -> None:
        if not (self.is_here and self._open):
            return
        try:
            with own_modules(), collector_rests():
                sessions = importlib.import_module("torchdoctor.attach.session")
                import_early(*NEEDED)
                self.session = sessions.start(self.options, self._examine if self._examines else None)
                if time.monotonic() < self._fresh_until:
                    keep_for_good()
            if self.options.live and self.session.live is not None:
                self.session.live.listeners.append(_announce)
                self.session.live.at_start = self._point_to_view
        except Exception as error:
            self.problem = describe(error)

    def _examine(self, run: Run) -> Verdict:
        from torchdoctor.engine import examine
        from torchdoctor.settings import Settings

        self.run = run
        return examine(run, settings=Settings.from_dict(self.options.settings))

    def _point_to_view(self) -> None:
        """In a thread of its own: a server takes a second to start, and findings need not wait for it."""
        if self.session is not None and speaks():
            if not self.options.viewed:
                point_to_view(self.session.directory)
            arguments = (self.session.directory, self.options.settings)
            threading.Thread(target=_serve, args=arguments, daemon=True).start()

    def flush(self, patience: float) -> None:
        """Write what was recorded so far; waits so many seconds at most."""
        if self.is_here and self._open and self.session is not None:
            with contextlib.suppress(Exception):
                self.session.flush(patience)

    def leaving_early(self, error: BaseException) -> None:
        """The script ends with this; its frames are still there."""
        if self.is_here and self._open and self.session is not None:
            with contextlib.suppress(Exception):  # it ends as it would have without us
                self.session.leaving_early(error)

    def finish(self, how: str, exception: dict[str, Any] | None = None, *, untrained: bool = False) -> Verdict | None:
        """Close the record; the verdict if this process trained and had not finished before. `untrained`: a process
        that did not train is recorded, too."""
        if not (self.is_here and self._open):
            return None
        self._open = False
        with own_modules():
            return self._close(how, exception, untrained)

    def _close(self, how: str, exception: dict[str, Any] | None, untrained: bool) -> Verdict | None:
        try:
            if self.session is not None:
                return self.session.finish(how, exception=exception, untrained=untrained)
            if untrained:
                from torchdoctor.attach.torchless import record_without_torch

                return self._examine(record_without_torch(self.options, sys.argv, how, exception))
        except Exception as error:
            self.problem = self.problem or describe(error)
        return None


def describe(error: Exception) -> str:
    return str(error) if isinstance(error, TorchdoctorError) else f"{type(error).__name__}: {error}"


def _serve(directory: Path, settings: Mapping[str, Any]) -> None:
    if not can_leave():
        say("no live page, because this is process 1 of its container; start the container with docker run --init")
        return
    page = open_page(directory, settings)
    if page is not None:
        say(f"live page: {page}")


def _announce(finding: Finding) -> None:
    if speaks():
        announce(finding)
