"""Runs a program at the bottom of the stack, with one frame of ours below it instead of some fifteen.

Frames below a script show: in its stacks, in warnings addressed to its caller, in how deep it may recurse. They cannot
be taken away while our command line runs, so it comes to its end by an exception, and the interpreter calls
sys.excepthook once nothing is left on the stack. From there the program runs and the process exits.
"""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any, NoReturn

from torchdoctor.attach.script import Around, Program, conclude, without_frame

FRAMES_BELOW = 1
"""The recursion limit is raised by so many: that of `_arrive`."""
OURS = ("torchdoctor", "torchdoctor.exe", "torchdoctor/__main__.py", "torchdoctor\\__main__.py")
"""Ends of the names of files that do nothing but start the command line."""
TEXT = "<string>"
"""The file of what `python -c` runs, and so of launching.own_module."""


class Departure(Exception):  # noqa: N818 - it is no error
    """The command line ends here, and the program begins. Its steps give the exit status."""

    def __init__(self, program: Program, steps: Around[int]) -> None:
        super().__init__("torchdoctor's command line has ended")
        self.program, self.steps = program, steps


def depart(departure: Departure) -> NoReturn:
    """Run the program at the bottom of the stack if that is ours; otherwise from here. Exits with its status."""
    program, steps = departure.program, departure.steps
    if not _is_ours(sys._getframe(1)):
        error = None
        try:
            program()
        except BaseException as raised:
            error = without_frame(raised)
        sys.exit(conclude(steps, error))
    _BEFORE.update(hook=sys.excepthook, main=sys.modules.get("__main__"))
    sys.excepthook = _arrive
    raise departure.with_traceback(None)


_BEFORE: dict[str, Any] = {}
"""The hook that was in our place, and the module `__main__`, in which the interpreter cleans up at the end."""


def _arrive(kind: type[BaseException], departure: BaseException, trace: TracebackType | None) -> None:
    sys.excepthook = _BEFORE["hook"]
    if not isinstance(departure, Departure):
        return sys.excepthook(kind, departure, trace)
    del sys.last_type, sys.last_value, sys.last_traceback
    if sys.version_info >= (3, 12):
        del sys.last_exc
    program, steps = departure.program, departure.steps
    del kind, departure, trace
    sys.setrecursionlimit(sys.getrecursionlimit() + FRAMES_BELOW)
    error = None
    try:
        program()
    except BaseException as raised:
        error = without_frame(raised)
    sys.exit(conclude(steps, error))


# Warnings that a script addresses to its caller skip frames whose file has these two words in its name.
_arrive.__code__ = _arrive.__code__.replace(co_filename=f"{__file__} (importlib._bootstrap)")


def _is_ours(frame: FrameType | None) -> bool:
    """Whether nothing is below but what started us, and that does nothing after us."""
    while frame is not None and frame.f_globals.get("__name__") == "torchdoctor.cli":
        frame = frame.f_back
    if frame is None or frame.f_code.co_name != "<module>" or not frame.f_code.co_filename.endswith(OURS):
        return False
    top, frame = frame, frame.f_back
    while frame is not None and frame.f_globals.get("__name__") == "runpy":
        frame = frame.f_back
    if frame is not None and frame.f_code.co_filename == TEXT and frame.f_globals is top.f_globals:
        frame = frame.f_back
    return frame is None and not sys.flags.inspect
