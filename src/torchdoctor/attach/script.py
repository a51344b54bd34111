"""Run the user's program in this process as python itself would, and say how it ended.

It gets a fresh `__main__`, its own argv and first entry of sys.path; an uncaught exception is shown by
sys.excepthook without our frames; threads that are not daemons are waited for. What python does at the very end
(atexit handlers, dying by SIGINT after a Ctrl-C) is left to the interpreter, which comes after us.

What comes before and after the program is a generator, so that none of its frames lies under the program's.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import functools
import hashlib
import linecache
import os
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, SourceFileLoader, SourcelessFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, TracebackType
from typing import Any, TypeVar

from torchdoctor.attach.shadowing import hide_own_modules, own_modules
from torchdoctor.attach.target import CODE, FOLDER, MODULE, Target
from torchdoctor.errors import ScriptError, StopTraining
from torchdoctor.interruptions import entries, find_handler, is_interruption
from torchdoctor.last_seen import CRASHED, FINISHED, INTERRUPTED
from torchdoctor.search_path import bring_back_own_folders

T = TypeVar("T")

INTERRUPTED_STATUS = 130
"""What a shell shows for a process that SIGINT ended."""

MESSAGE_LIMIT = 2000
"""Characters of an exception's message that are kept."""

PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"


@dataclass(frozen=True)
class Ending:
    """The exit status python would give, how it came to it, and what the finding said if one stopped it."""

    status: int
    how: str = FINISHED
    stopped: str | None = None
    exception: dict[str, Any] | None = None
    """of a crash: type, message, and file and line of the user's innermost frame"""
    signal: int | None = None
    """that killed a command"""


Program = Callable[[], Any]
Around = Generator[Program, BaseException | None, T]
"""Yields the program once everything is ready, is sent what ended it or None, and returns T."""


def execute(target: Target, leaving_early: Callable[[BaseException], None] = lambda _: None) -> Ending:
    """Run the program to its end, from where we are; see `around`."""
    steps = around(target, leaving_early)
    program, error = next(steps), None
    try:
        program()
    except BaseException as raised:
        error = without_frame(raised)
    return conclude(steps, error)


def without_frame(error: BaseException) -> BaseException:
    """For the frame that catches an exception: leave it out of the traceback."""
    trace = error.__traceback__
    return error.with_traceback(trace.tb_next if trace is not None else None)


def conclude(steps: Around[T], error: BaseException | None) -> T:
    try:
        steps.send(error)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a program runs once")


def around(target: Target, leaving_early: Callable[[BaseException], None] = lambda _: None) -> Around[Ending]:
    """Prepare the program, and say how it ended; ScriptError if a module cannot be found. `leaving_early` is called
    with what ends it before its end, while its frames are there."""
    interruption = _Interruption()
    atexit.register(interruption.die, os.getpid())
    main = _fresh_main()
    sys.modules["__main__"] = main
    sys.orig_argv = [sys.executable, *target.words]
    _set_path(target)
    error = yield from _run(target, main)
    if error is None:
        ending = Ending(0)
    elif isinstance(error, SystemExit):
        _refuse_if_not_found(target, error)
        if error.code not in (None, 0):
            leaving_early(error)
        ending = _left(error)
    else:
        leaving_early(error)
        ending = _failed(error)
    _wait_for_threads()
    interruption.happened = ending.status == INTERRUPTED_STATUS and ending.how == INTERRUPTED
    return ending


def _fresh_main() -> ModuleType:
    main = ModuleType("__main__")
    main.__loader__ = BuiltinImporter  # type: ignore[assignment]
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    return main


def _set_path(target: Target) -> None:
    """Put the script's folder first on sys.path, in place of the entry that python made for torchdoctor."""
    folders = {MODULE: os.getcwd, CODE: lambda: "", FOLDER: lambda: _spell(target.what)}
    first = folders.get(target.kind, lambda: str(Path(target.what).resolve().parent))()
    own = bring_back_own_folders()
    if target.kind == FOLDER or not getattr(sys.flags, "safe_path", False):
        sys.path[:1] = [first]
        hide_own_modules([first, *own], sys.path[1:])
    else:
        hide_own_modules(own, sys.path)


def _run(target: Target, main: ModuleType) -> Around[BaseException | None]:
    if target.kind in (MODULE, FOLDER):
        module = target.what if target.kind == MODULE else "__main__"
        sys.argv = ["-m" if target.kind == MODULE else target.what, *target.arguments]
        return (yield functools.partial(runpy._run_module_as_main, module, target.kind == MODULE))  # type: ignore[attr-defined]
    sys.argv = ["-c" if target.kind == CODE else target.what, *target.arguments]
    try:
        code = _compile_text(target.what) if target.kind == CODE else _load_file(target, main)
    except Exception as error:  # no such file, or a syntax error in it
        yield _do_nothing
        return error
    return (yield FunctionType(code, main.__dict__))  # as exec does, but without a frame for it


def _do_nothing() -> None:
    pass


def _compile_text(text: str) -> CodeType:
    if sys.version_info >= (3, 13):  # from there on python shows lines of such code in tracebacks
        linecache.cache["<string>"] = (len(text), None, text.splitlines(keepends=True), "<string>")
    return compile(f"{text}\n", "<string>", "exec", dont_inherit=True)


def _spell(path: str) -> str:
    """An absolute path as python spells it: what was given stays as it was, "./" and all."""
    return path if Path(path).is_absolute() else f"{Path.cwd()}{os.sep}{path}"


