"""What every test of the campaign needs: starting things within limits, and one line a test."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BIN = Path(os.environ.get("TD_BIN") or Path(sys.executable).parent)
PYTHON, DOCTOR = str(BIN / "python"), str(BIN / "torchdoctor")
HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
WORK = Path(os.environ.get("TD_WORK", "/tmp/td-faults"))
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "100"}
ENV.pop("TORCHDOCTOR_DISABLE", None)
GIB = 1 << 30

TESTS: dict[str, Callable[[], Iterator[Line] | Line]] = {}


@dataclass
class Line:
    """One line of the campaign's table."""

    name: str
    tried: int
    failed: int
    notes: list[str] = field(default_factory=list)


@dataclass
class Ended:
    rc: int | None
    out: bytes
    err: bytes
    seconds: float
    peak: int
    """bytes of the largest process among it and those it waited for"""

    @property
    def said(self) -> str:
        return (self.out + self.err).decode(errors="replace")

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.said

    @property
    def hung(self) -> bool:
        return self.rc is None


def campaign_test(name: str):
    def keep(function):
        TESTS[name] = function
        return function

    return keep


def start(
    command: Sequence[str], cwd: Path, env=None, before=None, stdin=subprocess.DEVNULL, **named
) -> subprocess.Popen:
    return subprocess.Popen(
        list(command),
        cwd=cwd,
        env={**ENV, **(env or {})},
        stdin=stdin,
        start_new_session=True,
        preexec_fn=before,
        **named,
    )


def call(command: Sequence[str], cwd: Path, seconds=60.0, env=None, before=None, stdin: bytes | None = None) -> Ended:
    """Run to the end or to the limit; all that it started is ended with it."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given = subprocess.PIPE if stdin is not None else subprocess.DEVNULL
        process = start(command, cwd, env, before, given, stdout=out, stderr=err)
        if stdin is not None:
            process.stdin.write(stdin)
            process.stdin.close()
        peak, rc = 0, None
        while time.monotonic() - begun < seconds:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                rc, peak = os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024
                break
            time.sleep(0.01)
        if rc is None:
            end_group(process)
        process.returncode = rc if rc is not None else -9
        out.seek(0), err.seek(0)
        return Ended(rc, out.read(), err.read(), time.monotonic() - begun, peak)


def end_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, 0)


def limit(**values: int) -> Callable[[], None]:
    """A function for `before`: limit(NOFILE=20, AS=...)"""

    def set_limits() -> None:
        for name, value in values.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))

    return set_limits


def fresh(name: str) -> Path:
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def runs_in(folder: Path) -> list[Path]:
    return (
        sorted(p for p in folder.glob("*") if (p / "run.json").exists() or any(p.glob("*.arrow")))
        if folder.is_dir()
        else []
    )


def inside(action: Callable[[], int | None], seconds: float = 20.0, memory: int = 4 * GIB) -> Ended:
    """The action in a forked child within limits, its output caught: a hundred commands without a hundred imports."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        sys.stdout.flush(), sys.stderr.flush()
        pid = os.fork()
        if not pid:
            os.setsid()
            os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
            now = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
            resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
            Path("/proc/self/clear_refs").write_text("5")
            rc = 70
            try:
                rc = action() or 0
            except SystemExit as gone:
                rc = gone.code if isinstance(gone.code, int) else (0 if gone.code is None else 1)
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                try:
                    sys.stdout.flush(), sys.stderr.flush()
                    peak = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
                    os.write(2, f"\n@peak {int(peak.split()[1]) * 1024}\n".encode())
                finally:
                    os._exit(rc)
        rc = None
        while time.monotonic() - begun < seconds:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                rc = os.waitstatus_to_exitcode(status)
                break
            time.sleep(0.005)
        if rc is None:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        out.seek(0), err.seek(0)
        text, mark, peak = err.read().rpartition(b"\n@peak ")
        text, peak = (text, int(peak)) if mark else (peak, 0)
        return Ended(rc, out.read(), text, time.monotonic() - begun, peak)


def command(*words: str) -> Callable[[], int | None]:
    """A torchdoctor command as an action for `inside`."""

    def act() -> int | None:
        sys.argv = ["torchdoctor", *words]
        from torchdoctor.cli import main

        return main()

    return act


def sample_run() -> Path:
    """A short healthy run, recorded once."""
    folder = WORK / "sample"
    if not runs_in(folder):
        call([DOCTOR, "run", "--out", str(folder), str(SCRIPTS / "plain.py")], WORK, 120)
    return runs_in(folder)[0]


def warm(run: Path | None = None) -> None:
    """Import what the commands import, so that their children need not."""
    if run is not None:
        for words in (("diagnose", str(run)), ("report", str(run), "-o", os.devnull)):

            def act(words=words) -> None:
                try:
                    command(*words)()
                finally:
                    print("\n@modules", *sys.modules)

            told = inside(act, 120).out.decode(errors="replace").partition("@modules")[2]
            for name in told.split():
                if name not in sys.modules and name != "torch" and not name.startswith(("torch.", "__")):
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)


def keep(line: Line) -> None:
    print(f"{line.name:<46} tried {line.tried:>5}  failed {line.failed:>4}", flush=True)
    for note in line.notes[:12]:
        print(f"    {note[:400]}", flush=True)
    with (WORK / "results.jsonl").open("a") as file:
        file.write(json.dumps({**line.__dict__, "at": time.strftime("%H:%M:%S")}) + "\n")
