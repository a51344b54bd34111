"""A script that looks at its loss itself and gives up (an assert, a raise, sys.exit) never calls backward on it.

Its frames still hold the loss, and the loss its graph: what was made where can be told from them.
"""

from __future__ import annotations

import math
import re
import traceback
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchdoctor.attach import guard
from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place, is_user_file
from torchdoctor.errors import StopTraining
from torchdoctor.facts import GAVE_UP
from torchdoctor.stats.support import PLAIN_TYPES, Quiet

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session

_NOT_FINITE = re.compile(r"\bnan\b|finite", re.IGNORECASE)


@contained("last words")
def tell_loss(session: Session, error: BaseException) -> None:
    """The script gives up: perhaps on a loss that it looked at itself, and that no backward has seen."""
    if session.context.broke_at is not None or isinstance(error, StopTraining):
        return
    if not session.loop.backwards:
        session.unused_losses.found_by_script(find_unused_loss(error), session.batch, session.targets)
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


def find_unused_loss(error: BaseException) -> tuple[float, Place] | None:
    """A loss that is not finite by its name, in the innermost of the user's frames that has one; with its place.

    A number may be the initial value of a "best loss" or stand for a loss that is not known yet. So it counts where it
    is NaN and the script ends because of it: the line that failed, or the message of the error, speaks of it.
    """
    frames = [(f, line) for f, line in traceback.walk_tb(error.__traceback__) if is_user_file(f.f_code.co_filename)]
    with Quiet():
        for frame, line in reversed(frames):
            place = Place(frame.f_code.co_filename, line)
            for name, value in list(frame.f_locals.items()):
                number = _number(value) if "loss" in name.lower() else None
                if number is None or math.isfinite(number):
                    continue
                is_computed = isinstance(value, Tensor) and value.grad_fn is not None
                if is_computed or (math.isnan(number) and _speaks_of(name, place.code, error)):
                    return number, place
    return None


def _speaks_of(name: str, line: str, error: BaseException) -> bool:
    message = " ".join(arg for arg in error.args if isinstance(arg, str))
    return re.search(rf"\b{re.escape(name)}\b", line) is not None or _NOT_FINITE.search(message) is not None


def _number(value: object) -> float | None:
    if type(value) is float:
        return value
    if not isinstance(value, Tensor) or type(value) not in PLAIN_TYPES or value.layout != torch.strided:
        return None
    return float(value.detach()) if value.numel() == 1 and value.is_floating_point() else None


def _is_broken(value: Tensor) -> bool:
    if value.grad_fn is None or value.numel() != 1 or not value.is_floating_point() or value.layout != torch.strided:
        return False
    return not bool(value.detach().isfinite().all())
