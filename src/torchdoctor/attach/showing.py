"""A notebook's output that follows a training: drawn in a thread of its own, within a share of the time.

IPython is used where the program runs in a notebook, and never imported elsewhere.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

log = logging.getLogger("torchdoctor")

LEAST_SHARE = 1e-4
"""Where no time at all may be spent on measuring: somebody asked to see it."""
FAILURES = 3
"""Drawings in a row that may fail before it is given up."""


class Handle(Protocol):
    """IPython's DisplayHandle."""

    def update(self, obj: Any, **kwargs: Any) -> None: ...


Display = Callable[..., Handle | None]


def find_display() -> Display | None:
    """IPython's display where a notebook's kernel runs this program; a shell in a terminal cannot draw in place."""
    package = sys.modules.get("IPython")
    shell = package.get_ipython() if package is not None and hasattr(package, "get_ipython") else None
    if getattr(shell, "kernel", None) is None:
        return None
    display: Display = importlib.import_module("IPython.display").display
    return display


class Showing:
    """Draws now, again and again while it trains, and once more at the end.

    `share` is the part of the time that drawing may take: after a drawing that cost 20 ms of the processor the next one
    comes two seconds later at the earliest, with a share of 0.01.
    """

    def __init__(
        self,
        display: Display,
        draw: Callable[[], dict[str, str]],
        trains: Callable[[], bool],
        *,
        share: float,
        interval: float,
    ) -> None:
        self._draw, self._trains = draw, trains
        self._share, self._interval = max(share, LEAST_SHARE), interval
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._handle = display(draw(), raw=True, display_id=True)
        self._pause = interval  # the first drawing is the cell's own time, and most of it is importing
        self._thread = threading.Thread(target=self._follow, name="torchdoctor-show", daemon=True)
        if self._handle is not None:
            self._thread.start()

    def end(self) -> None:
        """The last drawing, with how it ended; whatever is being drawn meanwhile does not come after it."""
        self._ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)
        self._update(last=True)

    def _follow(self) -> None:
        failures = 0
        while not self._ended.wait(self._pause):
            if not self._trains():
                self.end()
                return
            begun = time.thread_time()
            failures = 0 if self._update() else failures + 1
            if failures >= FAILURES:
                return
            self._pause = self._rest_after(begun)

    def _update(self, last: bool = False) -> bool:
        try:
            drawn = self._draw()
            with self._lock:
                if self._handle is not None and (last or not self._ended.is_set()):
                    self._handle.update(drawn, raw=True)
        except Exception:
            log.debug("torchdoctor: the notebook could not be updated", exc_info=True)
            return False
        return True

    def _rest_after(self, begun: float) -> float:
        return max(self._interval, (time.thread_time() - begun) / self._share)
