"""What a loss costs for knowing nothing: the same function, with the same options, on a constant answer."""

from __future__ import annotations

import inspect
import math
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.model.influence import positions_of
from torchdoctor.checks.model.looks import Look, targets_of
from torchdoctor.probes.loss_calls import LossCall
from torchdoctor.rules.architecture import bad_initialization_scale as scale
from torchdoctor.rules.baseline import ABSOLUTE, BINARY, CLASSIFICATION, SQUARED
from torchdoctor.rules.curves import figure

Row = tuple[float, float, float, float, float, int | None]
KNOWN = (*CLASSIFICATION, *BINARY, *SQUARED, *ABSOLUTE)
LEAST_RATE = 1e-3
"""A class or label that no sample of a batch has is not thought impossible."""
EQUAL = 1e-3
"""A loss written by hand is taken for one of torch's where it has its value, up to rounding in half precision."""


@dataclass(frozen=True)
class Measured:
    """One loss of a step, in the middle of the batches that were looked at."""

    function: str
    loss: float
    blind: float
    """of zeros: every class as likely as any other, every quantity zero"""
    prior: float
    """of the best constant: the frequencies of the labels, the mean or the median of the targets"""
    classes: int | None
    score: float
    """the largest absolute number that went into it"""
    shuffled: float
    """of the same scores against other samples' targets: lower where the loss works against the right answer"""

    @property
    def chance(self) -> float:
        return max(self.blind, self.prior)

    @property
    def best(self) -> float:
        """The better of the two: with weights on classes their frequencies may be no good guess."""
        return min(self.blind, self.prior)

    @property
    def ratio(self) -> float:
        """Times chance from which on a first loss is far above it."""
        return scale.REGRESSION if self.function in (*SQUARED, *ABSOLUTE) else scale.CLASSIFICATION

    @property
    def words(self) -> str:
        prior = figure(self.prior)
        if self.classes is not None:
            return f"guessing among {self.classes} classes costs {figure(self.blind)}, their frequencies {prior}"
        if self.function in BINARY:
            return f"a coin costs {figure(self.blind)}, the frequency of the labels {prior}"
        middle = "mean" if self.function in SQUARED else "median"
        return f"zero for every target costs {figure(self.blind)}, their {middle} {prior}"


def measure(bench: Bench, looks: list[Look]) -> list[Measured]:
    """Each loss that is called once a step, in the order of the calls."""
    by_place: dict[tuple[int, str], list[Row]] = {}
    for look in looks:
        for number, call in enumerate(calls_of(bench, look)):
            row = _row(call) if not _is_of_pairs(call, look) else None
            if row is not None:
                by_place.setdefault((number, call.function), []).append(row)
    return [_middle(function, rows) for (_, function), rows in by_place.items()]


def calls_of(bench: Bench, look: Look) -> list[LossCall]:
    """Calls of torch's losses; else the one that has the value of what was written by hand."""
    if look.calls or look.loss is None or not isinstance(look.outputs, Tensor):
        return [call for call in look.calls if call.function in KNOWN]
    outputs = look.outputs.float()
    for target in targets_of(bench, look):
        for function, given in _readings(outputs, target.to(outputs.device)):
            call = LossCall(function, outputs, given, {}, None)
            value = _value(call, outputs)
            if value is not None and math.isclose(value, look.loss, rel_tol=EQUAL):
                return [call]
    return []


def _readings(outputs: Tensor, target: Tensor) -> list[tuple[str, Tensor]]:
    if not target.is_floating_point():
        if outputs.dim() == 2 and target.numel() == len(outputs):
            return [("cross_entropy", target.reshape(-1)), ("nll_loss", target.reshape(-1))]
        return []
    if target.numel() != outputs.numel():
        return []
    target = target.reshape(outputs.shape).float()
    return [(name, target) for name in ("mse_loss", "l1_loss", "binary_cross_entropy_with_logits")]


def _is_of_pairs(call: LossCall, look: Look) -> bool:
    """Samples are the classes of each other (InfoNCE): they are alike before anything is learned."""
    width = call.input.shape[call.class_dim] if call.indices and call.class_dim is not None else None
    alike = width is not None and len(call.input) - 1 <= width <= len(call.input)
    return alike and call.target is not None and not positions_of(look.batch, call.target)


