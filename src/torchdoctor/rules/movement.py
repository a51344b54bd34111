"""How far each update moves the weights, relative to the weights: measured, or worked out from what was measured.

Only matrices and larger tensors are read. Biases and normalisation weights start at zero or one, so the ratio
of their change to their size says nothing about the learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from torchdoctor.facts import OptimizerFact, ParameterFact, SchedulerFact
from torchdoctor.findings import Place
from torchdoctor.rules import curves
from torchdoctor.rules.curves import Floats
from torchdoctor.rules.places import receiver
from torchdoctor.run import Run, Trace
from torchdoctor.signals import GRADIENT_L2, LEARNING_RATE, UPDATE_RATIO, WEIGHT_L2

PLAIN = ("SGD", "ASGD", "LBFGS")
"""Optimizers of torch whose step grows with the gradient. The others divide the gradient's size out."""

OF_TORCH = (
    *PLAIN,
    "Adam",
    "AdamW",
    "NAdam",
    "RAdam",
    "Adamax",
    "Adagrad",
    "Adadelta",
    "RMSprop",
    "Rprop",
    "SparseAdam",
)

USUAL_BETAS = (0.9, 0.999)
USUAL_EPS = {"Adagrad": 1e-10, "Adadelta": 1e-6}
"""torch's own defaults where they are not 1e-8."""

USUAL_RATIO = 1e-3
"""Relative change of a weight matrix a step in trainings that go well (Karpathy, CS231n notes, 2015): about this."""
HEALTHY_UPDATES = (USUAL_RATIO / 10, USUAL_RATIO * 10)
"""A decade around it: what figures draw as the healthy band."""

TINY_WEIGHT = 1e-4
"""A matrix whose root mean square is below this share of the usual initialisation was started at zero (a LoRA
factor, a zero-initialised last layer): any update is large against it."""


@dataclass(frozen=True)
class Movement:
    """Relative change of every weight matrix at the looks that were taken."""

    steps: NDArray[np.integer[Any]]
    ratios: Floats
    """a row a look, a column a layer"""
    names: tuple[str, ...]
    measured: bool
    """False where it was worked out from gradients and the learning rate"""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def middle_S(self) -> Floats:  # noqa: N802 - a shape suffix
        """The median over the layers, at each look."""
        whole = np.isfinite(self.ratios).all(axis=1)
        middle = np.empty(len(self.ratios))
        if whole.any() and self.ratios.shape[1]:
            middle[whole] = np.quantile(self.ratios[whole], 0.5, axis=1)
        else:
            whole[:] = False
        middle[~whole] = [_quantile(row, 0.5) for row in self.ratios[~whole]]
        return middle

    def until(self, step: int) -> Movement:
        keep = self.steps <= step
        return Movement(self.steps[keep], self.ratios[keep], self.names, self.measured)

    def typical(self, quantile: float = 0.5) -> Floats:
        """That quantile over the looks, for each layer."""
        return np.array([_quantile(column, quantile) for column in self.ratios.T])


def read(run: Run) -> Movement | None:
    """The run's update ratios for weight matrices; None where neither ratios nor gradients tell."""
    trace = run.matrix(UPDATE_RATIO)
    if len(trace):
        return _matrices(run, trace, measured=True)
    estimate = _estimate(run)
    return _matrices(run, estimate, measured=False) if estimate is not None else None


def is_scale_free(run: Run) -> bool:
    """Whether every optimizer divides the gradient's size out. An unknown one is taken to do so."""
    return all(o.type not in PLAIN for o in run.optimizers.values())


def written(
    optimizer: OptimizerFact | None, rate: float, parameters: str = "model.parameters()", name: str = "optimizer"
) -> str:
    """The line that makes this optimizer with another rate; for one that is not torch's, the line that sets it."""
    if optimizer is None or optimizer.type not in OF_TORCH or len(optimizer.groups) > 1:
        return f"for group in {name}.param_groups: group['lr'] = {rate:.1g}"
    return f"{name} = torch.optim.{optimizer.type}({parameters}, lr={rate:.1g}{other_arguments(optimizer)})"


SETS_RATE = ("OneCycleLR", "CyclicLR")
"""Schedulers whose own `max_lr` counts, whatever rate the optimizer was made with."""


def rewritten(run: Run, optimizer: OptimizerFact | None, rate: float) -> tuple[str, Place]:
    """The line that changes the rate where the script sets it, and where that is."""
    name = receiver(run, "step", "optimizer")
    for schedule in run.facts(SchedulerFact):
        if schedule.type in SETS_RATE and run.optimizers.get(schedule.optimizer or "") is optimizer:
            place = Place(file=schedule.made_file, line=schedule.made_line)
            return f"scheduler = {schedule.type}({name}, max_lr={rate:.1g}, ...)  # it sets the rate", place
    place = Place(file=optimizer.file, line=optimizer.line) if optimizer and optimizer.file else Place()
    return written(optimizer, rate, name=name), place


