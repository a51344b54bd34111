"""What a schedule will do, found by running a copy of it; optimizer and scheduler stay as they are."""

from __future__ import annotations

import collections
import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from torchdoctor.errors import UsageError
from torchdoctor.instruments.result import Result, plain
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import new_figure
from torchdoctor.plots.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY
from torchdoctor.rules.curves import figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SAME = 1e-9
"""Two rates that differ by less than this share of the largest are equal: the rest is rounding."""
TURN = 0.01
"""A way back of less than this share of the whole range is no turn: torch's OneCycleLR ends with a tiny one."""
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)


@dataclass(frozen=True)
class SchedulePreview(Result):
    name: str
    steps: list[int]
    """of the optimizer; a scheduler that is under way begins at its own"""
    rates: list[list[float]]
    """for each parameter group, the rate that each step takes"""
    momenta: list[list[float]] | None
    """momentum or the first beta, if it changes"""
    every: int
    error: str | None
    """why the schedule did not go on"""

    @property
    def verdict(self) -> str:
        return _words(np.asarray(self.rates[0]), self.steps)

    def __str__(self) -> str:
        rate = np.asarray(self.rates[0])
        lines = [f"{self.name}: {self.verdict}.", ""]
        for group, own in enumerate(self.rates):
            named = f"group {group}: " if len(self.rates) > 1 else ""
            top = self.steps[int(np.argmax(own))]
            lines.append(
                f"{named}first {figure(own[0])}, highest {figure(max(own))} at step {top:,}, mean "
                f"{figure(float(np.mean(own)))}, last {figure(own[-1])} at step {self.steps[-1]:,}"
            )
        if self.momenta is not None:
            low, high = min(map(min, self.momenta)), max(map(max, self.momenta))
            lines.append(f"momentum moves between {figure(low)} and {figure(high)}")
        idle = int((rate == 0).sum())
        if idle:
            at = self.steps[int(np.argmax(rate == 0))]
            lines.append(
                f"note: the rate is 0 at {_times(idle, 'step')}, first at step {at:,}: nothing is learned there"
            )
        if (rate < 0).any():
            lines.append(f"note: the rate is negative from step {self.steps[int(np.argmax(rate < 0))]:,} on")
        if self.error is not None:
            lines.append(f"note: the schedule is over after step {self.steps[-1]:,}; one more scheduler.step() fails:")
            lines.append(f"      {self.error}")
        if self.every > 1:
            lines.append(f"scheduler.step() is called once in {self.every:,} steps")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | plain({"verdict": self.verdict})

    def plot(self, log: bool = False) -> Figure:
        drawing = new_figure(f"{self.name}: {self.verdict}", "optimizer step", "learning rate")
        several = len(self.rates) > 1
        for group, own in enumerate(self.rates):
            colour = COLOURS[group % len(COLOURS)]
            name = f"group {group}" if several else "learning rate"
            drawing.add_scatter(x=self.steps, y=own, mode="lines", line={"color": colour}, name=name)
        if self.momenta is not None:
            drawing.add_scatter(
                x=self.steps,
                y=self.momenta[0],
                mode="lines",
                line={"color": GREY, "dash": "dot"},
                name="momentum",
                yaxis="y2",
            )
            drawing.update_layout(yaxis2={"title": "momentum", "overlaying": "y", "side": "right", "showgrid": False})
        if log:
            drawing.update_yaxes(LOG)
        return drawing