def _row(call: LossCall) -> Row | None:
    source = call.input.detach().float()
    target = call.target
    if target is None or not source.numel() or not target.numel():
        return None
    dim = call.class_dim
    classes = int(source.shape[dim]) if dim is not None else None
    if classes is not None and classes < 2:
        return None
    blind = {"nll_loss": -math.log(classes or 1), "binary_cross_entropy": 0.5}.get(call.function, 0.0)
    loss, none = _value(call, source), _value(call, torch.full_like(source, blind))
    prior = _value(call, _constant(call, source, target))
    if loss is None or none is None or prior is None:
        return None
    return loss, none, prior, float(source.abs().max()), _of_others(call, source, target, loss), classes


def _of_others(call: LossCall, source: Tensor, target: Tensor, loss: float) -> float:
    """Return the loss against other rows' targets, the highest of a few assignments.

    One would not do: in a sequence the neighbour's target may be the row's own input.
    """
    count = len(target) if target.dim() else 1
    shifts = {max(1, count // part) for part in (count, 3, 2)}
    values = [_value(replace(call, target=target.roll(shift, 0)), source) for shift in shifts] if count > 1 else []
    return max((loss if value is None else value for value in values), default=loss)


def _middle(function: str, rows: list[Row]) -> Measured:
    loss, blind, prior, score, shuffled, classes = zip(*rows, strict=True)
    if not all(map(math.isfinite, loss)):
        return Measured(function, math.nan, _median(blind), _median(prior), classes[0], max(score), math.nan)
    middle = [_median(part) for part in (loss, blind, prior, score, shuffled)]
    return Measured(function, *middle[:3], classes[0], *middle[3:])


def _median(values: Any) -> float:
    return float(statistics.median(values))


def _constant(call: LossCall, source: Tensor, target: Tensor) -> Tensor:
    """The best answer that is the same for every sample of this batch."""
    if call.function in CLASSIFICATION:
        rate_C = _class_rates(call, source, target).clamp_min(LEAST_RATE / source.shape[call.class_dim or 0])
        shape = [1] * source.dim()
        shape[call.class_dim or 0] = -1
        return (rate_C / rate_C.sum()).log().reshape(shape).expand_as(source)
    wanted = target.float()
    if wanted.dim() == 0 or wanted.shape != source.shape:
        middle = wanted.mean() if call.function not in ABSOLUTE else wanted.median()
    else:
        middle = wanted.mean(0, keepdim=True) if call.function not in ABSOLUTE else wanted.median(0, True).values
    if call.function in BINARY:
        heavy = call.options.get("pos_weight")
        if isinstance(heavy, Tensor):
            middle = heavy.to(middle) * middle / (1 + (heavy.to(middle) - 1) * middle)
        middle = middle.clamp(LEAST_RATE, 1 - LEAST_RATE)
        middle = middle.logit() if call.function == "binary_cross_entropy_with_logits" else middle
    return middle.expand_as(source)


def _class_rates(call: LossCall, source: Tensor, target: Tensor) -> Tensor:
    dim = call.class_dim or 0
    if not call.indices:
        return target.float().movedim(dim, 0).reshape(source.shape[dim], -1).mean(1)
    flat = target.reshape(-1).long()
    flat = flat[(flat >= 0) & (flat < source.shape[dim]) & (flat != call.options.get("ignore_index", -100))]
    counts = torch.bincount(flat, minlength=source.shape[dim]).float()
    weight = call.options.get("weight")
    counts = counts * weight.to(counts) if isinstance(weight, Tensor) else counts
    return counts / counts.sum().clamp_min(1e-12)


def _value(call: LossCall, given: Tensor) -> float | None:
    """The mean loss of this in place of the model's answer."""
    function: Callable[..., Tensor] = getattr(F, call.function)
    known = inspect.signature(function).parameters
    left_out = ("input", "target", "size_average", "reduce", "reduction")
    options = {name: value for name, value in call.options.items() if name in known and name not in left_out}
    target = call.target
    if target is not None and call.function not in CLASSIFICATION:
        target = target.float()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return float(function(given, target, **options, reduction="mean"))
    except (RuntimeError, ValueError, IndexError, TypeError):
        return None
