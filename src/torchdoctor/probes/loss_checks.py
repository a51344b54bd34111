"""Which loss a script found broken when it looked for a NaN itself: `torch.isnan(loss)`, `math.isfinite(value)`."""

from __future__ import annotations

import math
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from torchdoctor.attach.places import is_user_file

CHECKS = tuple((owner, name) for owner in (torch, Tensor, math) for name in ("isnan", "isfinite", "isinf"))


def broken_loss(asked: Any, frame: FrameType | None) -> Tensor | None:
    """The loss that is not finite, if that is what was asked about: the tensor, or one in the user's frame whose number
    it is."""
    if isinstance(asked, float):
        return _in_frame(frame) if asked - asked != 0.0 else None
    return asked if is_broken(asked) else None


def is_broken(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.numel() != 1 or value.grad_fn is None or not value.is_cpu:
        return False
    number = Tensor.item(value.detach())
    return bool(number - number != 0.0)


def _in_frame(frame: FrameType | None) -> Tensor | None:
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    held = list(frame.f_locals.values()) if frame is not None else []
    return next((value for value in held if is_broken(value)), None)
