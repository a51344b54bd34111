"""How far each update moves the weights, relative to the weights: measured, or worked out from what was measured.

Only matrices and larger tensors are read. Biases and normalisation weights start at zero or one, so the ratio
of their change to their size says nothing about the learning rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.facts import OptimizerFact, ParameterFact
from torchdoctor.rules.curves import Floats
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

USUAL_RATIO = 1e-3
"""Relative change of a weight matrix a step in trainings that go well (Karpathy, CS231n notes, 2015): about this."""

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
        return np.array([_quantile(row, 0.5) for row in self.ratios])

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


def written(optimizer: OptimizerFact | None, rate: float) -> str:
    """The line that makes this optimizer with another rate; for one that is not torch's, the line that sets it."""
    group = optimizer.groups[0] if optimizer and optimizer.groups else {}
    if optimizer is None or optimizer.type not in OF_TORCH or len(optimizer.groups) > 1:
        return f"for group in optimizer.param_groups: group['lr'] = {rate:.1g}"
    momentum = f", momentum={group['momentum']:g}" if group.get("momentum") else ""
    decay = group.get("weight_decay")
    is_default = not decay or (optimizer.type == "AdamW" and decay == 0.01)
    return (
        f"optimizer = torch.optim.{optimizer.type}(model.parameters(), lr={rate:.1g}{momentum}"
        f"{'' if is_default else f', weight_decay={decay:g}'})"
    )


def _quantile(values: Floats, share: float) -> float:
    finite = values[np.isfinite(values)]
    return float(np.quantile(finite, share)) if len(finite) else math.nan


def _matrices(run: Run, trace: Trace, *, measured: bool) -> Movement | None:
    names = [n for n in trace.columns if _is_matrix(run.parameters.get(n)) and not _starts_at_zero(run, n)]
    chosen = trace.select(names)
    if not chosen.columns or not len(chosen):
        return None
    steps, ratio_SL = chosen.steps, chosen.values
    if chosen.head is not None and len(chosen.head):
        rest = steps > chosen.head.steps[-1]
        steps = np.concatenate([chosen.head.steps, steps[rest]])
        ratio_SL = np.concatenate([chosen.head.values, ratio_SL[rest]])
    return Movement(steps, ratio_SL.astype(np.float64), chosen.columns, measured)


def _is_matrix(fact: ParameterFact | None) -> bool:
    return fact is None or len(fact.shape) >= 2


def _starts_at_zero(run: Run, name: str) -> bool:
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
        steps = np.intersect1d(weights.steps, gradients.steps)
        weights = weights.select(gradients.columns)
        moved_SL = gradients.select(weights.columns).values[np.isin(gradients.steps, steps)]
        kept = weights.values[np.isin(weights.steps, steps)]
        weights = Trace.raw(steps, kept, weights.columns)
    rate_S1 = np.interp(weights.steps, rates.steps, rates.values)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio_SL = rate_S1 * moved_SL / weights.values
    return Trace.raw(weights.steps, ratio_SL, weights.columns) if len(weights) else None
