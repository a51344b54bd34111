"""Frozen parameters that an optimizer's step changes all the same, and running statistics behind frozen layers."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from torchdoctor import stats
from torchdoctor.attach.guard import contained
from torchdoctor.facts import FrozenChangeFact
from torchdoctor.probes.context import Context
from torchdoctor.probes.custody import mark_beginnings

TENSORS_KEPT = 128
NORMS_GROWTH = 1.05
"""Ratio of the updates at which running statistics are looked at again."""
NORMS_KEPT = 64
GROWTH = 2.0
"""The drift of running statistics is written again when it has grown by this factor."""
LEAST_VARIANCE = 1e-12
BEGINNINGS_KEPT, BEGINNINGS_APART = 4, 1.25
"""Trainings after the first that are looked at when they begin, and how far apart: finding a new model takes tens of
milliseconds, and some scripts make an optimizer for every task."""


class FrozenStateProbe:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.waiting = False
        """what is frozen has changed: the next update is looked at"""
        self.looking = False
        self._frozen = 0
        self._before: list[tuple[str, Tensor, int]] = []
        self._marks: dict[str, int] = {}
        self._changed: set[str] = set()
        self._first: dict[str, tuple[weakref.ref[nn.Module], Tensor, Tensor]] = {}
        self._toggled: set[str] = set()
        self._drift = 0.0
        self._norms_at = self._beginning_at = 1.0
        self._beginnings = 0

    def is_beginning(self, updates: int) -> bool:
        """An optimizer was made after others had made updates: whether to look at what it begins with."""
        if updates < self._beginning_at or self._beginnings >= BEGINNINGS_KEPT:
            return False
        self._beginnings += 1
        self._beginning_at = BEGINNINGS_APART * updates
        return True

    @contained("frozen state: boundary")
    def boundary(self, updates: int) -> None:
        """An epoch ends, the model's mode changes, or another training begins."""
        frozen = sum(1 for _, p in self._context.names.parameters() if not p.requires_grad)
        if frozen != self._frozen:
            self._frozen = frozen
            self.waiting = frozen > 0
        if frozen and updates >= self._norms_at:
            self._norms_at = NORMS_GROWTH * updates + 1
            self._look_at_norms(updates)

    @contained("frozen state: before_step")
    def before_step(self) -> None:
        self.waiting, self.looking = False, True
        held = self._context.names.held()
        named = [
            (n, p)
            for n, p in self._context.names.parameters()
            if not p.requires_grad
            and id(p) in held
            and p.grad is not None
            and p.numel()
            and stats.unsupported(p) is None
        ]
        self._before = [(n, p, id(p)) for n, p in named[:TENSORS_KEPT] if p.device == named[0][1].device]
        if self._before:
            names = [n for n, _, _ in self._before]
            self._context.read(self._fingerprint(), lambda values: self._keep(names, values))

    def _fingerprint(self) -> Tensor:
        return mark_beginnings([p for _, p, _ in self._before])

    def _keep(self, names: list[str], values: NDArray[Any]) -> None:
        self._marks = dict(zip(names, np.asarray(values).tolist(), strict=True))

    @contained("frozen state: after_step")
    def after_step(self, key: str, updates: int) -> None:
        self.looking = False
        if self._before:
            names = [n for n, _, _ in self._before]
            step = self._context.step
            self._context.read(self._fingerprint(), lambda values: self._compare(names, values, key, updates, step))
            self._before = []
        self._look_at_norms(updates)

    def _compare(self, names: list[str], values: NDArray[Any], key: str, updates: int, step: int) -> None:
        marks = dict(zip(names, np.asarray(values).tolist(), strict=True))
        changed = {n for n, mark in marks.items() if self._marks.get(n, mark) != mark}
        if changed - self._changed:
            self._changed |= changed
            fact = FrozenChangeFact(updates, changed=sorted(self._changed), gradients="kept", optimizer=key)
            self._context.record.fact(fact, step, "parameters")

    # -- running statistics ---------------------------------------------------------------

    def _look_at_norms(self, updates: int) -> None:
        norms: dict[str, Any] = {}
        several = sum(1 for _ in self._context.names.live_models()) > 1
        for label, model in self._context.names.live_models():
            if any(p.requires_grad for p in model.parameters()):
                prefix = f"{label}." if several else ""
                norms.update({prefix + name: norm for name, norm in _behind_frozen(model)})
        for name in [n for n in self._first if n not in norms or self._first[n][0]() is not norms[n]]:
            if self._first[name][0]() is not None:
                self._toggled.add(name)  # frozen for another network's update only
            del self._first[name]
        parts, names = [], []
        for name, norm in [item for item in norms.items() if item[0] not in self._toggled][:NORMS_KEPT]:
            if name not in self._first:
                mean, variance = norm.running_mean.detach().clone(), norm.running_var.detach().clone()
                self._first[name] = (weakref.ref(norm), mean, variance)
            else:
                _, mean, variance = self._first[name]
                spread = variance.clamp_min(LEAST_VARIANCE).sqrt()
                parts.append(((norm.running_mean.detach() - mean) / spread).abs().max().reshape(1).float())
                names.append(name)
        if parts:
            step = self._context.step
            self._context.read(torch.cat(parts), lambda values: self._drifted(names, values, updates, step))

    def _drifted(self, names: list[str], values: NDArray[Any], updates: int, step: int) -> None:
        drift = float(np.max(values))
        if drift > GROWTH * self._drift and np.isfinite(drift):
            self._drift = drift
            moved = [n for n, v in zip(names, values.tolist(), strict=True) if v > 0]
            self._context.record.fact(FrozenChangeFact(updates, norms=moved, drift=drift), step, "norms")


def _behind_frozen(model: nn.Module) -> list[tuple[str, Any]]:
    """Normalisation with running statistics, frozen itself, whose model has nothing that trains before it."""
    found = []
    layers = 0
    for name, module in model.named_modules():
        own = list(module.parameters(recurse=False))
        if any(p.requires_grad for p in own):
            break
        if isinstance(module, (_BatchNorm, _InstanceNorm)):
            if layers and own and module.running_mean is not None and module.running_var is not None:
                found.append((name, module))
        else:
            layers += len(own)
    return found
