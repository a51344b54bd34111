"""The eps that keeps Adam from dividing by zero rounds to zero where weights and averages are kept in float16."""

from __future__ import annotations

from dataclasses import dataclass

from torchdoctor.facts import NonfiniteFact, OptimizerFact
from torchdoctor.rules import births
from torchdoctor.rules.nonfinite import loss_broke_at
from torchdoctor.run import Run

ROUNDS_TO_ZERO = 2.0**-25
"""Half of float16's smallest number: up to here the nearest one is zero."""
DIVIDE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta")
"""Optimizers that divide by a root of averaged squares plus eps."""


@dataclass(frozen=True)
class LostEpsilon:
    step: int
    """at which weights were first seen to be spoilt"""
    optimizer: OptimizerFact
    eps: float
    names: tuple[str, ...]
    """float16 weights that were spoilt first"""


def find(run: Run) -> LostEpsilon | None:
    """Weights in float16 that an update with such an eps made NaN or Inf, while all before it was finite."""
    spoilt = _spoilt_first(run)
    lost = [(o, eps) for o in run.optimizers.values() if (eps := _rounded(o)) is not None]
    if spoilt is None or not lost:
        return None
    step, names = spoilt
    kinds = {run.parameters[n].dtype.removeprefix("torch.") if n in run.parameters else "" for n in names}
    if kinds != {"float16"} or _was_bad_before(run, step):
        return None
    return LostEpsilon(step, lost[0][0], lost[0][1], names)


def _spoilt_first(run: Run) -> tuple[int, tuple[str, ...]] | None:
    """By the step that was run again, if there is one, and else by the counts."""
    born = births.first_birth(run)
    if born is not None:
        step, fact = born
        return (step, (fact.source,)) if fact.source in run.parameters and not fact.operator else None
    facts = [(step, f.name) for step, f in run.facts_at(NonfiniteFact) if f.role == "weight"]
    if not facts:
        return None
    first = min(step for step, _ in facts)
    return first, tuple(name for step, name in facts if step == first)


def _rounded(optimizer: OptimizerFact) -> float | None:
    sizes = [g.get("eps") for g in optimizer.groups if optimizer.type in DIVIDE]
    return next((float(e) for e in sizes if isinstance(e, int | float) and 0 < e <= ROUNDS_TO_ZERO), None)


def _was_bad_before(run: Run, step: int) -> bool:
    """Something other than the update was not finite: a batch, or a loss or gradient of an earlier step."""
    broke = loss_broke_at(run)
    if step == 0 or (broke is not None and broke < step):
        return True
    return any(
        f.role in ("input", "target") or (f.role == "gradient" and at < step)
        for at, f in run.facts_at(NonfiniteFact)
        if at <= step
    )
