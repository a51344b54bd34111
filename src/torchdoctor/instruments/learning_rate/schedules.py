"""Schedules of the learning rate, as thin layers over torch's own, and a look at any of them before it is used.

Each factory takes the optimizer and gives a scheduler whose `step()` is to be called once after every optimizer step.
Rates are shares of each parameter group's own rate, so groups with rates of their own keep their ratio; where an
earlier schedule moved that, its peak counts. After its end a schedule stays where it is; only `one_cycle` raises, as
torch's does, at the second call after its last step: the first belongs to that step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import CyclicLR, LambdaLR

from torchdoctor.errors import UsageError
from torchdoctor.instruments.learning_rate.preview import SchedulePreview, preview
from torchdoctor.instruments.learning_rate.scaling import scale_lr

__all__ = [
    "SchedulePreview",
    "cyclical",
    "inverse_sqrt",
    "one_cycle",
    "preview",
    "scale_lr",
    "warmup_cosine",
    "warmup_stable_decay",
]

Shape = Literal["linear", "cosine", "sqrt"]
FALLS: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
    "sqrt": lambda done: 1 - math.sqrt(done),
}
"""What is left of a rate when so much of its decay is done; "sqrt" did best for Hägele et al. 2024."""
PEAK = "peak_lr"
"""Where a parameter group keeps it, and so the optimizer's checkpoint: torch's cyclic schedules put their lowest rate
under initial_lr, which would be taken for the peak by the next schedule, or by the same when it is resumed."""


class OneCycleLR(lr_scheduler.OneCycleLR):
    """torch's, but for the call after the last step, which every plain loop makes: that leaves the rate at its end,
    where torch's runs on past the end of its curve, up again or below zero."""

    def get_lr(self) -> list[Any]:
        if self.last_epoch == self.total_steps:
            return [group["lr"] for group in self.optimizer.param_groups]
        return super().get_lr()


@dataclass
class Trapezoid:
    """Up, level, down. A plain object rather than a closure, so that checkpoints hold it."""

    name: str
    warmup: int
    decay_from: int
    steps: int
    start: float
    end: float
    shape: Shape

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return self.start + (1 - self.start) * step / self.warmup
        if step <= self.decay_from or self.decay_from == self.steps:
            return 1.0
        done = min(1.0, (step - self.decay_from) / (self.steps - self.decay_from))
        return self.end + (1 - self.end) * FALLS[self.shape](done)


@dataclass
class InverseRoot:
    """Up, then down with the root of the step."""

    name: str
    warmup: int
    start: float

    def __call__(self, step: int) -> float:
        if step < self.warmup:
            return self.start + (1 - self.start) * step / self.warmup
        return math.sqrt(max(self.warmup, 1) / max(step, 1))


def warmup_cosine(
    optimizer: Optimizer,
    steps: int,
    *,
    warmup: int | float = 0.05,
    start: float | None = None,
    end: float = 0.0,
    last_step: int = -1,
) -> LambdaLR:
    """Linearly up within `warmup` steps (a share of them if below 1), then down half a cosine (Loshchilov and Hutter
    2017). `start` and `end` are shares of the peak; without `start` the first step takes one part of the warm-up, as
    a rate of zero would waste it. `last_step` is for a training that is resumed."""
    _check_optimizer(optimizer)
    ramp = _ramp(warmup, steps)
    curve = Trapezoid("warmup_cosine", ramp, ramp, steps, _start(start, ramp), _share("end", end), "cosine")
    return _scale(optimizer, curve, last_step)


def warmup_stable_decay(
    optimizer: Optimizer,
    steps: int,
    *,
    warmup: int | float = 0.05,
    decay: int | float = 0.2,
    shape: Shape = "linear",
    start: float | None = None,
    end: float = 0.0,
    last_step: int = -1,
) -> LambdaLR:
    """Up, then level, and down only within the last `decay` steps (a share of them if below 1), so that a training can
    be prolonged from any moment before it (Hu et al. 2024, MiniCPM)."""
    _check_optimizer(optimizer)
    ramp, fall = _ramp(warmup, steps), _ramp(decay, steps, "decay")
    if ramp + fall > steps:
        raise UsageError(f"{ramp} steps of warm-up and {fall} of decay do not fit into {steps}")
    _check_shape(shape, FALLS)
    first, last = _start(start, ramp), _share("end", end)
    curve = Trapezoid("warmup_stable_decay", ramp, steps - fall, steps, first, last, shape)
    return _scale(optimizer, curve, last_step)


def inverse_sqrt(optimizer: Optimizer, warmup: int, *, start: float | None = None, last_step: int = -1) -> LambdaLR:
    """Up within `warmup` steps, then down with the root of the step, without an end (Vaswani et al. 2017): at four
    times the warm-up it is half its peak."""
    _check_optimizer(optimizer)
    if not isinstance(warmup, Integral) or warmup < 1:
        raise UsageError(f"warmup is {warmup}; a whole number of steps is needed, as this schedule has no end")
    return _scale(optimizer, InverseRoot("inverse_sqrt", warmup, _start(start, warmup)), last_step)


