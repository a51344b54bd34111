"""Optimizers: hyperparameters of every group at every step, the order of calls, clipping, scaler, schedulers."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor import signals
from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place
from torchdoctor.facts import ClipFact, OptimizerFact, OrderFact
from torchdoctor.probes.context import Context

PATTERNS_KEPT = 12
"""Distinct call orders of one optimizer that are written down."""


SCHEDULED = ("lr", "momentum", "betas")
"""Hyperparameters that schedulers move at every step."""
LEARNING_RATE = signals.LEARNING_RATE.name


@cache
def group_key(optimizer: str, group: int) -> str:
    return f"{optimizer}.{group}"


class OptimizerProbe:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._places: dict[str, Place] = {}
        self._described: dict[str, Any] = {}
        self._clips: set[tuple[Any, ...]] = set()
        self._patterns: dict[str, set[tuple[str, ...]]] = {}

    @contained("optimizers: created")
    def created(self, key: str, place: Place | None) -> None:
        if place:
            self._places[key] = place

    @contained("optimizers: stepped")
    def stepped(self, key: str, optimizer: Optimizer, calls: list[str], closure: bool) -> None:
        """An update was made: rates on every step, the rest when it changes."""
        step, record = self._context.step, self._context.record
        groups = optimizer.param_groups
        for g, group in enumerate(groups):
            rate = group.get("lr")
            rate = rate if type(rate) is float else number(rate)
            if rate is not None:
                record.scalar(LEARNING_RATE, step, rate, group_key(key, g))
            if self._context.looks:
                self._look_at_group(group, group_key(key, g))
        pattern = tuple(calls)
        seen_patterns = self._patterns.setdefault(key, set())
        if calls and pattern not in seen_patterns and len(seen_patterns) < PATTERNS_KEPT:
            seen_patterns.add(pattern)
            record.fact(OrderFact(key, calls, closure), step, f"{key}/{len(seen_patterns)}")
        if self._context.looks:
            self.describe(key, optimizer)

    def _look_at_group(self, group: dict[str, Any], name: str) -> None:
        momentum = group.get("momentum", group.get("betas", (None,))[0])
        for signal, value in ((signals.WEIGHT_DECAY, group.get("weight_decay")), (signals.MOMENTUM, momentum)):
            plain = number(value)
            if plain is not None:
                self._context.record.scalar(signal.name, self._context.step, plain, name)

    @contained("optimizers: describe")
    def describe(self, key: str, optimizer: Optimizer) -> None:
        groups = [plain_group(g) for g in optimizer.param_groups]
        static = [{k: v for k, v in g.items() if k not in SCHEDULED} for g in groups]
        if self._described.get(key) == static:
            return
        self._described[key] = static
        place = self._places.get(key)
        count = sum(len(g["params"]) for g in optimizer.param_groups)
        fact = OptimizerFact(
            key=key,
            type=type(optimizer).__name__,
            groups=groups,
            parameters=count,
            file=place.file if place else None,
            line=place.line if place else None,
        )
        self._context.record.fact(fact, self._context.step, key)

    @contained("optimizers: clipped")
    def clipped(self, how: str, threshold: float, norm: Any, norm_type: float | None, details: dict[str, Any]) -> None:
        """Gradients were clipped; `norm` is what the call returned (before clipping), None when by value."""
        step, record = self._context.step, self._context.record
        if isinstance(norm, Tensor):
            record.scalar(signals.CLIP_THRESHOLD.name, step, threshold)
            self._context.read(norm, lambda v: record.scalar(signals.CLIP_NORM.name, step, float(v)))
        signature = (how, threshold, details["after_step"])
        if signature not in self._clips and len(self._clips) < PATTERNS_KEPT:
            self._clips.add(signature)
            record.fact(ClipFact(how=how, threshold=threshold, norm_type=norm_type, **details), step, how)

    @contained("optimizers: scaled")
    def scaled(self, scaler: Any, step: int) -> None:
        """After GradScaler.update for that step: the scale, read without waiting."""
        scale = getattr(scaler, "_scale", None)
        if isinstance(scale, Tensor):
            record = self._context.record
            self._context.read(scale, lambda v: record.scalar(signals.SCALE.name, step, float(v)))


def number(value: Any) -> float | None:
    """A plain number; tensors on a device are left alone, since reading them would wait."""
    if isinstance(value, Tensor):
        return float(value) if value.device.type == "cpu" and value.numel() == 1 else None
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def plain_group(group: dict[str, Any]) -> dict[str, Any]:
    """Numbers and flags of a parameter group, and how many tensors and elements it holds."""
    plain: dict[str, Any] = {}
    for name, value in group.items():
        if name == "params":
            continue
        if isinstance(value, (tuple, list)) and all(isinstance(v, (int, float)) for v in value):
            plain[name] = list(value)
        elif isinstance(value, (bool, str)) or value is None:
            plain[name] = value
        elif (simple := number(value)) is not None and math.isfinite(simple):
            plain[name] = simple
    plain["tensors"] = len(group["params"])
    plain["elements"] = sum(p.numel() for p in group["params"] if isinstance(p, torch.Tensor))
    return plain
