"""Exceptions from outside are told from errors of the code at hand."""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from torchdoctor.attach import guard
from torchdoctor.attach.guard import contained, guarded
from torchdoctor.interruptions import is_interruption


class LateError(Exception):
    pass


def raise_late(*_: Any) -> None:
    raise TimeoutError("late")


class Handler:
    def method(self, number: int, frame: Any) -> None:
        raise LateError(number)

    def fail(self) -> None:
        raise LateError


def from_signal(handler: Any) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        for _ in range(1000):
            pass
    finally:
        signal.signal(signal.SIGUSR1, before)


def from_thread() -> None:
    identity = ctypes.c_ulong(threading.get_ident())
    ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, ctypes.py_object(LateError))
    for _ in range(1000):
        pass


OUTSIDE: dict[str, Callable[[], Any]] = {
    "function": lambda: from_signal(raise_late),
    "method": lambda: from_signal(Handler().method),
    "lambda": lambda: from_signal(lambda number, frame: raise_late()),
    "partial": lambda: from_signal(partial(lambda more, number, frame: raise_late(), 1)),
    "thread": from_thread,
}
INSIDE: dict[str, Callable[[], Any]] = {
    "raised": raise_late,
    "raised without arguments": lambda: Handler().fail(),
    "builtin": lambda: int("x"),
    "operator": lambda: 1 / 0,
    "empty": lambda: queue.SimpleQueue().get_nowait(),
    "end": lambda: next(iter(())),
    "method": lambda: [].remove(1),  # type: ignore[func-returns-value]
    "attribute": lambda: object().nothing,  # type: ignore[attr-defined]
}


def raised_by(action: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:
        action()
    return caught.value


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_comes_from_outside_passes_through_a_site(name: str) -> None:
    assert is_interruption(raised_by(OUTSIDE[name]))
    inner = contained("inner of a test")(OUTSIDE[name])
    site = guarded("site of a test")(lambda: inner())
    with pytest.raises((LateError, TimeoutError)):
        site()
    assert not guard.STATE.inside
    assert not {"inner of a test", "site of a test"} & guard.disabled().keys()


@pytest.mark.parametrize("name", INSIDE)
def test_what_a_called_function_raises_is_no_interruption(name: str) -> None:
    assert not is_interruption(raised_by(INSIDE[name]))
    guarded("failing site of a test")(INSIDE[name])()
    assert guard.SITES["failing site of a test"].failures == 1


def test_hundreds_of_exceptions_reach_the_caller() -> None:
    reached = 0

    @guarded("busy site of a test")
    def busy() -> None:
        with contextlib.suppress(ValueError):
            for text in map(str, range(300)):
                int(text)

    before = signal.signal(signal.SIGPROF, raise_late)
    try:
        for i in range(300):
            signal.setitimer(signal.ITIMER_PROF, 1e-5 * (1 + i % 30))
            try:
                while True:
                    busy()
            except TimeoutError:
                reached += 1
            assert not guard.STATE.inside
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    assert reached == 300
    assert guard.SITES["busy site of a test"].failures == 0


@pytest.mark.parametrize(
    "fail",
    [
        lambda: pa.array([1, "a"]),  # an error with a message
        lambda: np.random.default_rng(0).choice([], 3),
    ],
)
def test_an_error_of_compiled_code_is_the_sites_own(fail: Callable[[], object]) -> None:
    """Cython's frames hold no instructions; taken for an interruption, the error would have ended the training."""
    guard.reset()
    assert guarded("compiled code in a test")(fail)() is None
