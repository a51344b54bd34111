"""The parts of a script's training, laid out once its loop is taken over."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
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

MANY = 4
"""Updates in which a schedule for updates is called more than once, in the shortest of rehearsals too."""


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
    updates: int | None
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
        optimizers=rehearsal.optimizers(),
        schedulers=rehearsal.schedulers,
        scalers=list(session.capturing.scalers),
        epochs=rehearsal.length.epochs,
        updates=_updates(rehearsal),
        accumulation=rehearsal.accumulation(),
        is_compiled=rehearsal.is_compiled,
        step_of_schedule=stepped_by(rehearsal.run, rehearsal.frames),
        sets_rates=rehearsal.sets_rates,
        why_no_loss=rehearsal.why_not,
        run=rehearsal.run,
    )


def _updates(rehearsal: Rehearsal) -> int | None:
    length = rehearsal.length
    if length.updates is not None or length.batches is None:
        return length.updates
    return max(1, length.batches // rehearsal.accumulation())


def _way_to_loss(rehearsal: Rehearsal) -> Driver | Tapes | Undriven:
    if rehearsal.tapes:
        accumulation = rehearsal.accumulation()
        return Tapes(lambda loss: whole(loss, accumulation))
    return rehearsal.driver or Undriven(rehearsal.why_not or "")


def _batches(rehearsal: Rehearsal, loader: Any) -> list[Any]:
    """Those that the script got, or more where its walk was short."""
    held = rehearsal.batches.get(id(loader), [])
    return held if loader is None or len(held) >= KEPT else first_batches(loader, KEPT)


def stepped_by(run: Run, frames: Iterable[Any] = ()) -> str | None:
    """As the trainer says whose loop it is; else from the updates between the calls, or without one."""
    told = _interval(frames)
    if told is not None:
        return told
    facts = [fact for fact in run.facts(SchedulerFact) if not fact.nested and fact.calls]
    if not facts:
        return None
    apart = [after - before for before, after in pairwise(facts[-1].called_at)]
    if not apart:
        return "epoch" if run.steps >= MANY else None
    return "update" if median(apart) <= 1 else "epoch"


def _interval(frames: Iterable[Any]) -> str | None:
    """Of Lightning: it steps schedulers at the end of whole epochs, and those of a rehearsal are cut short."""
    for frame in frames:
        configs = None
        with contextlib.suppress(Exception):  # a property of any class
            configs = getattr(getattr(frame.f_locals.get("self"), "trainer", None), "lr_scheduler_configs", None)
        if isinstance(configs, list) and configs:
            told = {(getattr(c, "interval", None), getattr(c, "frequency", None)) for c in configs}
            return {("step", 1): "update", ("epoch", 1): "epoch"}.get(told.pop()) if len(told) == 1 else None
    return None
