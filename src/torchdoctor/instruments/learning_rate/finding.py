"""The learning-rate range test: train for a moment with a rate that grows, and read the best one off the losses."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from torchdoctor.attach.guard import unseen
from torchdoctor.errors import UsageError
from torchdoctor.instruments.batches import check_loader, first_batches
from torchdoctor.instruments.learning_rate.curve import (
    Descent,
    Suggestions,
    Sweep,
    Trace,
    combine,
    default_smoothing,
    suggest_for_all,
    trace,
)
from torchdoctor.instruments.learning_rate.result import LearningRates
from torchdoctor.instruments.learning_rate.sweep import Course, Rates, Stepper, same_epoch
from torchdoctor.instruments.learning_rate.trust import NO_RATE, Doubt, doubt
from torchdoctor.instruments.mismatch import explained
from torchdoctor.instruments.progress import progress_bar
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import StepFn, Subject

LEAST_STEPS = 10
"""Losses below which there is no curve."""
BELOW, ABOVE = 4.0, 1.0
"""Decades around the rate at which the quick sweep diverged: what is to be found lies within three below it (grids of
Bengio, 2012, and of our own benchmark), and one more shows the loss at rest."""
WIDE = 5.5
"""Decades from which a quick sweep in advance pays."""
SCOUT = 0.5
"""Steps of the quick sweep, as a share of those of the others."""
SEEDS = 3
"""The fewest with a middle one."""
VALIDATION_BATCHES = 8
"""Batches of a validation loader whose loss is taken after each update."""

Mode = Literal["exponential", "linear"]


@dataclass(frozen=True)
class Plan:
    """What is swept, and how; find_lr explains each."""

    low: float = 1e-7
    high: float = 10.0
    steps: int = 100
    seeds: tuple[int, ...] = tuple(range(SEEDS))
    mode: Mode = "exponential"
    zoom: bool = True
    paired: bool = True
    smoothing: float | None = None
    diverge: float | None = 1.0
    accumulate: int = 1
    scaler: Any = field(default=None, repr=False)
    max_norm: float | None = None
    closure: bool | None = None
    validation: Iterable[Any] | None = field(default=None, repr=False)
    restore: tuple[Any, ...] = field(default=(), repr=False)
    distributed: bool | None = None

    def __post_init__(self) -> None:
        if self.scaler is not None and not hasattr(self.scaler, "is_enabled"):
            raise UsageError(f"scaler is a {type(self.scaler).__name__}, not a torch.amp.GradScaler")
        if not 0 < self.low < self.high < math.inf:
            raise UsageError(f"low={self.low}, high={self.high}: the sweep runs from low up to high, both above zero")
        if self.steps < LEAST_STEPS:
            raise UsageError(f"steps={self.steps}: a curve needs {LEAST_STEPS} losses at least, and better 100")
        if not self.seeds:
            raise UsageError("seeds is empty; give a number of sweeps or a list of seeds")
        if self.mode not in ("exponential", "linear"):
            raise UsageError(f"mode={self.mode!r}; it is 'exponential' or 'linear'")
        if self.smoothing is not None and not 0 <= self.smoothing < 1:
            raise UsageError(f"smoothing={self.smoothing}: 0 keeps the losses as they are, 0.9 averages over about ten")
        if self.diverge is not None and not self.diverge > 0:
            raise UsageError(f"diverge={self.diverge}: it is above zero, or None to sweep to the end")
        if self.accumulate < 1:
            raise UsageError(f"accumulate={self.accumulate}: an update needs one batch at least")
        if self.max_norm is not None and not self.max_norm > 0:
            raise UsageError(f"max_norm={self.max_norm} cuts everything; a threshold is above 0")

    def rates(self, low: float, high: float, steps: int) -> list[float]:
        space = np.geomspace if self.mode == "exponential" else np.linspace
        return [float(rate) for rate in space(low, high, steps)]

    @property
    def scouts(self) -> bool:
        return self.zoom and self.mode == "exponential" and math.log10(self.high / self.low) > WIDE

    @property
    def scout_steps(self) -> int:
        return max(LEAST_STEPS, round(SCOUT * self.steps))


@unseen()
@explained
def find_lr(
    model: nn.Module,
    optimizer: Any,
    loader: Iterable[Any],
    loss_fn: Callable[..., Any] | None = None,
    *,
    step_fn: StepFn | None = None,
    low: float = 1e-7,
    high: float = 10.0,
    steps: int = 100,
    seeds: int | Sequence[int] = SEEDS,
    mode: Mode = "exponential",
    zoom: bool = True,
    paired: bool = True,
    smoothing: float | None = None,
    diverge: float | None = 1.0,
    accumulate: int = 1,
    autocast: torch.dtype | None = None,
    scaler: Any = None,
    max_norm: float | None = None,
    closure: bool | None = None,
    validation: Iterable[Any] | None = None,
    restore: Sequence[Any] = (),
    distributed: bool | None = None,
    progress: bool = True,
) -> LearningRates:
    """Trains for a moment with a rate that grows from `low` to `high` and says which one to set; then model, optimizer,
    loader and random state are as they were.

        print(torchdoctor.find_lr(model, optimizer, loader, nn.CrossEntropyLoss()))

    - `seeds`: how many sweeps of `steps` updates, or their seeds. All begin at the weights as they are; batches come in
      another order and dropout draws anew.
    - `zoom`: over a wide range a quick sweep first finds where the loss diverges; the others then take their steps in
      the four decades below and the one above. `mode="linear"` raises the rate by equal amounts.
    - `paired`: each batch's loss is compared with that of the same batch on the weights of the beginning, which takes
      out that some batches are harder than others. It costs a forward pass a step and twice the memory of the weights.
    - `smoothing`: weight of the past in the average of the losses, over a tenth of the sweep unless given.
      `diverge`: a sweep ends when the loss stands above its start by so many times what it had fallen; None: never.
    - `accumulate` batches make an update. `autocast` is the type of mixed precision, `scaler` its GradScaler,
      `max_norm` the clipping in use. `closure` says whether the optimizer's step takes one (LBFGS does).
    - Parameter groups keep the ratios of their rates; the rates that are told are those of the largest.
    - `validation`: a loader whose first batches are evaluated after each update, instead of the training loss.
    - `restore`: more with a state_dict that an update changes (schedulers in hooks, averages of weights). A scheduler
      on the optimizer is neither stepped nor asked.
    - `distributed`: whether all processes of the group call this together and share the mean loss; yes, where there is
      a group, unless False is given.
    """
    plan = Plan(
        low=low,
        high=high,
        steps=steps,
        seeds=tuple(range(int(seeds))) if isinstance(seeds, Integral) else tuple(map(int, seeds)),
        mode=mode,
        zoom=zoom,
        paired=paired,
        smoothing=smoothing,
        diverge=diverge,
        accumulate=accumulate,
        scaler=scaler,
        max_norm=max_norm,
        closure=closure,
        validation=validation,
        restore=tuple(restore),
        distributed=distributed,
    )
    subject = Subject(model, loss_fn, step_fn=step_fn, autocast=autocast)
    return sweep_rates(subject, optimizer, loader, plan, progress=progress)


def sweep_rates(
    subject: Subject, optimizer: Any, loader: Iterable[Any], plan: Plan | None = None, *, progress: bool = True
) -> LearningRates:
    """find_lr for a subject."""
    plan = plan or Plan()
    _check(subject, optimizer, loader)
    rates = Rates(optimizer)
    classes = Classes(subject)
    together = _together(plan.distributed)
    course = Course(
        subject,
        Stepper(subject, optimizer, scaler=plan.scaler, max_norm=plan.max_norm, closure=plan.closure),
        rates,
        accumulate=plan.accumulate,
        paired=plan.paired,
        validation=first_batches(plan.validation, VALIDATION_BATCHES) if plan.validation is not None else (),
        distributed=together,
        watch=classes.count,
    )
    total = len(plan.seeds) * plan.steps + (plan.scout_steps if plan.scouts else 0)
    shown = progress and (not together or dist.get_rank() == 0)
    with progress_bar("finding the learning rate", total, shown) as advance:

        def sweep(seed: int, low: float, high: float, steps: int) -> Sweep:
            descent = Descent(plan.smoothing if plan.smoothing is not None else default_smoothing(steps), plan.diverge)
            classes.begin()
            with _as_it_was(subject, optimizer, loader, plan):
                return course.run(seed, loader, plan.rates(low, high, steps), descent, advance)

        low, high, scout = plan.low, plan.high, None
        if plan.scouts:
            scout = sweep(plan.seeds[0], low, high, plan.scout_steps)
            low, high = _around(scout, low, high)
        sweeps = [sweep(seed, low, high, plan.steps) for seed in plan.seeds]
    return _judge(sweeps, scout, classes, optimizer, rates, plan)


def _around(scout: Sweep, low: float, high: float) -> tuple[float, float]:
    end = float(scout.rates[-1]) if len(scout.rates) else low
    return max(low, end / 10**BELOW), min(high, max(end, low) * 10**ABOVE)


def _judge(
    sweeps: list[Sweep], scout: Sweep | None, classes: Classes, optimizer: Any, rates: Rates, plan: Plan
) -> LearningRates:
    kept = [s for s in sweeps if len(s.losses)]
    if not kept:
        raise UsageError(f"the loss was NaN or Inf after the first update, with a rate of {plan.low:g}; lower `low`")
    smoothing = plan.smoothing if plan.smoothing is not None else default_smoothing(plan.steps)
    traces = [trace(s, smoothing) for s in kept]
    suggested = suggest_for_all(traces)
    doubts = doubt(kept, traces, suggested, classes.counts, linear=plan.mode == "linear")
    found = combine(_believed(suggested, doubts, traces))
    each = [s.recommended for s in suggested if s.recommended is not None]
    return LearningRates(
        recommended=found.recommended,
        steepest=found.steepest,
        tenth=found.tenth,
        valley=found.valley,
        turn=found.turn,
        divergence=found.divergence,
        by_seed=each if found.recommended is not None else [],
        group_rates=[found.recommended * r for r in rates.ratios] if found.recommended is not None else [],
        doubts=doubts,
        sweeps=kept,
        scout=scout,
        smoothing=smoothing,
        mode=plan.mode,
        optimizer=type(optimizer).__name__,
    )


def _believed(suggested: list[Suggestions], doubts: list[Doubt], traces: list[Trace]) -> list[Suggestions]:
    """Where the loss hardly fell, its shape says nothing, but where it diverges still does."""
    if not any(d.name in NO_RATE for d in doubts):
        return suggested
    if 2 * sum(t.diverged for t in traces) <= len(traces):
        return []
    return [Suggestions(tenth=s.tenth, divergence=s.divergence) for s in suggested]


class Classes:
    """Counts the classes in each batch, sweep by sweep, where the target is a number of one for each sample."""

    MOST = 1000
    """More are tokens or identities, not classes that a batch could be balanced in."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._counts: list[list[NDArray[np.int64]]] = []

    def begin(self) -> None:
        self._counts.append([])

    def count(self, batch: Any) -> None:
        target = self._subject.target(batch)
        whole = isinstance(target, Tensor) and target.dim() == 1 and not target.is_floating_point()
        if not whole or not target.numel():
            return
        values = target.detach().cpu().long()
        if int(values.min()) >= 0 and int(values.max()) < self.MOST:
            self._counts[-1].append(torch.bincount(values, minlength=1).numpy())

    @property
    def counts(self) -> list[NDArray[np.int64]]:
        return [_stacked(rows) for rows in self._counts if rows]


