"""NaN and Inf in a tensor of a batch, as the rules for recorded runs describe them."""

from __future__ import annotations

import math

from torch import Tensor

from torchdoctor.checks.model.looks import Look
from torchdoctor.facts import TRAIN
from torchdoctor.rules.nonfinite import Contamination, Outcome

SHOWN = 8
"""Samples and features that are named."""


def contaminated(tensor: Tensor, look: Look, step: int) -> Contamination | None:
    """None where all is finite. `look` tells what it did to the loss."""
    if not tensor.is_floating_point() or bool(tensor.isfinite().all()) or _is_mask(tensor):
        return None
    bad = ~tensor.isfinite()
    rows = bad.reshape(len(bad), -1) if bad.dim() > 1 else bad.reshape(-1, 1)
    features = rows.any(0).nonzero().flatten().tolist() if rows.shape[1] > 1 else []
    return Contamination(
        step=step,
        phase=TRAIN,
        count=int(bad.sum()),
        nan=int(tensor.isnan().sum()),
        samples=tuple(rows.any(1).nonzero().flatten().tolist()[:SHOWN]),
        features=tuple(features) if len(features) <= SHOWN else (),
        rows=len(bad),
        batches=1,
        looks=1,
        outcome=Outcome.HANDLED if is_handled(look) else Outcome.BROKE,
        loss_step=step if look.broke else None,
    )


def _is_mask(tensor: Tensor) -> bool:
    """Zeros and minus infinity: an additive attention mask."""
    return bool(((tensor == 0) | (tensor == -math.inf)).all())


def is_handled(look: Look) -> bool:
    """Neither the loss nor the first layer sees any of it."""
    seen = look.first if look.first is not None and look.first.is_floating_point() else None
    return look.loss is not None and not look.broke and (seen is None or bool(seen.isfinite().all()))