def one_cycle(
    optimizer: Optimizer,
    steps: int,
    *,
    peak: float | None = None,
    warmup: float = 0.3,
    start: float = 0.04,
    end: float = 4e-6,
    momentum: tuple[float, float] | None = None,
    shape: Literal["cos", "linear"] = "cos",
    last_step: int = -1,
) -> OneCycleLR:
    """torch's OneCycleLR: up to `peak` (else each group's own rate) for a share of the steps, then down to next to
    nothing, while momentum does the reverse between `momentum` (low, high) (Smith and Topin 2018). `start` and `end`
    are shares of the peak. After the last of the steps the rate stays; a call of step() beyond that raises."""
    _check_optimizer(optimizer)
    _check_steps(steps)
    if not 0 <= warmup <= 1:
        raise UsageError(f"warmup is {warmup}; it is a share of the steps, from 0 to 1")
    if not (0 < start <= 1 and 0 < end <= 1):
        raise UsageError(f"start is {start} and end is {end}; they are shares of the peak, above 0 and up to 1")
    _check_shape(shape, ("cos", "linear"))
    low, high = momentum or (0.85, 0.95)
    if momentum is not None and not all("momentum" in g or "betas" in g for g in optimizer.param_groups):
        raise UsageError(f"{type(optimizer).__name__} has neither momentum nor betas to move; leave `momentum` out")
    if warmup * steps == 1:
        warmup *= 1 - 1e-9  # torch divides by the length of a warm-up that ends at step 0
    cycles = momentum is not None or all(g.get("momentum") or "betas" in g for g in optimizer.param_groups)
    return OneCycleLR(
        optimizer,
        max_lr=_keep_peaks(optimizer, peak),
        total_steps=steps,
        pct_start=float(warmup),
        anneal_strategy=shape,
        cycle_momentum=cycles,
        base_momentum=low,
        max_momentum=high,
        div_factor=1 / start,
        final_div_factor=start / end,
        last_epoch=last_step,
    )


def cyclical(
    optimizer: Optimizer,
    half_cycle: int,
    *,
    peak: float | None = None,
    low: float = 0.1,
    shape: Literal["triangular", "triangular2", "exp_range"] = "triangular",
    gamma: float = 1.0,
    last_step: int = -1,
) -> CyclicLR:
    """torch's CyclicLR: up for `half_cycle` steps to `peak` (else each group's own rate) and down again to the share
    `low` of it, over and over (Smith 2017). "triangular2" halves each cycle, "exp_range" shrinks by `gamma` a step."""
    _check_optimizer(optimizer)
    if not 1 <= half_cycle < math.inf:
        raise UsageError(f"half_cycle is {half_cycle}; at least 1 step is needed")
    _check_shape(shape, ("triangular", "triangular2", "exp_range"))
    share = _share("low", low)
    peaks = _keep_peaks(optimizer, peak)
    bottoms = [share * p for p in peaks]
    for group, bottom in zip(optimizer.param_groups, bottoms, strict=True):
        group["initial_lr"] = bottom  # where CyclicLR begins its first step, whatever stood there before
    return CyclicLR(
        optimizer,
        base_lr=bottoms,
        max_lr=peaks,
        step_size_up=half_cycle,
        mode=shape,
        gamma=gamma,
        cycle_momentum=False,
        last_epoch=last_step,
    )


def _keep_peaks(optimizer: Optimizer, given: float | None) -> list[float]:
    """For each group: as given, or that of its earlier schedule, or its own rate."""
    if given is not None and not (isinstance(given, Real) and 0 < given < math.inf):
        raise UsageError(f"peak is {given}; it is the highest learning rate, a number above 0")
    for group in optimizer.param_groups:
        own = group.get(PEAK, group.get("initial_lr", group["lr"]))
        group[PEAK] = float(own if given is None else given)
    return [group[PEAK] for group in optimizer.param_groups]


def _scale(optimizer: Optimizer, curve: Callable[[int], float], last_step: int) -> LambdaLR:
    for group in optimizer.param_groups:
        if PEAK in group:
            group["initial_lr"] = group[PEAK]
    return LambdaLR(optimizer, curve, last_step)


def _ramp(given: int | float, steps: int, name: str = "warmup") -> int:
    _check_steps(steps)
    count = round(given * steps) if isinstance(given, Real) and 0 <= given < 1 else given
    if not isinstance(count, Real) or not 0 <= count <= steps or count != int(count):
        raise UsageError(f"{name} is {given}; give whole steps up to {steps}, or a share of them below 1")
    return int(count)


def _start(start: float | None, ramp: int) -> float:
    return 1 / max(ramp, 1) if start is None else _share("start", start)


def _share(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise UsageError(f"{name} is {value}; it is a share of the peak, from 0 to 1")
    return value


def _check_shape(shape: str, allowed: Collection[str]) -> None:
    if shape not in allowed:
        raise UsageError(f"shape is {shape!r}; one of {', '.join(allowed)}")


def _check_optimizer(optimizer: Optimizer) -> None:
    if not isinstance(optimizer, Optimizer):
        raise UsageError(f"optimizer is a {type(optimizer).__name__}, not a torch.optim.Optimizer")


def _check_steps(steps: int) -> None:
    if not isinstance(steps, Integral) or steps < 1:
        raise UsageError(f"steps is {steps}; the number of optimizer steps of the whole training is needed")
