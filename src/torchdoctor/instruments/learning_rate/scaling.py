"""A learning rate for another batch size."""

from __future__ import annotations

import math
from typing import Any, Literal

from torchdoctor.errors import UsageError

ADAPTIVE = ("Adam", "RMSprop", "Adagrad", "Adadelta", "Lion", "LAMB", "Lamb", "Adafactor", "Shampoo", "SOAP", "Muon")
"""In the names of optimizers that divide by the size of the gradient: its noise enters their step by its root."""


def scale_lr(
    lr: float,
    batch_size: int,
    new_batch_size: int,
    rule: Literal["linear", "sqrt"] | None = None,
    optimizer: Any = None,
) -> float:
    """The rate for `new_batch_size` that corresponds to `lr` at `batch_size`.

    Linear for SGD (Goyal et al. 2017: k times the batch, k times the rate, with a warm-up), the root for Adam and its
    kin (Malladi et al. 2022). `optimizer` (itself, its class or its name) chooses between them where no rule is given;
    with neither, linear. Both hold while the batch is small against the noise of its gradient: beyond the critical
    batch size a larger rate buys nothing. Count the samples of one optimizer step: all processes and accumulated
    batches together.
    """
    if lr <= 0 or batch_size < 1 or new_batch_size < 1:
        raise UsageError(f"lr is {lr}, the batch sizes {batch_size} and {new_batch_size}; all have to be above 0")
    chosen = rule or ("sqrt" if _is_adaptive(optimizer) else "linear")
    ratio = new_batch_size / batch_size
    if chosen == "linear":
        return lr * ratio
    if chosen == "sqrt":
        return lr * math.sqrt(ratio)
    raise UsageError(f"rule is {rule!r}; 'linear' or 'sqrt'")


def _is_adaptive(optimizer: Any) -> bool:
    if optimizer is None:
        return False
    name = optimizer if isinstance(optimizer, str) else getattr(optimizer, "__name__", type(optimizer).__name__)
    return any(a.lower() in name.lower() for a in ADAPTIVE)