def preview(
    schedule: Any,
    steps: int,
    *,
    optimizer: Optimizer | None = None,
    lr: float | Sequence[float] = 1.0,
    every: int = 1,
    metric: Callable[[int], float] | None = None,
) -> SchedulePreview:
    """The rates of the next so many optimizer steps.

    `schedule` is a scheduler, from where it stands, or a function that takes an optimizer and gives one, such as
    `lambda o: torchdoctor.schedules.warmup_cosine(o, 1000)`. The function gets a copy of `optimizer`, or a stand-in
    with the rate `lr` (several for several parameter groups). `every` is the number of steps between two calls of
    scheduler.step(), such as those of an epoch. `metric(step)` is for ReduceLROnPlateau, which follows one.
    """
    if steps < 1 or every < 1:
        raise UsageError(f"steps is {steps} and every is {every}; at least 1 is needed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        copied = _copy_of(schedule, optimizer, lr)
        return _run(copied, steps, every, metric)


def _run(scheduler: Any, steps: int, every: int, metric: Callable[[int], float] | None) -> SchedulePreview:
    groups = scheduler.optimizer.param_groups
    begin = max(int(getattr(scheduler, "last_epoch", 0)), 0) * every
    if isinstance(scheduler, ReduceLROnPlateau) and metric is None:
        raise UsageError("ReduceLROnPlateau follows a metric; hand over metric=lambda step: ... to see what it does")
    taken: list[int] = []
    rates: list[list[float]] = [[] for _ in groups]
    momenta: list[list[float]] = [[] for _ in groups]
    error = None
    for step in range(steps):
        taken.append(begin + step)
        for group, own, pace in zip(groups, rates, momenta, strict=True):
            own.append(float(group["lr"]))
            pace.append(float(group["betas"][0] if "betas" in group else group.get("momentum", 0.0)))
        if (step + 1) % every or step + 1 == steps:
            continue
        try:
            scheduler.step(metric(step)) if isinstance(scheduler, ReduceLROnPlateau) and metric else scheduler.step()
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
            break
    moves = any(len(set(pace)) > 1 for pace in momenta)
    return SchedulePreview(_name(scheduler), taken, rates, momenta if moves else None, every, error)


def _copy_of(schedule: Any, optimizer: Optimizer | None, lr: float | Sequence[float]) -> Any:
    """A scheduler on an optimizer of its own; parameters are shared, as nothing touches them."""
    if hasattr(schedule, "step") and hasattr(schedule, "optimizer"):
        return _copied(schedule, schedule.optimizer)
    if not callable(schedule):
        raise UsageError(
            f"schedule is a {type(schedule).__name__}; a scheduler is needed, or a function that takes an optimizer "
            "and gives one"
        )
    stand_in = _copied(optimizer, optimizer) if optimizer is not None else _stand_in(lr)
    made = schedule(stand_in)
    if not hasattr(made, "step") or not hasattr(made, "optimizer"):
        raise UsageError(f"the function gave a {type(made).__name__}, not a scheduler")
    if made.optimizer is not stand_in:
        return _copied(made, made.optimizer)
    return made


def _copied(thing: Any, optimizer: Any) -> Any:
    known: dict[int, Any] = {id(p): p for group in optimizer.param_groups for p in group["params"]}
    known[id(optimizer.state)] = collections.defaultdict(dict)
    try:
        return copy.deepcopy(thing, known)
    except Exception as error:
        raise UsageError(
            f"{type(thing).__name__} cannot be copied ({error}); hand over a function that makes it from an optimizer"
        ) from error


def _stand_in(lr: float | Sequence[float]) -> Optimizer:
    rates = [lr] if isinstance(lr, int | float) else list(lr)
    if not rates:
        raise UsageError("lr is empty; one rate for each parameter group is needed")
    groups = [{"params": [nn.Parameter(torch.zeros(1))], "lr": float(rate)} for rate in rates]
    return SGD(groups, lr=float(rates[0]), momentum=0.9)


def _name(scheduler: Any) -> str:
    lambdas = getattr(scheduler, "lr_lambdas", None)
    if lambdas and not hasattr(lambdas[0], "__name__"):
        return getattr(lambdas[0], "name", type(scheduler).__name__)
    return type(scheduler).__name__


def _words(rates: np.ndarray, steps: list[int]) -> str:
    """What the curve does, told by its turns."""
    least, peak, last = float(rates.min()), float(rates.max()), figure(float(rates[-1]))
    if peak - least <= SAME * abs(peak):
        return f"the rate stays at {figure(peak)}"
    ways = _ways(rates, TURN * (peak - least))
    if len(ways) > 2:
        return f"the rate turns {len(ways) - 1} times between {figure(least)} and {figure(peak)}"
    if ways == [-1, 1]:
        return f"the rate falls to {figure(least)} by step {steps[int(rates.argmin())]:,} and rises again to {last}"
    level = int((rates >= peak * (1 - SAME)).sum())
    parts = [f"climbs to {figure(peak)} by step {steps[int(rates.argmax())]:,}"] if ways[0] > 0 else []
    if level > 2:
        parts.append(f"stays {'there' if parts else f'at {figure(peak)}'} for {level:,} steps")
    if ways[-1] < 0:
        parts.append(f"falls {'' if parts else f'from {figure(peak)} '}to {last}")
    return f"the rate {', '.join(parts[:-1])}{' and ' if len(parts) > 1 else ''}{parts[-1]}"


def _ways(values: np.ndarray, least: float) -> list[int]:
    """Ups (1) and downs (-1) of at least this much, in their order."""
    ways: list[int] = []
    low = high = edge = float(values[0])
    for value in map(float, values):
        if not ways:
            low, high, edge = min(low, value), max(high, value), value
            ways += [1] if value - low >= least else [-1] if high - value >= least else []
        elif (value - edge) * ways[-1] > 0:
            edge = value
        elif (edge - value) * ways[-1] >= least:
            ways.append(-ways[-1])
            edge = value
    return ways


def _times(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' if count != 1 else ''}"
