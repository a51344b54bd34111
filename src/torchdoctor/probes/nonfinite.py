"""Where NaN and Inf stand when the loss shows one: in the batch, the targets, the weights or the buffers."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor import stats
from torchdoctor.attach.guard import contained
from torchdoctor.facts import MODEL_INPUT
from torchdoctor.probes.context import Context

PLACES_KEPT = 16
MOST_EXAMINED = 3
"""Broken steps that are examined; what comes after them is a consequence."""


def apart(batch: list[Tensor], targets: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Inputs and targets of an earlier step: the latter are what another step's targets look like."""
    like = {(t.dtype, t.shape[1:]) for t in targets}
    ends = [(t.dtype, t.shape[1:]) in like for t in batch]
    return (
        [t for t, is_target in zip(batch, ends, strict=True) if not is_target],
        [t for t, is_target in zip(batch, ends, strict=True) if is_target],
    )


class NonfiniteProbe:
    """Looks closely, once; the loop is broken already, so the cost no longer matters."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._examined = 0

    @contained("nonfinite: examine")
    def examine(self, step: int, inputs: list[Tensor], targets: list[Tensor]) -> None:
        """Check what went into the step whose loss was not finite, and the state it started from."""
        if self._examined >= MOST_EXAMINED:
            return
        self._examined += 1
        for role, tensors in (("input", inputs), ("target", targets)):
            for i, tensor in enumerate(tensors):
                self._check_batch(role, f"{role}{i}" if i else role, tensor, step)
        self.check_state(step)

    @contained("nonfinite: model")
    def examine_model(self, step: int, given: list[Tensor]) -> None:
        """Check what the model was given, where that is not the batch itself: the script may have changed it."""
        if self._examined < MOST_EXAMINED:
            for i, tensor in enumerate(given):
                self._check_batch("input", f"{MODEL_INPUT}{i or ''}", tensor, step)

    def check_state(self, step: int) -> None:
        """Weights and buffers of every model."""
        for name, parameter in self._context.names.parameters():
            self._check("weight", name, parameter, step)
        for label, model in self._context.names.live_models():
            for name, buffer in model.named_buffers():
                self._check("buffer", f"{label}.{name}", buffer, step)

    def _check(self, role: str, name: str, tensor: Tensor, step: int) -> None:
        if not tensor.is_floating_point() or stats.unsupported(tensor) is not None or tensor.numel() == 0:
            return
        plain = tensor.detach()
        counts = torch.stack([plain.isfinite().logical_not().sum(), plain.isnan().sum()])

        def arrived(values: NDArray[Any]) -> None:
            if values[0]:
                self._context.nonfinite(role, name, int(values[0]), step, nan=int(values[1]))

        self._context.read(counts, arrived)

    def _check_batch(self, role: str, name: str, tensor: Tensor, step: int) -> None:
        tensor = tensor.detach()
        if not tensor.is_floating_point() or stats.unsupported(tensor) is not None or tensor.numel() == 0:
            return
        if tensor.device.type != "cpu":
            self._check(role, name, tensor, step)
            return
        bad = tensor.isfinite().logical_not()
        if not bool(bad.any()):
            return
        rows = bad.reshape(bad.shape[0], -1) if bad.dim() else bad.reshape(1, 1)
        samples = torch.nonzero(rows.any(1)).flatten()[:PLACES_KEPT].tolist()
        features = torch.nonzero(rows.any(0)).flatten()[:PLACES_KEPT].tolist() if bad.dim() > 1 else []
        self._context.nonfinite(
            role,
            name,
            int(bad.sum()),
            step,
            nan=int(tensor.isnan().sum()),
            samples=samples,
            features=features,
        )
