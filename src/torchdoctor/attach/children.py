"""Follow training into child processes: those multiprocessing spawns, and python started by a command.

A spawned child gets a passenger in the data that multiprocessing sends it, and attaches when it unpickles that. A
child of `torchdoctor run -- COMMAND` finds our sitecustomize on its PYTHONPATH. A forked child is inert, and so are
processes that never train: loader workers, managers, launchers, torch's compile workers.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any

from torchdoctor.attach.attachment import Attachment
from torchdoctor.attach.importing import after_import
from torchdoctor.attach.options import ENVIRONMENT_KEY, Options, is_disabled
from torchdoctor.attach.script import describe_error
from torchdoctor.attach.shadowing import hide_from_running_script
from torchdoctor.attach.voice import say
from torchdoctor.errors import StopTraining
from torchdoctor.last_seen import CRASHED, FINISHED, INTERRUPTED

PASSENGER_KEY = "torchdoctor"
INERT_TARGETS = ("torch.utils.data.", "multiprocessing.managers", "torch._inductor")
"""Modules whose functions run as processes that load data, share state or compile, but never train."""

LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed", "fabric", "lightning", "torchdoctor"})
LAUNCHER_MODULES = (
    *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands", "deepspeed.launcher"),
    *("lightning.fabric", "torch._inductor", "torchdoctor"),
)
LAUNCHER_PATHS = tuple(f"{os.sep}{name.replace('.', os.sep)}{os.sep}" for name in ("torch._inductor",))
VALUED_FLAGS = frozenset({"-W", "-X", "--check-hash-based-pycs"})
"""Options of python that take the next word."""

AFTER_THE_LAST_CHILD = -100
"""Priority at multiprocessing's exit: below zero comes after it has joined its own children."""


def follow(options: Options) -> None:
    """Have processes that multiprocessing spawns from here on attach themselves."""
    after_import("multiprocessing.spawn", functools.partial(_send_passengers, replace(options, shared=True).to_json()))


def _send_passengers(options: str, spawn: ModuleType) -> None:
    prepare = spawn.get_preparation_data
    if hasattr(prepare, "__torchdoctor_original__"):
        return

    @functools.wraps(prepare)
    def get_preparation_data(*args: Any, **kwargs: Any) -> dict[str, Any]:
        data = prepare(*args, **kwargs)
        if not _starts_helper(sys._getframe(1)):
            data[PASSENGER_KEY] = Passenger(options)
        return data

    get_preparation_data.__torchdoctor_original__ = prepare  # type: ignore[attr-defined]
    spawn.get_preparation_data = get_preparation_data  # type: ignore[attr-defined]


def watch_for_exec(notice: Callable[[], None]) -> None:
    """Call `notice` once before the process replaces itself by another program: nothing of us outlives that."""
    noticed: list[bool] = []

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def replace_process(*args: Any, **kwargs: Any) -> Any:
            if not noticed:
                noticed.append(True)
                notice()
            return original(*args, **kwargs)

        return replace_process

    os.execv, os.execve = wrap(os.execv), wrap(os.execve)


def _starts_helper(caller: FrameType) -> bool:
    """Whether the process about to start is known not to train, by the function it will run."""
    process = caller.f_locals.get("process_obj")
    module = getattr(getattr(process, "_target", None), "__module__", None) or ""
    return module.startswith(INERT_TARGETS)


class Passenger:
    """Unpickling it attaches the process it arrives in; where torchdoctor is not installed it does nothing."""

    def __init__(self, options: str) -> None:
        self.options = options

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        root = str(Path(__file__).parents[2])
        code = (
            "import sys\n"
            "try:\n"
            "    import torchdoctor\n"
            "except ImportError:\n"
            f"    sys.path.append({root!r})\n"
            "try:\n"
            "    from torchdoctor.attach.children import arrive\n"
            f"    arrive({self.options!r})\n"
            "except Exception:\n"
            "    pass\n"
        )
        return exec, (code, {})


