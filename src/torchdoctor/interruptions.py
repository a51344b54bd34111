"""Tells exceptions that came from outside (a signal handler, another thread) from errors of the code at hand.

Python runs signal handlers, and delivers exceptions that another thread has set, between any two bytecodes: also in
code of ours. `except Exception` must not swallow those, since they are meant for the script.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import queue
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType

CHECKPOINTS = frozenset(map(dis.opmap.get, ("RESUME", "JUMP_BACKWARD")))
"""Instructions at which Python looks for signals, and which raise nothing themselves."""
RAISING = frozenset(map(dis.opmap.get, ("RAISE_VARARGS", "RERAISE")))
RAISED_EMPTY = (StopIteration, StopAsyncIteration, MemoryError, AssertionError, queue.Empty, queue.Full)
"""Exceptions that Python and its C modules raise without arguments."""


def let_through(error: BaseException) -> None:
    """Raise the error again if it came from outside. For `except` clauses of code that runs inside the user's loop."""
    if is_interruption(error):
        raise error


def is_interruption(error: BaseException) -> bool:
    """Whether a signal handler or another thread raised this error, and no function that was called."""
    if find_handler(error.__traceback__) is not None:
        return True
    passed = list(entries(error.__traceback__))
    return bool(passed) and _is_set_by_thread(error, passed[-1])


def find_handler(trace: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that begins in a signal handler."""
    return next((entry for entry in entries(trace) if _is_handler(entry.tb_frame)), None)


def entries(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_handler(frame: FrameType) -> bool:
    """Whether this is a function called with the number of a signal and the frame that it interrupts."""
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    arguments: list[object] = []
    for name in code.co_varnames[:count]:
        value = values.get(name)
        arguments += value if type(value) is tuple else [value]
    pairs = itertools.pairwise(arguments)
    return any(isinstance(number, int) and type(second) is FrameType for number, second in pairs)


def _is_set_by_thread(error: BaseException, entry: TracebackType) -> bool:
    """PyThreadState_SetAsyncExc makes the exception without arguments, and no instruction raises it."""
    code = entry.tb_frame.f_code
    if _is_compiled(code):
        return False
    instruction = code.co_code[entry.tb_lasti]
    if instruction in CHECKPOINTS:
        return True
    if instruction in RAISING or isinstance(error, RAISED_EMPTY):
        return False
    try:
        return bool(type(error)().args == error.args)
    except Exception:  # it cannot be made without arguments
        return False


def _is_compiled(code: CodeType) -> bool:
    """Whether the frame stands for compiled code (Cython: pyarrow, numpy.random), which runs no instructions of Python.

    Its code object is the stub that PyCode_NewEmpty makes; a function has at least a constant, a name or a variable.
    """
    return not (code.co_consts or code.co_names or code.co_varnames)