def _load_file(target: Target, main: ModuleType) -> CodeType:
    path = _spell(target.what)
    main.__file__ = path
    main.__cached__ = None  # type: ignore[attr-defined]
    if path.endswith(".pyc"):
        sourceless = SourcelessFileLoader("__main__", path)
        main.__loader__ = sourceless
        return sourceless.get_code("__main__")  # type: ignore[return-value]
    loader = SourceFileLoader("__main__", path)
    main.__loader__ = loader
    source = loader.get_data(path)
    if target.sha256 and hashlib.sha256(source).hexdigest() != target.sha256:
        raise ScriptError(f"{path} changed between its check and its start; run the command again")
    return compile(source, path, "exec", dont_inherit=True)


def _refuse_if_not_found(target: Target, leaving: SystemExit) -> None:
    """What runpy says of a module that is not there comes as a SystemExit; here it is a usage error."""
    error = leaving.__context__
    if not isinstance(error, runpy._Error):  # type: ignore[attr-defined]
        return
    _, hint, name = str(error).partition("Try using ")
    said = str(error.__cause__ or error).rstrip(".")
    way_out = f"try {name.rstrip('.')}" if hint else "modules are looked for"
    if not hint:
        way_out += f" in the current folder ({Path.cwd()}) and among the installed packages"
    words = target.words[:2] if target.kind == MODULE else target.words[:1]
    raise ScriptError(f"cannot run {' '.join(words)}: {said}; {way_out}") from None


def _left(leaving: SystemExit) -> Ending:
    """What sys.exit(...) means: nothing is 0, a number is the status, anything else is said and is 1."""
    code = leaving.code
    if code is None:
        return Ending(0)
    if isinstance(code, int):
        return Ending(int(code), FINISHED if int(code) == 0 else CRASHED)
    if sys.stderr is not None:
        print(code, file=sys.stderr, flush=True)
    return Ending(1, CRASHED)


def _failed(error: BaseException) -> Ending:
    if isinstance(error, StopTraining):
        return Ending(error.status, INTERRUPTED, str(error))
    if _was_stopped_in_child(error):
        return Ending(0, INTERRUPTED, str(error).rstrip().rpartition(f"{StopTraining.__name__}: ")[2])
    trace = _without_our_frames(error.__traceback__)
    if isinstance(error, KeyboardInterrupt) or is_interruption(error):
        trace = without_sites(trace)
    leaving = _show(error.with_traceback(trace))
    if leaving is not None:
        return _left(leaving)
    if isinstance(error, KeyboardInterrupt):
        return Ending(INTERRUPTED_STATUS, INTERRUPTED)
    return Ending(1, CRASHED, exception=describe_error(error))


def describe_error(error: BaseException) -> dict[str, Any]:
    """An exception as run.json keeps it."""
    with own_modules():
        from torchdoctor.attach.places import is_user_file
        from torchdoctor.scrubbing import scrub_text

    message = scrub_text(_message_of(error))  # before it is cut: half a secret would not be recognised
    told: dict[str, Any] = {"type": type(error).__name__, "message": message[:MESSAGE_LIMIT]}
    for frame, line in traceback.walk_tb(error.__traceback__):
        if is_user_file(frame.f_code.co_filename):
            told.update(file=frame.f_code.co_filename, line=line)
    return told


def _message_of(error: BaseException) -> str:
    try:
        return str(error)[: 4 * MESSAGE_LIMIT]
    except Exception:
        return "<exception str() failed>"  # python's own words for it


def _was_stopped_in_child(error: BaseException) -> bool:
    """torch.multiprocessing.spawn hands on a child's exception as text."""
    name = f"{StopTraining.__module__}.{StopTraining.__name__}: "
    return type(error).__name__ == "ProcessRaisedException" and name in str(error)


def _without_our_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def without_sites(trace: TracebackType | None) -> TracebackType | None:
    """The traceback of an exception from outside that came while code of ours ran: the script's own frames."""
    above: list[TracebackType] = []
    for entry in entries(trace):
        if entry.tb_frame.f_code.co_filename.startswith(PACKAGE):
            shown = find_handler(entry)
            for one in reversed(above):
                shown = TracebackType(shown, one.tb_frame, one.tb_lasti, one.tb_lineno)
            return shown
        above.append(entry)
    return trace


def _show(error: BaseException) -> SystemExit | None:
    """Show an uncaught exception as python does; a SystemExit that the user's hook raised comes back."""
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error  # type: ignore[attr-defined]
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as leaving:
        return leaving
    except BaseException as second:
        second.__context__ = None
        _print("Error in sys.excepthook:", second.with_traceback(_without_our_frames(second.__traceback__)))
        _print("\nOriginal exception was:", error)
    return None


def _print(heading: str, error: BaseException) -> None:
    if sys.stderr is not None:
        print(heading, file=sys.stderr)
        traceback.print_exception(type(error), error, error.__traceback__)


def _wait_for_threads() -> None:
    """What the interpreter does first when it ends, done earlier: atexit handlers and our verdict come after it."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException as error:
        _print(f"Exception ignored in: {threading!r}", error.with_traceback(_without_our_frames(error.__traceback__)))


class _Interruption:
    """After a Ctrl-C python ends its own life by SIGINT, so that a shell sees it; so do we, last of all."""

    def __init__(self) -> None:
        self.happened = False

    def die(self, pid: int) -> None:
        if self.happened:
            die_by(signal.SIGINT, pid)


def die_by(number: int, pid: int) -> None:
    """End this process by a signal, so that whoever waits for it sees that; nothing in any other process than `pid`."""
    if os.getpid() != pid:
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    with contextlib.suppress(OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    with contextlib.suppress(ImportError, OSError, ValueError):
        with own_modules():
            import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.kill(pid, number)