def arrive(options: str) -> None:
    """Attach a process that multiprocessing has just started."""
    from multiprocessing import util

    if is_disabled():
        return
    attachment = _attach(Options.from_json(options))
    _finish_with_process(attachment)
    # A process of the forkserver forgets its finalizers when it starts to run; what follows a fork runs just then.
    util.register_after_fork(attachment, _finish_with_process)
    _KEPT.append(attachment)


_KEPT: list[Attachment] = []


def _finish_with_process(attachment: Attachment) -> None:
    from multiprocessing import util

    if attachment.is_here:
        end = _ProcessEnd(attachment)
        end.watch()
        util.Finalize(None, end.finish, exitpriority=AFTER_THE_LAST_CHILD)


class _ProcessEnd:
    """How a process of multiprocessing ends: by the exception on its way where that is seen, else by its exit code."""

    def __init__(self, attachment: Attachment) -> None:
        self._attachment = attachment
        self._code = 0

    def watch(self) -> None:
        """From python 3.13 on the exception is gone when finalizers run; the exit code is known just before."""
        with contextlib.suppress(Exception):
            threading._register_atexit(self._read_code)  # type: ignore[attr-defined]

    def _read_code(self) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_name != "_bootstrap":
            frame = frame.f_back
        code = frame.f_locals.get("exitcode") if frame is not None else 0
        self._code = code if isinstance(code, int) else 0

    def finish(self) -> None:
        error = sys.exc_info()[1]
        if error is None and self._code:
            self._attachment.finish(CRASHED)
        else:
            _finish(self._attachment, error)


def _finish(attachment: Attachment, error: BaseException | None) -> None:
    how = _how(error)
    shown = error.__context__ if isinstance(error, SystemExit) and error.__context__ is not None else error
    attachment.finish(how, describe_error(shown) if shown is not None and how == CRASHED else None)


def _how(error: BaseException | None) -> str:
    if error is None or (isinstance(error, SystemExit) and not error.code):
        return FINISHED
    return INTERRUPTED if isinstance(error, KeyboardInterrupt | StopTraining) else CRASHED


def join_command(_torch: ModuleType) -> None:
    """Attach a process that a command under `torchdoctor run --` has started; called when it imports torch."""
    if is_disabled() or is_launcher(sys.orig_argv):
        return
    options = Options.from_json(os.environ[ENVIRONMENT_KEY])
    attachment = _attach(options)
    atexit.register(lambda: _finish(attachment, getattr(sys, "last_value", None)))
    if options.stop_on:
        sys.excepthook = functools.partial(_leave_quietly, sys.excepthook)


def send_passengers(spawn: ModuleType) -> None:
    """Called when a process under `torchdoctor run --` imports multiprocessing.spawn."""
    _send_passengers(os.environ[ENVIRONMENT_KEY], spawn)


def _attach(options: Options) -> Attachment:
    attachment = Attachment(options, examines=False)
    after_import("torch", lambda _: hide_from_running_script())
    attachment.begin()
    follow(options)
    return attachment


def _leave_quietly(
    shown: Callable[..., Any], kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """An excepthook: a stop that the user asked for ends the process with status 0 and one line."""
    if not isinstance(error, StopTraining):
        shown(kind, error, trace)
        return
    say(f"{error} (--stop-on)")
    raise SystemExit(0)


def is_launcher(command: Sequence[str]) -> bool:
    """Whether a python command line is one that starts other processes, or serves them, and never trains itself."""
    words = iter(command[1:])
    for word in words:
        if word in VALUED_FLAGS:
            next(words, None)
        elif word.startswith("-m"):
            return (word[2:] or next(words, "")).startswith(LAUNCHER_MODULES)
        elif word.startswith("-c"):
            return (word[2:] or next(words, "")).lstrip().startswith("from multiprocessing.")
        elif not word.startswith("-"):
            return Path(word).stem in LAUNCHERS or any(path in word for path in LAUNCHER_PATHS)
    return False
