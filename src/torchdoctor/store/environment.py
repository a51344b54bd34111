"""What it takes to reproduce a run: command line, code, packages, hardware. No secrets, no names of users or hosts."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torchdoctor.scrubbing import scrub_argv
from torchdoctor.store.origin import ORIGIN, sign
from torchdoctor.store.repository import read_git

PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "pyarrow",
    "torchvision",
    "torchaudio",
    "triton",
    "lightning",
    "pytorch-lightning",
    "transformers",
    "accelerate",
    "datasets",
    "trl",
    "peft",
    "deepspeed",
    "timm",
    "scikit-learn",
)
VARIABLES = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED", "RANK", "WORLD_SIZE", "LOCAL_RANK")
"""The only environment variables whose values are written."""

MAX_SCRIPT = 2_000_000
WAIT_SECONDS = 0.2
"""describe() waits so long for git; what comes later goes to `on_git`."""


def describe(argv: Sequence[str], on_git: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """The fields of run.json that say how to run it again. Never fails; takes at most some 0.3 s.

    Where git is slow, "git" is missing from the answer and handed to `on_git` when it is known, from another thread.
    """
    git = _GitLook(on_git)
    found: dict[str, Any] = {"argv": scrub_argv(argv)}
    parts: dict[str, Callable[[], Any]] = {
        "cwd": lambda: without_home(Path.cwd()),
        "script_sha256": lambda: digest_script(Path(argv[0])),
        ORIGIN: lambda: sign(found),
        "python": lambda: {"version": platform.python_version(), "executable": without_home(Path(sys.executable))},
        "platform": lambda: f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": _packages,
        "hardware": _hardware,
        "environment": lambda: {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    for name, look in parts.items():
        with contextlib.suppress(Exception):
            found[name] = look()
    known = git.wait(WAIT_SECONDS)
    if known is not None:
        found["git"] = known
    return found


def without_home(path: Path) -> str:
    """The path with the home folder, which holds the user's name, written as ~."""
    with contextlib.suppress(RuntimeError, ValueError):
        return str("~" / path.relative_to(Path.home()))
    return str(path)


def digest_script(path: Path) -> str:
    """SHA-256 of a Python file, by which it is known whether it has changed; empty where it is none."""
    with contextlib.suppress(OSError, ValueError):  # a name that no file can have
        if path.suffix == ".py" and path.is_file() and path.stat().st_size <= MAX_SCRIPT:
            return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def _packages() -> dict[str, str]:
    """Versions from the installed packages' own records; nothing is imported."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(Exception):
            found[name] = importlib.metadata.version(name)
    return found


def _hardware() -> dict[str, Any]:
    found: dict[str, Any] = {"cpu": _cpu_model(), "cores": os.cpu_count()}
    with contextlib.suppress(ValueError, OSError, AttributeError):
        found["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    gpus = _gpus()
    if gpus:
        found["gpus"] = gpus
    return found


def _cpu_model() -> str:
    with contextlib.suppress(OSError), Path("/proc/cpuinfo").open() as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpus() -> list[str]:
    """Names of the GPUs if the program has set CUDA up already: asking earlier would do it in its place."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return []
    return [cuda.get_device_name(i) for i in range(cuda.device_count())]


class _GitLook:
    """Asks git in a thread, so that nobody waits for a slow file system."""

    def __init__(self, on_late: Callable[[dict[str, Any]], None] | None) -> None:
        self._on_late = on_late
        self._lock = threading.Lock()
        self._found: dict[str, Any] | None = None
        self._late = False
        self._done = threading.Event()
        threading.Thread(target=self._look, name="torchdoctor-git", daemon=True).start()

    def _look(self) -> None:
        with contextlib.suppress(Exception):
            found = read_git(Path.cwd())
            with self._lock:
                self._found = found
                late = self._late
            if late and found and self._on_late is not None:
                self._on_late(found)
        self._done.set()

    def wait(self, seconds: float) -> dict[str, Any] | None:
        self._done.wait(seconds)
        with self._lock:
            self._late = True
            return self._found or None
