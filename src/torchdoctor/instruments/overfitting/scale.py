"""A cause between rate and capacity: inputs or targets of a size that no usual rate reaches."""

from __future__ import annotations

import torch
from torch import Tensor

from torchdoctor.instruments.one_batch import replaced
from torchdoctor.instruments.overfitting.case import Case, Cause, steps_for
from torchdoctor.instruments.overfitting.heads import QUANTITIES
from torchdoctor.rules.curves import figure
from torchdoctor.rules.data.unnormalized_inputs import LARGE, LARGE_TARGET


def unscaled(case: Case) -> Cause | None:
    """Whether it works with targets, or inputs, of zero mean and unit size."""
    call = case.start.call
    if call is not None and call.function in QUANTITIES and call.target is not None:
        found = _standardised(case, call.target, "targets", LARGE_TARGET)
        if found is not None:
            return found
    for tensor in case.start.inputs:
        if tensor.is_floating_point() and (found := _standardised(case, tensor, "inputs", LARGE)) is not None:
            return found
    return None


@torch.enable_grad()
def _standardised(case: Case, tensor: Tensor, what: str, limit: float) -> Cause | None:
    values = tensor.detach().float()
    size = float(values.square().mean().sqrt())
    if not size >= limit or len(values) < 2:
        return None
    mean, spread = values.mean(0), values.std(0)
    changed = ((values - mean) / torch.where(spread > 1e-6 * size, spread, torch.ones_like(spread))).to(tensor.dtype)
    batch = replaced(case.batch, tensor, changed)
    steps = steps_for(case, batch) if batch is not None else None
    if steps is None:
        return None
    text = (
        f"the {what} are of size {figure(size)}, not about 1; with the {what} standardised the batch is memorised in "
        f"{steps} steps"
    )
    return Cause("unnormalized-inputs", text, f"Standardise the {what} with the training set's mean and std.", True)
