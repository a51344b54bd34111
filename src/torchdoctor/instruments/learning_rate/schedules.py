"""Schedules of the learning rate, as thin layers over torch's own, and a look at any of them before it is used.

Each factory takes the optimizer and gives a scheduler whose `step()` is to be called once after every optimizer step.
Rates are shares of each parameter group's own rate, so groups with rates of their own keep their ratio. After its end
a schedule stays where it is; only `one_cycle` raises, as torch's does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LambdaLR, OneCycleLR

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
    return LambdaLR(optimizer, curve, last_step)


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
    if shape not in FALLS:
        raise UsageError(f"shape is {shape!r}; one of {', '.join(FALLS)}")
    first, last = _start(start, ramp), _share("end", end)
    curve = Trapezoid("warmup_stable_decay", ramp, steps - fall, steps, first, last, shape)
    return LambdaLR(optimizer, curve, last_step)


def inverse_sqrt(optimizer: Optimizer, warmup: int, *, start: float | None = None, last_step: int = -1) -> LambdaLR:
    """Up within `warmup` steps, then down with the root of the step, without an end (Vaswani et al. 2017): at four
    times the warm-up it is half its peak."""
    _check_optimizer(optimizer)
    if not isinstance(warmup, Integral) or warmup < 1:
        raise UsageError(f"warmup is {warmup}; a whole number of steps is needed, as this schedule has no end")
    return LambdaLR(optimizer, InverseRoot("inverse_sqrt", warmup, _start(start, warmup)), last_step)


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
    are shares of the peak. One step beyond the last raises."""
    _check_optimizer(optimizer)
    _check_steps(steps)
    if not 0 <= warmup <= 1:
        raise UsageError(f"warmup is {warmup}; it is a share of the steps, from 0 to 1")
    if not (0 < start <= 1 and 0 < end <= 1):
        raise UsageError(f"start is {start} and end is {end}; they are shares of the peak, above 0 and up to 1")
    peaks = [peak] * len(optimizer.param_groups) if peak is not None else _own_rates(optimizer)
    low, high = momentum or (0.85, 0.95)
    if momentum is not None and not all("momentum" in g or "betas" in g for g in optimizer.param_groups):
        raise UsageError(f"{type(optimizer).__name__} has neither momentum nor betas to move; leave `momentum` out")
    cycles = momentum is not None or all(g.get("momentum") or "betas" in g for g in optimizer.param_groups)
    return OneCycleLR(
        optimizer,
        max_lr=peaks,
        total_steps=steps,
        pct_start=warmup,
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
    if half_cycle < 1:
        raise UsageError(f"half_cycle is {half_cycle}; at least 1 step is needed")
    peaks = [peak] * len(optimizer.param_groups) if peak is not None else _own_rates(optimizer)
    bottoms = [_share("low", low) * p for p in peaks]
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


def _own_rates(optimizer: Optimizer) -> list[float]:
    return [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]


def _ramp(given: int | float, steps: int, name: str = "warmup") -> int:
    _check_steps(steps)
    count = round(given * steps) if 0 <= given < 1 else given
    if count != int(count) or not 0 <= count <= steps:
        raise UsageError(f"{name} is {given}; give whole steps up to {steps}, or a share of them below 1")
    return int(count)


def _start(start: float | None, ramp: int) -> float:
    return 1 / max(ramp, 1) if start is None else _share("start", start)


def _share(name: str, value: float) -> float:
    if not 0 <= value <= 1:
        raise UsageError(f"{name} is {value}; it is a share of the peak, from 0 to 1")
    return value


def _check_optimizer(optimizer: Optimizer) -> None:
    if not isinstance(optimizer, Optimizer):
        raise UsageError(f"optimizer is a {type(optimizer).__name__}, not a torch.optim.Optimizer")


def _check_steps(steps: int) -> None:
    if not isinstance(steps, Integral) or steps < 1:
        raise UsageError(f"steps is {steps}; the number of optimizer steps of the whole training is needed")