def with_setting(run: Run, **settings: float) -> str:
    """The line that makes the script's own optimizer with these settings, or sets them in its groups."""
    name = receiver(run, "step", "optimizer")
    made = list(run.optimizers.values())
    if len(made) != 1 or made[0].type not in OF_TORCH or len(made[0].groups) != 1:
        words = "; ".join(f"group[{key!r}] = {value:g}" for key, value in settings.items())
        return f"for group in {name}.param_groups: {words}"
    words = "".join(f", {key}={value:g}" for key, value in settings.items())
    rate = made[0].groups[0].get("lr")
    return f"{name} = torch.optim.{made[0].type}(model.parameters(), lr={rate if _is_number(rate) else 1e-3:g}{words})"


def other_arguments(optimizer: OptimizerFact) -> str:
    """The first group's hyperparameters beside the rate as they are passed on; those that torch sets itself are left
    out, but not a weight decay, which people look for."""
    group = optimizer.groups[0] if optimizer.groups else {}
    given = [f"{n}={group[n]:g}" for n in ("momentum",) if _is_number(group.get(n)) and group[n]]
    given += [f"{n}=True" for n in ("nesterov", "amsgrad", "centered") if group.get(n) is True]
    betas = group.get("betas")
    if isinstance(betas, list | tuple) and all(map(_is_number, betas)) and tuple(betas) != USUAL_BETAS:
        given.append(f"betas=({', '.join(f'{b:g}' for b in betas)})")
    eps = group.get("eps")
    if _is_number(eps) and eps != USUAL_EPS.get(optimizer.type, 1e-8):
        given.append(f"eps={eps:g}")
    decay = group.get("weight_decay")
    if _is_number(decay) and (decay or optimizer.type == "AdamW"):
        given.append(f"weight_decay={decay:g}")
    return "".join(f", {word}" for word in given)


def initial_rate(group: Mapping[str, Any]) -> float | None:
    """The rate that the group was made with: a scheduler keeps it beside the current one."""
    return next((group[k] for k in ("initial_lr", "lr") if _is_number(group.get(k))), None)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _quantile(values: Floats, share: float) -> float:
    finite = values[np.isfinite(values)]
    return float(np.quantile(finite, share)) if len(finite) else math.nan


def _matrices(run: Run, trace: Trace, *, measured: bool) -> Movement | None:
    names = [n for n in trace.columns if is_matrix(run.parameters.get(n)) and not starts_at_zero(run, n)]
    chosen = trace.select(names)
    if not chosen.columns or not len(chosen):
        return None
    steps, ratio_SL = chosen.steps, chosen.values
    if chosen.head is not None and len(chosen.head):
        rest = steps > chosen.head.steps[-1]
        steps = np.concatenate([chosen.head.steps, steps[rest]])
        ratio_SL = np.concatenate([chosen.head.values, ratio_SL[rest]])
    return Movement(steps, ratio_SL.astype(np.float64), chosen.columns, measured)


def is_matrix(fact: ParameterFact | None) -> bool:
    return fact is None or len(fact.shape) >= 2


def starts_at_zero(run: Run, name: str) -> bool:
    fact, weights = run.parameters.get(name), run.matrix(WEIGHT_L2)
    if fact is None or name not in weights.columns:
        return False
    first = weights.first(1).column(name).values
    count, fan_in = math.prod(fact.shape), max(1, math.prod(fact.shape[1:]))
    usual = math.sqrt(count / fan_in)
    return bool(len(first) and first[0] < TINY_WEIGHT * usual)


def _estimate(run: Run) -> Trace | None:
    """What the optimizer's formula gives: lr*|g|/|w| for plain descent, lr*sqrt(n)/|w| for one free of scale."""
    weights, keys = run.matrix(WEIGHT_L2).first(), run.keys(LEARNING_RATE)
    rates = run.scalar(LEARNING_RATE, keys[0]) if len(keys) == 1 else Trace.empty()
    if not len(weights) or not len(rates):
        return None
    if is_scale_free(run):
        sizes = [math.prod(run.parameters[c].shape) if c in run.parameters else math.nan for c in weights.columns]
        moved_SL = np.broadcast_to(np.sqrt(np.array(sizes)), weights.values.shape)
    else:
        gradients = run.matrix(GRADIENT_L2).first()
        steps, (at_weights, at_gradients) = curves.rows_in_common(weights, gradients)
        weights = weights.select(gradients.columns)
        moved_SL = gradients.select(weights.columns).values[at_gradients]
        weights = Trace.raw(steps, weights.values[at_weights], weights.columns)
    rate_S1 = np.interp(weights.steps, rates.steps, rates.values)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_SL = rate_S1 * moved_SL / weights.values
    return Trace.raw(weights.steps, ratio_SL, weights.columns) if len(weights) else None