def _stacked(rows: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    counts = np.zeros((len(rows), max(len(row) for row in rows)), dtype=np.int64)
    for kept, row in zip(counts, rows, strict=True):
        kept[: len(row)] = row
    return counts


@contextlib.contextmanager
def _as_it_was(subject: Subject, optimizer: Any, loader: Any, plan: Plan) -> Iterator[None]:
    with same_epoch(loader), untouched(*subject.parts, optimizer, plan.scaler, *plan.restore, loaders=(loader,)):
        # Parts that were frozen in eval() stay so, unless the whole model is in it.
        if not subject.model.training:
            subject.model.train()
        yield


def _check(subject: Subject, optimizer: Any, loader: Any) -> None:
    check_loader(loader)
    if not hasattr(optimizer, "param_groups") or not hasattr(optimizer, "step"):
        raise UsageError(f"optimizer is a {type(optimizer).__name__}, not an optimizer with param_groups and step()")
    mine = {id(p) for part in subject.parts for p in part.parameters()}
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if mine and not mine & held:
        raise UsageError("the optimizer holds none of the model's parameters; was it built for another model?")


def _together(distributed: bool | None) -> bool:
    if distributed is False or not (dist.is_available() and dist.is_initialized()):
        return False
    return dist.get_world_size() > 1
