"""The same numbers again: all seeds and switches of a training in one call, and what they do not reach, in words."""

from __future__ import annotations

import os
import random
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchdoctor.errors import UsageError
from torchdoctor.instruments.state import Randomness
from torchdoctor.instruments.tables import listed

if TYPE_CHECKING:
    from types import TracebackType

    from torchdoctor.instruments.repeating.cost import DeterminismCost

CUBLAS = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES = (":4096:8", ":16:8")
"""With one of these cuBLAS gives the same sums in every run (NVIDIA, "cuBLAS: Results Reproducibility"); the second
needs less memory and is slower."""
MOST = 2**32
"""numpy takes seeds below this."""
WITHOUT = re.compile(r"(\S+) does not have a deterministic implementation")
"""How torch warns of an operation, or refuses it."""


@dataclass(frozen=True)
class Switches:
    """Everything but seeds that decides whether torch repeats itself."""

    algorithms: bool
    warn_only: bool
    cudnn_deterministic: bool
    cudnn_benchmark: bool

    @classmethod
    def now(cls) -> Switches:
        return cls(
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.backends.cudnn.deterministic,
            torch.backends.cudnn.benchmark,
        )

    def set(self) -> None:
        torch.use_deterministic_algorithms(self.algorithms, warn_only=self.warn_only)
        torch.backends.cudnn.deterministic = self.cudnn_deterministic
        torch.backends.cudnn.benchmark = self.cudnn_benchmark


