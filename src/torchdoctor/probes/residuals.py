"""Whether what a model gets wrong is alike for samples that are alike: structure that it misses, not noise."""

from __future__ import annotations

import torch
from torch import Tensor

from torchdoctor import signals
from torchdoctor.attach.guard import contained
from torchdoctor.probes.context import Context
from torchdoctor.probes.loss_calls import LossCall

ROWS, COLUMNS = 256, 1024
LEAST_ROWS, LEAST_COLUMNS = 12, 8
ERRORS = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
BINARY = ("binary_cross_entropy_with_logits",)


class ResidualProbe:
    """On a look at a training batch: the residual of each sample against that of its nearest neighbour in the batch."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @contained("residuals: take")
    def take(self, call: LossCall, batch: list[Tensor]) -> None:
        residual = residuals(call)
        if residual is None or residual.shape[0] < LEAST_ROWS:
            return
        count = residual.shape[0]
        own = [t for t in batch if t.is_floating_point() and t.dim() >= 2 and t.shape[0] == count]
        own = [t for t in own if t.device == residual.device]
        given = next((t for t in own if not _same(t, call.target)), None)
        if given is not None:
            value = agreement(given.detach().reshape(count, -1)[:ROWS, :COLUMNS].float(), residual[:ROWS])
        elif own and residual.shape[1] >= LEAST_COLUMNS:
            value = common(residual[:ROWS])
        else:
            return
        step, record = self._context.step, self._context.record
        self._context.read(
            value,
            lambda value: record.scalar(signals.RESIDUAL_AGREEMENT.name, step, float(value)),
        )


def _same(given: Tensor, target: Tensor | None) -> bool:
    return target is not None and given.data_ptr() == target.data_ptr()


def residuals(call: LossCall) -> Tensor | None:
    """What is left to explain, (samples, outputs); None for losses that have no such thing."""
    given, target = call.input.detach(), call.target
    if target is None or given.device != target.device or given.dim() == 0:
        return None
    target = target.detach()
    if call.function in ERRORS and given.shape == target.shape:
        return (target - given).float().reshape(given.shape[0], -1)[:, :COLUMNS]
    if call.function in BINARY and given.shape == target.shape:
        return (target - given.sigmoid()).float().reshape(given.shape[0], -1)[:, :COLUMNS]
    if call.function == "cross_entropy" and call.indices and given.dim() == 2 and given.shape[1] <= COLUMNS:
        sought = target.clamp(0, given.shape[1] - 1).unsqueeze(1)
        return torch.zeros_like(given).scatter_(1, sought, 1.0).sub_(given.softmax(1)).float()
    return None


def agreement(x_NF: Tensor, residual_NK: Tensor) -> Tensor:
    """Mean product of neighbours' residuals over their mean square: 0 for noise, towards 1 for structure.

    A copy of the same sample is no neighbour: it shares its noise.
    """
    centred = residual_NK - residual_NK.mean(0)
    x_NF = (x_NF - x_NF.mean(0)) / x_NF.std(0).clamp_min(1e-6)
    distance_NN = torch.cdist(x_NF, x_NF)
    usual = distance_NN.mean()
    nearest_N = distance_NN.masked_fill(distance_NN <= 1e-3 * usual, float("inf")).argmin(1)
    return (centred * centred[nearest_N]).sum() / centred.square().sum().clamp_min(1e-30)


def common(residual_NK: Tensor) -> Tensor:
    """For a model that reconstructs its input, whose neighbours share their noise: the share of the residuals'
    directions that are missing, against as many independent columns. 0 for noise, towards 1 where the residuals of
    many outputs go together."""
    centred = residual_NK - residual_NK.mean(0)
    unit = centred / centred.square().mean(0).sqrt().clamp_min(1e-12)
    rows, columns = unit.shape[0] - 1, unit.shape[1]
    gram = unit @ unit.T if rows < columns else unit.T @ unit
    directions = gram.trace().square() / gram.square().sum().clamp_min(1e-30)
    return 1 - directions * (rows + columns + 1) / (rows * columns)
