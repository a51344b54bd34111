"""The end of a watched training: every probe writes what it still holds, and our own state of health goes last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torchdoctor.attach import guard
from torchdoctor.attach.ceiling import times
from torchdoctor.attach.guard import contained
from torchdoctor.facts import HealthFact

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session


@contained("session: close")
def close_loop(session: Session, crashed: bool, abrupt: bool, untrained: bool = False) -> None:
    if session.live:
        session.live.stop()
    session.lines.stop()
    session.steady.leave()
    session.loop.close()
    session.training_loss.flush(session.deferred.after)
    if torch.cuda.is_initialized():
        session.deferred.drain()
    if _meant_to_train(session) or (crashed and session.registry.optimizers):
        session.begin_record()
    elif untrained:
        session.begin_record(anew=True)
    if not session.record.started:
        return
    step = session.context.step
    session.clock.finish(step, guard.STATE.own_seconds)
    if not session.loop.stepped_ever:
        session.wiring.at_backward()
    session.predictions.flush_train(step)
    session.schedules.close()
    session.hunt.close(abrupt and not crashed)
    session.remedy.close()
    session.rolling.close()
    session.sharpness.close(crashed or abrupt)
    session.called_loss.flush()
    session.samples.flush_train(step)
    session.batches.close(step)
    session.membership.flush(step)
    session.leakage.write(step)
    session.modes.close(step)
    session.pauses.close()
    session.synchronisations.write()
    session.device.close(crashed or abrupt)
    session.wiring.gradients()
    session.wiring.write(session.loop.updates, session.registry.loaded)
    for key, optimizer in session.registry.live_optimizers():
        session.optimizers.describe(key, optimizer)
    session.describe_models()
    session.library_warnings.look()
    session.unused_losses.close()
    _write_summary(session, step)


def _meant_to_train(session: Session) -> bool:
    """An optimizer was built and losses computed, but no backward or step ever came: a fault to be told."""
    return bool(session.registry.optimizers) and session.grad_losses > 1


def _skipped(session: Session) -> dict[str, str]:
    skipped = session.ceiling.describe()
    if session.registry.searches_skipped:
        skipped["search for the names of models"] = times(session.registry.searches_skipped)
    return skipped


def _write_summary(session: Session, step: int) -> None:
    """What the loop was taken to be, and our own state of health."""
    session.describe_loop(step)
    dropped = dict(session.record.dropped)
    if session.deferred.dropped:
        dropped["device reads"] = session.deferred.dropped
    health = HealthFact(
        overhead=session.governor.overhead,
        budget=session.governor.budget,
        dropped=dropped,
        disabled=guard.disabled(),
        unsupported=dict(list(session.context.unsupported.items())[:32]),
        skipped=_skipped(session),
        cadence=session.governor.cadence(),
        settling_seconds=session.governor.settling_seconds,
        own_seconds=session.governor.own_seconds,
        unnoticed=HealthFact.UNNOTICED_SECONDS,
    )
    session.record.fact(health, step)
