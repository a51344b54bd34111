"""The model called once more as the training step calls it, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.model.mode_calls import ModeCall, ModeCalls
from torchdoctor.checks.repeats.module_trace import Call, Marks, marks_of, traced
from torchdoctor.probes.batches import batch_tensors

ROUNDING = 1e-4
"""Relative difference of two passes that kernels with an order of their own leave."""


@dataclass(frozen=True)
class Pass:
    """One call of the model, as it was made."""

    outputs: list[Tensor]
    form: tuple[Any, ...]
    """what the outputs are in, and their shapes and types"""
    calls: list[Call]
    functions: list[ModeCall]

    @property
    def marks(self) -> Marks:
        return marks_of(self.outputs)

    @property
    def is_broken(self) -> bool:
        return any(t.is_floating_point() and not bool(t.isfinite().all()) for t in self.outputs)

    def apart(self, other: Pass) -> float:
        """Largest difference over the largest value, of outputs of one form."""
        pairs = ((a, b) for a, b in zip(self.outputs, other.outputs, strict=True) if a.numel() and not a.is_complex())
        return max((_apart(a.double(), b.double()) for a, b in pairs), default=0.0)

    def is_close(self, other: Pass) -> bool:
        """But for the order in which a kernel adds up."""
        return self.form == other.form and self.apart(other) <= ROUNDING


class ModelCall:
    """The model's last call in a training step, to be made again with the same inputs."""

    def __init__(self, bench: Bench, args: Any, kwargs: Any) -> None:
        self._bench, self._args, self._kwargs = bench, args, kwargs
        self.given: list[Tensor] = batch_tensors([*args, *kwargs.values()])

    @classmethod
    def of_step(cls, bench: Bench) -> ModelCall | None:
        given: list[tuple[Any, Any]] = []
        handle = bench.subject.called.register_forward_pre_hook(
            lambda _module, args, kwargs: given.append((args, kwargs)), with_kwargs=True
        )
        try:
            bench.subject.loss(bench.train[0])
        finally:
            handle.remove()
        return cls(bench, *given[-1]) if given else None

    def make(self) -> Pass:
        """With a graph: a forward may take the gradient of what it computes."""
        stance = torch.compiler.set_stance("force_eager")
        copies = self._bench.with_inputs(_copied)
        with torch.enable_grad(), stance, traced(self._bench.model) as calls, ModeCalls() as watch, copies:
            outputs = self._bench.subject.called(*self._args, **self._kwargs)
        named = dict(outputs) if hasattr(outputs, "keys") else None
        tensors = [t.detach().clone() for t in batch_tensors(outputs if named is None else named)]
        form = (type(outputs).__name__, *(named or ()), *((t.shape, t.dtype) for t in tensors))
        return Pass(tensors, form, calls, watch.calls)


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max()) / max(1e-12, float(one.abs().max()))


def _copied(_number: int, tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)
