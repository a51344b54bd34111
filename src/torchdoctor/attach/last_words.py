"""A script that looks at its loss itself and gives up (an assert, a raise, sys.exit) never calls backward on it.

Its frames still hold the loss, and the loss its graph: what was made where can be told from them.
"""

from __future__ import annotations

import traceback

import torch
from torch import Tensor

from torchdoctor.attach.places import is_user_file
from torchdoctor.stats.support import PLAIN_TYPES, Quiet


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
