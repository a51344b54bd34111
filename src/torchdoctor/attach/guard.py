"""The one guard: every function of ours that runs inside the user's loop is a site registered here.

A site that raises is logged once and switched off after three failures; the user's loop never sees it. While a site
runs, the other sites are off (operations of ours must not be measured), the script's modes and profilers see nothing
of it (isolation.py), and its time is counted. Two kinds of exception pass through: `StopTraining`, which the user asked
for, and what a signal handler or another thread raised (interruptions.py), which is the script's.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from threading import get_ident
from time import perf_counter
from typing import Any, TypeVar

from torchdoctor.attach.isolation import run_isolated, skip_compilation
from torchdoctor.errors import StopTraining
from torchdoctor.interruptions import let_through

log = logging.getLogger("torchdoctor")
C = TypeVar("C", bound=Callable[..., Any])

FAILURES_ALLOWED = 3
NOBODY = -1
"""The number of no thread."""


class Site:
    """One guarded function: its name, its code and how often it failed."""

    __slots__ = ("failures", "function", "name", "off", "reason")

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function
        self.reset()

    def reset(self) -> None:
        self.failures = 0
        self.off = False
        self.reason = ""

    def failed(self, error: Exception) -> None:
        self.failures += 1
        self.off = self.failures >= FAILURES_ALLOWED
        self.reason = type(error).__name__
        try:
            self.reason = f"{self.reason}: {error}"
            if self.failures == 1:
                self._report(error)
        except Exception as second:  # of the error's own __str__, or of a handler that the script gave its logging
            let_through(second)

    def _report(self, error: Exception) -> None:
        said = "the measurement is left out; training is not affected"
        log.warning("torchdoctor: internal error at '%s' (%s): %s", self.name, self.reason, said)
        log.debug("torchdoctor: traceback of %s", self.name, exc_info=error)


class State:
    """What all sites share in one process."""

    __slots__ = ("capturing", "entered", "inside", "own_seconds", "thread")

    def __init__(self) -> None:
        self.inside = False
        self.own_seconds = 0.0
        """time spent in sites that have ended"""
        self.entered = 0.0
        """when the site that runs now was entered"""
        self.thread: int | None = None
        """the thread that trains; what others do is not looked at"""
        self.capturing: Callable[[], bool] | None = None
        """whether a CUDA graph is being captured, into which our operations must not get"""

    def own_now(self) -> float:
        """Time spent in sites, with that of the site which asks."""
        return self.own_seconds + (perf_counter() - self.entered if self.inside else 0.0)


SITES: dict[str, Site] = {}
STATE = State()


def guarded(name: str) -> Callable[[C], C]:
    """Make a function a site. It returns None where it failed, is switched off, or another site is running."""

    def decorate(function: C) -> C:
        site = SITES[name] = Site(name, function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if site.off or STATE.inside or (STATE.thread is not None and get_ident() != STATE.thread):
                return None
            if STATE.capturing is not None and STATE.capturing():
                return None
            try:  # an exception from outside may come after any call, so `inside` is put back first
                STATE.inside = True
                STATE.entered = perf_counter()
                return run_isolated(site.function, args, kwargs)
            except StopTraining:
                raise
            except RecursionError:  # the script itself is this deep: no fault of the site
                return None
            except Exception as error:
                let_through(error)
                site.failed(error)
                return None
            finally:
                STATE.inside = False
                STATE.own_seconds += perf_counter() - STATE.entered

        skip_compilation(call.__code__, with_callees=True)
        call.__torchdoctor_site__ = site  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


def contained(name: str) -> Callable[[C], C]:
    """A site for work inside another site: a probe that fails alone leaves the others running."""

    def decorate(function: C) -> C:
        site = SITES[name] = Site(name, function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if site.off:
                return None
            try:
                return site.function(*args, **kwargs)
            except StopTraining:
                raise
            except RecursionError:  # the script itself is this deep: no fault of the site
                return None
            except Exception as error:
                let_through(error)
                site.failed(error)
                return None

        call.__torchdoctor_site__ = site  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """What happens inside is an experiment of ours, not the user's training: no site runs. Also as a decorator."""
    trains, STATE.thread = STATE.thread, NOBODY
    try:
        yield
    finally:
        STATE.thread = trains


def is_guarded(function: Callable[..., Any]) -> bool:
    return isinstance(getattr(function, "__torchdoctor_site__", None), Site)


def reset() -> None:
    """Forget all failures; a new session starts with every site on."""
    for site in SITES.values():
        site.reset()
    STATE.inside = False
    STATE.own_seconds = 0.0
    STATE.thread = None


def disabled() -> dict[str, str]:
    """Sites that failed, with what they said."""
    return {s.name: s.reason for s in SITES.values() if s.failures}
