"""What determinism costs a training step: the same step with and without it, in turns, by the median of the ratios."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from torchdoctor.attach.guard import unseen
from torchdoctor.distributions.intervals import median_interval
from torchdoctor.errors import UsageError
from torchdoctor.instruments.progress import progress_bar
from torchdoctor.instruments.repeating.determinism import CUBLAS, WORKSPACES, Determinism, Switches
from torchdoctor.instruments.result import Result, plain
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.tables import listed
from torchdoctor.plots.figure import new_figure
from torchdoctor.plots.palette import BLUE, ORANGE

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LEAST_ROUNDS = 6
"""Below it, a median has no 95 % interval."""

NOISY = 0.1
"""Width of the ratio's interval from which on a cost worth knowing could hide in it."""


@dataclass(frozen=True)
class DeterminismCost(Result):
    free: list[float]
    """seconds of the step as it was, round by round"""
    bound: list[float]
    """seconds of the step with determinism"""
    ratio: float
    """median over the rounds of the second over the first"""
    low: float
    high: float
    """its 95 % interval"""
    device: str
    nondeterministic: list[str]
    """operations that have no deterministic form"""
    notes: list[str]

    @property
    def verdict(self) -> str:
        if self.low <= 1 <= self.high and self.high - self.low > NOISY:
            return "Too noisy to tell what determinism costs: take more rounds, or a quieter machine"
        if self.low <= 1 <= self.high:
            return "Determinism costs nothing that could be measured"
        if self.ratio < 1:
            return f"The step is {1 - self.ratio:.0%} faster with determinism"
        if self.ratio >= 2:
            return f"The step takes {self.ratio:.2g} times as long with determinism"
        return f"Determinism makes the step {self.ratio - 1:.0%} slower"

    def __str__(self) -> str:
        lines = [
            f"{self.verdict}.",
            "",
            f"median {_time(self.bound)} with it and {_time(self.free)} without, {len(self.free)} rounds in turns on "
            f"the {self.device}; ratio {self.ratio:.3f} (95% interval {self.low:.3f} to {self.high:.3f})",
        ]
        if self.nondeterministic:
            lines.append(
                f"without a deterministic form, and so not the same every time: {listed(self.nondeterministic)}"
            )
        return "\n".join([*lines, *(f"note: {n}" for n in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | plain({"verdict": self.verdict})

    def plot(self) -> Figure:
        drawing = new_figure(self.verdict, "", "milliseconds a step", showlegend=False)
        for name, seconds, colour in (("without", self.free, BLUE), ("with determinism", self.bound, ORANGE)):
            drawing.add_box(y=[1e3 * s for s in seconds], name=name, boxpoints="all", marker={"color": colour})
        return drawing


@unseen()
def determinism_cost(
    step: Callable[[], Any],
    *,
    rounds: int = 20,
    warmup: int = 3,
    model: nn.Module | None = None,
    optimizer: Any = None,
    benchmark: bool | None = None,
    progress: bool = True,
) -> DeterminismCost:
    """Time `step()`, a whole training step of yours without arguments, with and without determinism, in turns.

    Hand over `model` and `optimizer` to have them put back afterwards; random states are in any case. `benchmark` is
    what cuDNN's search for the fastest algorithm is set to without determinism; else it is as it is now. Operations
    that have no deterministic form are listed, not refused. cuBLAS's setting stays the same on both sides.
    """
    if not callable(step):
        raise UsageError(f"step is a {type(step).__name__}; a function without arguments that makes one training step")
    if rounds < LEAST_ROUNDS or warmup < 0:
        raise UsageError(f"rounds is {rounds} and warmup {warmup}; at least {LEAST_ROUNDS} and 0 are needed")
    before = Switches.now()
    free = Switches(False, False, False, before.cudnn_benchmark if benchmark is None else benchmark)
    kept = untouched(model, optimizer) if model is not None else contextlib.nullcontext()
    times: tuple[list[float], list[float]] = ([], [])
    with kept, Determinism(0, warn_only=True, quiet=True) as bound:
        arms = free, Switches.now()
        with progress_bar("determinism", rounds + warmup, progress) as advance:
            for turn in range(-warmup, rounds):
                for arm in (0, 1) if turn % 2 else (1, 0):
                    arms[arm].set()
                    seconds = _time_of(step)
                    if turn >= 0:
                        times[arm].append(seconds)
                advance()
    ratios = np.asarray(times[1]) / np.asarray(times[0])
    return DeterminismCost(
        *times,
        float(np.median(ratios)),
        *median_interval(ratios.tolist()),
        "GPU" if torch.cuda.is_initialized() else "CPU",
        list(bound.nondeterministic),
        _notes(model),
    )


def _time_of(step: Callable[[], Any]) -> float:
    _wait()
    began = perf_counter()
    step()
    _wait()
    return perf_counter() - began


def _wait() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _notes(model: nn.Module | None) -> list[str]:
    notes = []
    if torch.cuda.is_initialized():
        notes.append(
            f"the smaller workspaces of cuBLAS ({CUBLAS}={WORKSPACES[0]}) cannot be switched and are not in it"
        )
    if model is None:
        notes.append("whatever the steps changed stays changed; hand over model= and optimizer= to have it put back")
    return notes


def _time(seconds: list[float]) -> str:
    middle = float(np.median(seconds))
    return f"{1e3 * middle:.3g} ms" if middle < 1 else f"{middle:.3g} s"
