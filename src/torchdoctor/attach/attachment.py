"""Starts a session when torch is imported, and ends it once, in the process that started it and no other."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from torchdoctor.attach.importing import after_import
from torchdoctor.attach.options import Options
from torchdoctor.findings import Finding, Verdict

OnFinding = Callable[[Finding], None]


class Session(Protocol):
    """What `attach.session.start` gives. `finish` gives None where nothing was trained."""

    directory: Path | None

    def finish(self, status: str, exception: dict[str, Any] | None = None) -> Verdict | None: ...


class Attachment:
    """`begin` before the script, `finish` after it; nothing of torch is imported before the script does so."""

    def __init__(self, options: Options, on_finding: OnFinding | None = None) -> None:
        self.options = options
        self.session: Session | None = None
        self.problem: str | None = None
        self._on_finding = on_finding
        self._pid = os.getpid()
        self._open = False

    def begin(self) -> None:
        self._open = True
        after_import("torch", self._start)

    @property
    def is_here(self) -> bool:
        """False in a process that was forked from the one that attached: there we are inert."""
        return os.getpid() == self._pid

    @property
    def saw_torch(self) -> bool:
        return self.session is not None or self.problem is not None

    def _start(self, torch: ModuleType) -> None:
        if not (self.is_here and self._open):
            return
        try:
            session = importlib.import_module("torchdoctor.attach.session")
            self.session = session.start(self.options, on_finding=self._on_finding)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"

    def finish(self, how: str, exception: dict[str, Any] | None = None) -> Verdict | None:
        """Close the record; the verdict if this process trained and had not finished before."""
        if not (self.is_here and self._open):
            return None
        self._open = False
        if self.session is None:
            return None
        try:
            return self.session.finish(how, exception=exception)
        except Exception as error:
            self.problem = f"{type(error).__name__}: {error}"
            return None
