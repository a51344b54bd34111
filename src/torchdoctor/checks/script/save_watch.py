"""Which lines of a script save, noted while it runs; torch is imported when the script does so."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from torchdoctor.attach.places import is_own, is_user_file

SITES = 16


@dataclass(frozen=True)
class Standing:
    """A frame of the user's as it was."""

    code: CodeType
    line: int
    names: dict[str, Any]


class SaveWatch:
    """Notes which lines of a script save, while it runs in the thread in which this was made."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.seen: dict[tuple[str, int], list[Standing]] = {}
        """the frames that led there, the innermost first, as they were the last time"""
        self.others: set[str] = set()
        """packages that save by themselves"""

    def place(self, torch: Any) -> None:
        save = torch.save

        @functools.wraps(save)
        def saving(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == self._thread:
                with contextlib.suppress(Exception):  # the script goes on as it would
                    self.note(sys._getframe(1))
            return save(*args, **kwargs)

        torch.save = saving

    def note(self, frame: FrameType | None) -> None:
        while frame is not None and is_own(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return
        if not is_user_file(frame.f_code.co_filename):
            self.others.add(str(frame.f_globals.get("__name__", "")).partition(".")[0])
            return
        where = frame.f_code.co_filename, frame.f_lineno
        if where not in self.seen and len(self.seen) >= SITES:
            return
        stack = []
        while frame is not None:
            if is_user_file(frame.f_code.co_filename):
                stack.append(Standing(frame.f_code, frame.f_lineno, {**frame.f_globals, **frame.f_locals}))
            frame = frame.f_back
        self.seen[where] = stack
