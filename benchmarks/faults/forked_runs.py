"""A recorded script in a copy of this process, which has torch and torchdoctor loaded: seconds in place of tens."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib
import os
import resource
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness import DOCTOR, ENV, SCRIPTS, Ended, command, fresh, inside

CLONE_NEWNS = 0x20000


def preload() -> None:
    """What a training imports by and by, with torchdoctor and without."""
    os.environ.update(ENV)
    for name in (
        "torch",
        "numpy",
        "torch._dynamo",
        "torch.utils.data",
        "torch.optim",
        "torch.func",
        "torch.distributed",
    ):
        importlib.import_module(name)
    folder = fresh("preload")
    (folder / "case.py").write_text(
        (SCRIPTS / "plain.py").read_text()
        + "\nimport atexit, sys\natexit.register(lambda: print('@modules', *sys.modules))\n"
    )
    told = (
        forked([DOCTOR, "run", "--out", str(folder / "runs"), "case.py"], folder, True, 100)
        .out.decode()
        .partition("@modules")[2]
    )
    for name in told.split():
        if (
            name.partition(".")[0] in ("torchdoctor", "pyarrow", "click")
            and name not in sys.modules
            and "sitecustomize" not in name
        ):
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def perform(words: list[str], folder: Path, under: bool) -> int | None:
    """In the child: the script, or torchdoctor with it, to its end; the exit status."""
    try:
        if under:
            return command(*words[1:])()
        sys.argv = words[1:]
        sys.path[0] = str(folder)
        runpy.run_path(str(folder / words[1]), run_name="__main__")
    except SystemExit as gone:
        if isinstance(gone.code, int) or gone.code is None:
            return gone.code
        print(gone.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()


def forked(words: list[str], folder: Path, under: bool, seconds: float) -> Ended:
    def act() -> int | None:
        os.chdir(folder)
        return perform(words, folder, under)

    return inside(act, seconds, memory=64 << 30)


def in_own_mounts(
    folder,
    words,
    under,
    seconds,
    prepare="",
    half="",
    env=None,
    uid=0,
    limits=None,
    before: Callable[[], None] | None = None,
) -> Ended:
    """As forked(), in a namespace of its own mounts. `prepare` and `half` are shell; `half` runs when `half` is printed."""
    out, err = folder / "out", folder / "err"
    begun = time.monotonic()
    pid = os.fork()
    if not pid:
        os.setsid()
        rc = 70
        try:
            os.dup2(os.open(out, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666), 1)
            os.dup2(os.open(err, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o666), 2)
            if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
                raise OSError("unshare")
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            os.chdir(folder)
            subprocess.run(["bash", "-c", prepare or "true"], stdout=subprocess.DEVNULL)
            for name, value in (env or {}).items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            for name, value in (limits or {}).items():
                resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
            if uid:
                os.setgroups([]), os.setresgid(uid, uid, uid), os.setresuid(uid, uid, uid)
            if before:
                before()
            rc = perform(words, folder, under) or 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
            os._exit(rc)
    rc, done_half = None, not half
    while time.monotonic() - begun < seconds:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            rc = os.waitstatus_to_exitcode(status)
            break
        if not done_half and out.exists() and b"half" in out.read_bytes():
            time.sleep(0.9)
            subprocess.run(["nsenter", "-t", str(pid), "-m", "bash", "-c", half], cwd="/", stdout=subprocess.DEVNULL)
            done_half = True
        time.sleep(0.02)
    if rc is None:
        os.killpg(pid, 9)
        os.waitpid(pid, 0)
    return Ended(rc, out.read_bytes(), err.read_bytes(), time.monotonic() - begun, 0)
