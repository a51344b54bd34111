"""A script that looks at its loss itself and gives up (an assert, a raise, sys.exit) never calls backward on it.

Its frames still hold the loss, and the loss its graph: what was made where can be told from them.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchdoctor.attach import guard
from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import is_user_file
from torchdoctor.errors import StopTraining
from torchdoctor.facts import GAVE_UP
from torchdoctor.stats.support import PLAIN_TYPES, Quiet

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session


@contained("last words")
def tell_loss(session: Session, error: BaseException) -> None:
    """The script gives up: perhaps on a loss that it looked at itself, and that no backward has seen."""
    if session.context.broke_at is not None or not session.loop.backwards or isinstance(error, StopTraining):
        return
    loss = find_loss(error)
    if loss is None:
        return
    guard.STATE.inside = True
    try:
        session.steady.leave()
        session.turn()
        session.hunt.rest()
        session.context.unsupported["birth"] = GAVE_UP
        session.root = loss
        session.loss_nonfinite(session.context.step, float(loss.detach()))
    finally:
        session.root = None
        guard.STATE.inside = False


def find_loss(error: BaseException) -> Tensor | None:
    """A number with a graph that is not finite, in the innermost of the user's frames that has one."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if is_user_file(frame.f_code.co_filename)]
    with Quiet():
        for frame in reversed(frames):
            for value in list(frame.f_locals.values()):
                if type(value) in PLAIN_TYPES and _is_broken(value):
                    return value
    return None


def _is_broken(value: Tensor) -> bool:
    if value.grad_fn is None or value.numel() != 1 or not value.is_floating_point() or value.layout != torch.strided:
        return False
    return not bool(value.detach().isfinite().all())