class Determinism:
    """What `deterministic()` gives: in force from the call on, and put back by `restore()` or the end of a `with`."""

    def __init__(
        self, seed: int, *, warn_only: bool = False, workspace: str = WORKSPACES[0], quiet: bool = False
    ) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < MOST:
            raise UsageError(
                f"seed is {seed!r}; a whole number from 0 to {MOST - 1} is needed, as numpy takes no other"
            )
        if workspace not in WORKSPACES:
            raise UsageError(f"workspace is {workspace!r}; cuBLAS repeats itself with {' or '.join(WORKSPACES)}")
        self.seed = seed
        self.warn_only = warn_only
        self.notes: list[str] = []
        """what it does not reach"""
        self.nondeterministic: list[str] = []
        """operations without a deterministic form that were met since"""
        self.generator = torch.Generator().manual_seed(seed)
        self._workspace = workspace
        self._quiet = quiet
        self._active = False
        self._apply()

    def loader_options(self) -> dict[str, Any]:
        """For a DataLoader, each with a generator of its own: `DataLoader(data, 32, shuffle=True, **options)`."""
        return {"generator": torch.Generator().manual_seed(self.seed), "worker_init_fn": seed_worker}

    @property
    def worker_init_fn(self) -> Callable[[int], None]:
        return seed_worker

    def restore(self) -> None:
        """Switches, environment, warnings and all generators as they were before."""
        if not self._active:
            return
        self._active = False
        self._before.set()
        if self._cublas is None:
            os.environ.pop(CUBLAS, None)
        else:
            os.environ[CUBLAS] = self._cublas
        self._ear.remove()
        self._randomness.put_back()
        if torch.cuda.is_available() and not self._cuda_was_up:
            torch.cuda.manual_seed_all(torch.initial_seed())

    def cost(self, step: Callable[[], Any], **options: Any) -> DeterminismCost:
        """What it costs, measured on a training step of yours; takes what `determinism_cost` takes."""
        from torchdoctor.instruments.repeating.cost import determinism_cost

        benchmark = self._before.cudnn_benchmark if self._active else None
        return determinism_cost(step, **{"benchmark": benchmark} | options)

    def __enter__(self) -> Determinism:
        if not self._active:
            self._apply()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._note_operation(str(error))
        self.restore()

    def __str__(self) -> str:
        met = "operations that cannot repeat themselves only warn" if self.warn_only else "others raise an error"
        lines = [
            f"Seeded with {self.seed}: Python, numpy, torch on the CPU and on every CUDA device.",
            f"torch takes deterministic algorithms only ({met}); cuDNN does not try out which is fastest.",
        ]
        if self.nondeterministic:
            lines.append(f"Not deterministic, and met since: {listed(self.nondeterministic)}.")
        lines += ["", "What this does not reach:", *(f"- {note}" for note in self.notes)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Determinism seed={self.seed} {'in force' if self._active else 'put back'}>"

    def _apply(self) -> None:
        self._before = Switches.now()
        self._cublas = os.environ.get(CUBLAS)
        self._cuda_was_up = torch.cuda.is_initialized()
        self._randomness = Randomness()
        self._ear = _Ear(self._note_operation, self._quiet)
        self._active = True
        self.notes = _unreached(self._cublas, self._cuda_was_up)
        if self._cublas not in WORKSPACES:
            os.environ[CUBLAS] = self._workspace
        Switches(True, self.warn_only, True, False).set()
        random.seed(self.seed)
        np.random.seed(self.seed)
        torch.manual_seed(self.seed)
        self.generator.manual_seed(self.seed)

    def _note_operation(self, text: str) -> None:
        found = WITHOUT.search(text)
        if found and found[1] not in self.nondeterministic:
            self.nondeterministic.append(found[1])


def deterministic(seed: int = 0, *, warn_only: bool = False, workspace: str = WORKSPACES[0]) -> Determinism:
    """Seed everything and let torch only use what gives the same numbers every time.

        torchdoctor.deterministic(0)                      # from here on, or
        with torchdoctor.deterministic(0) as d:           # in here, and all as before afterwards
            loader = DataLoader(data, 32, shuffle=True, **d.loader_options())

    Call it first, before anything touches the GPU: cuBLAS reads its setting once. Operations without a deterministic
    form raise, or with `warn_only` warn and are listed in `nondeterministic`. `print` it to see what it does not reach.
    New memory is filled with NaN meanwhile, so that reading it before it was written shows; see
    torch.utils.deterministic.fill_uninitialized_memory.
    """
    return Determinism(seed, warn_only=warn_only, workspace=workspace)


def seed_worker(worker_id: int) -> None:
    """For DataLoader's worker_init_fn: Python and numpy follow the seed that torch gave this worker."""
    seed = torch.initial_seed() % MOST
    random.seed(seed)
    np.random.seed(seed)


class _Ear:
    """Hears of every operation that torch warns of, and lets the first warning of each through, if not quiet."""

    def __init__(self, heard: Callable[[str], None], quiet: bool) -> None:
        self._heard, self._quiet = heard, quiet
        self._told: set[str] = set()
        self._listening = True
        self._original = warnings.showwarning
        warnings.filterwarnings("always", message=f".*{WITHOUT.pattern}")
        self._filter = warnings.filters[0]
        self._shown = self._show
        warnings.showwarning = self._shown

    def _show(self, message: Any, *rest: Any, **options: Any) -> None:
        found = WITHOUT.search(str(message)) if self._listening else None
        if found:
            self._heard(str(message))
            if self._quiet or found[1] in self._told:
                return
            self._told.add(found[1])
        self._original(message, *rest, **options)

    def remove(self) -> None:
        """If somebody has taken its place since, it stays there and only passes on."""
        self._listening = False
        if self._filter in warnings.filters:
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]
        if warnings.showwarning is self._shown:
            warnings.showwarning = self._original


def _unreached(cublas: str | None, cuda_is_up: bool) -> list[str]:
    notes = []
    if cuda_is_up and cublas not in WORKSPACES:
        notes.append(
            f"matrix products on the GPU: CUDA was in use before {CUBLAS} was set, which is too late for this process; "
            f"start it with {CUBLAS}={WORKSPACES[0]}, or call deterministic() before anything touches the GPU"
        )
    if _at_start("PYTHONHASHSEED") in (None, "", "random"):
        notes.append(
            "the order of sets of strings, which differs from process to process: it is fixed when Python starts, with "
            "PYTHONHASHSEED=0 python ..., and not from inside"
        )
    notes.append("loaders with workers or shuffling of their own: give them loader_options()")
    notes.append(
        f"another machine, another version of torch, another number of threads (now {torch.get_num_threads()}): sums "
        "are taken in another order there"
    )
    if torch.cuda.is_available():
        notes.append("kernels of your own or of other libraries that add atomically")
    return notes


def _at_start(name: str) -> str | None:
    """Of the environment that Python was started with, where the system tells; setting it later has no effect."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return os.environ.get(name)
    prefix = f"{name}=".encode()
    return next((e[len(prefix) :].decode(errors="replace") for e in entries if e.startswith(prefix)), None)
