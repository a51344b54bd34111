"""The parts of a script's training, laid out once its loop is taken over."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer

from torchdoctor.facts import TRAIN, VALIDATION, SchedulerFact
from torchdoctor.instruments.batches import first_batches
from torchdoctor.takeover.driving import Driver, LoopSubject, Undriven, whole
from torchdoctor.takeover.rehearsal import KEPT, Rehearsal
from torchdoctor.takeover.taping import Tapes

if TYPE_CHECKING:
    from torchdoctor.run import Run


@dataclass(frozen=True)
class Parts:
    """The fields of checks.Bench that a script's own loop gives."""

    subject: LoopSubject
    train: list[Any]
    validation: list[Any]
    train_loader: Any
    validation_loader: Any
    optimizers: list[Optimizer]
    schedulers: list[Any]
    scalers: list[Any]
    epochs: int | None
    accumulation: int
    is_compiled: bool
    step_of_schedule: str | None
    sets_rates: bool
    why_no_loss: str | None
    run: Run


def lay_out(rehearsal: Rehearsal) -> Parts:
    session = rehearsal.session
    train, validation = rehearsal.loader_of(TRAIN), rehearsal.loader_of(VALIDATION)
    return Parts(
        subject=LoopSubject(rehearsal.model(), _way_to_loss(rehearsal)),
        train=rehearsal.tapes or _batches(rehearsal, train),
        validation=_batches(rehearsal, validation),
        train_loader=None if rehearsal.tapes else train,
        validation_loader=validation,
        optimizers=[optimizer for _, optimizer in session.registry.live_optimizers()],
        schedulers=rehearsal.schedulers,
        scalers=list(session.capturing.scalers),
        epochs=rehearsal.epochs,
        accumulation=rehearsal.accumulation(),
        is_compiled=rehearsal.is_compiled,
        step_of_schedule=_stepped_by(rehearsal.run),
        sets_rates=rehearsal.sets_rates,
        why_no_loss=rehearsal.why_not,
        run=rehearsal.run,
    )


def _way_to_loss(rehearsal: Rehearsal) -> Driver | Tapes | Undriven:
    if rehearsal.tapes:
        accumulation = rehearsal.accumulation()
        return Tapes(lambda loss: whole(loss, accumulation))
    return rehearsal.driver or Undriven(rehearsal.why_not or "")


def _batches(rehearsal: Rehearsal, loader: Any) -> list[Any]:
    """Those that the script got, or more where its walk was short."""
    held = rehearsal.batches.get(id(loader), [])
    return held if loader is None or len(held) >= KEPT else first_batches(loader, KEPT)


def _stepped_by(run: Run) -> str | None:
    facts = [fact for fact in run.facts(SchedulerFact) if not fact.nested and fact.calls]
    if not facts:
        return None
    apart = [after - before for before, after in pairwise(facts[-1].called_at)]
    return None if not apart else "update" if median(apart) <= 1 else "epoch"
