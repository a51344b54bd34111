"""Running statistics of batch norm while weights move: what they should be there, and what to say about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.instruments.subject import Subject

BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)


class Statistics:
    """Buffers of a model on a line between two states (`ends`), or as they are where there is none."""

    def __init__(
        self, model: nn.Module, ends: tuple[dict[str, Tensor], dict[str, Tensor]] | None, *, recompute: bool = False
    ) -> None:
        self._norms = [m for m in model.modules() if isinstance(m, BATCH_NORMS) and m.track_running_stats]
        self._ends = ends
        self._recompute = recompute and bool(self._norms)
        held = [*model.named_buffers(), *((n, p) for n, p in model.named_parameters() if not p.requires_grad)]
        self._moved = [(t, ends[0][n].to(t), ends[1][n].to(t)) for n, t in held if ends is not None and n in ends[0]]

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Momentum of None averages over all batches; it is put back."""
        momenta = [norm.momentum for norm in self._norms]
        try:
            yield
        finally:
            for norm, momentum in zip(self._norms, momenta, strict=True):
                norm.momentum = momentum

    @torch.no_grad()
    def move(self, place: float, subject: Subject, batches: Sequence[Any]) -> None:
        """To this place on the line. A variance stays above zero behind the ends, whole numbers are the nearer ones."""
        for tensor, first, second in self._moved:
            if tensor.is_floating_point():
                tensor.copy_(torch.lerp(first, second, place))
            else:
                tensor.copy_(first if place < 0.5 else second)
        for norm in self._norms:
            if norm.running_var is not None:
                norm.running_var.clamp_(min=0.0)
        if self._recompute:
            self._measure(subject, batches)

    def _measure(self, subject: Subject, batches: Sequence[Any]) -> None:
        modes = [norm.training for norm in self._norms]
        for norm in self._norms:
            norm.reset_running_stats()
            norm.momentum = None
            norm.train()
        for batch in batches:
            subject.outputs(batch)
        for norm, mode in zip(self._norms, modes, strict=True):
            norm.train(mode)

    def notes(self, training: bool) -> list[str]:
        if not self._norms:
            return []
        count = f"{len(self._norms)} batch-norm layer{'s' if len(self._norms) > 1 else ''}"
        if training:
            return [f"{count} normalised by the batch itself, as in training"]
        if self._recompute:
            return [f"running mean and variance of {count} were taken anew from the batches at every point"]
        if self._ends is None:
            return [f"running mean and variance of {count} stayed as they are"]
        return [
            f"running mean and variance of {count} were interpolated like weights; between separate trainings part of "
            "any barrier may come from that: compare with batch_norm='recompute'"
        ]
