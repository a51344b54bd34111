"""Which seeds a script sets by itself: noted, and set as they are. torch is imported when the script does so."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from torchdoctor.attach.importing import after_import
from torchdoctor.attach.places import is_own, is_user_file

MOST = 16


class SeedNotes:
    """`calls` are the first of them: whose generator, the number, and where; what libraries seed unasked is none."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self._pid = os.getpid()

    def place(self) -> None:
        random.seed = self._noted("random", random.seed)  # type: ignore[assignment]
        after_import("numpy", self._place_numpy)
        after_import("torch", self._place_torch)

    def _place_numpy(self, numpy: Any) -> None:
        numpy.random.seed = self._noted("NumPy", numpy.random.seed)

    def _place_torch(self, torch: Any) -> None:
        torch.manual_seed = torch.random.manual_seed = self._noted("torch", torch.manual_seed)

    def _noted(self, whose: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def seed(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):  # the script goes on as it would
                self._note(whose, args[0] if args else next(iter(kwargs.values()), None), sys._getframe(1))
            return original(*args, **kwargs)

        return seed

    def _note(self, whose: str, given: Any, frame: FrameType) -> None:
        if given is None or len(self.calls) >= MOST or os.getpid() != self._pid:
            return
        asking = _asking(frame)
        if asking is not None:
            at = {"file": asking.f_code.co_filename, "line": asking.f_lineno}
            self.calls.append({"whose": whose, "given": str(given)[:40], **at})


def _asking(frame: FrameType | None) -> FrameType | None:
    """The user's frame that wants it, directly or by a function that is there to seed (`seed_everything`)."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        if not is_own(frame.f_code.co_filename) and "seed" not in frame.f_code.co_name:
            return None
        frame = frame.f_back
    return frame
