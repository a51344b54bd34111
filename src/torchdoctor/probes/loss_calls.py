"""Calls of torch's loss functions: shapes, dtypes, ranges and the place in the user's code."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place
from torchdoctor.facts import UNKNOWN, LossCallFact
from torchdoctor.probes.context import Context
from torchdoctor.stats import has_own_dispatch

CLASSIFICATION = ("cross_entropy", "nll_loss", "multi_margin_loss")
FUNCTIONS = (
    *CLASSIFICATION,
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "margin_ranking_loss",
    "mse_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
)
ROW_SUM_TOLERANCE = 1e-3
"""Rows of probabilities sum to one up to rounding, in half precision too."""
LOOKS_IN_FULL = 3
"""Calls at one place whose values are examined whatever they are; later ones only when something new shows."""


@dataclass(frozen=True)
class LossCall:
    """One call as it was made."""

    function: str
    input: Tensor
    target: Tensor | None
    options: Mapping[str, Any]
    result: Any

    @property
    def samples(self) -> int:
        source = self.target if self.target is not None and self.target.dim() else self.input
        return int(source.shape[0]) if source.dim() else 1

    @property
    def class_dim(self) -> int | None:
        if self.function not in CLASSIFICATION or self.input.dim() == 0:
            return None
        return 0 if self.input.dim() == 1 else 1

    @property
    def indices(self) -> bool:
        """Targets are class indices."""
        target = self.target
        return (
            target is not None
            and self.class_dim is not None
            and not target.is_floating_point()
            and target.dim() == self.input.dim() - 1
        )


_SIGNATURES: dict[str, inspect.Signature] = {}


def read_call(
    function: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
) -> LossCall | None:
    """Sort a call's arguments out; None where it is not a call on tensors."""
    signature = _SIGNATURES.setdefault(function, inspect.signature(original))
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    options = dict(bound.arguments)
    values = list(options.values())
    first = values[0] if values else None
    target = options.get("target")
    if not isinstance(first, Tensor) or any(isinstance(v, Tensor) and has_own_dispatch(v) for v in (*values, result)):
        return None
    return LossCall(function, first, target if isinstance(target, Tensor) else None, options, result)


class LossCallProbe:
    """Writes a LossCallFact for every place, and again when its shape or range shows something new."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._last: dict[str, tuple[int, LossCallFact]] = {}

    @contained("loss_calls: write")
    def write(self, fact: LossCallFact, values: Tensor, phase: str, step: int) -> None:
        """A call as `describe` and `value_statistics` saw it, now that its phase is known."""
        fact = replace(fact, phase=phase)
        subject = f"{fact.function}@{fact.file}:{fact.line}/{phase}"

        def arrived(array: Any) -> None:
            count, last = self._last.get(subject, (0, None))
            known = with_values(fact, [float(v) for v in array])
            merged = widen(known, last) if last is not None else known
            self._last[subject] = (count + 1, merged)
            if count < LOOKS_IN_FULL or merged != last:
                self._context.record.fact(merged, step, subject)

        self._context.read(values, arrived)


def describe(call: LossCall, place: Place | None) -> LossCallFact:
    target, options = call.target, call.options
    dim = call.class_dim
    smoothing = options.get("label_smoothing")
    return LossCallFact(
        function=call.function,
        phase=UNKNOWN,
        input_shape=list(call.input.shape),
        input_dtype=str(call.input.dtype).removeprefix("torch."),
        target_shape=list(target.shape) if target is not None else None,
        target_dtype=str(target.dtype).removeprefix("torch.") if target is not None else None,
        reduction=options.get("reduction"),
        label_smoothing=float(smoothing) if isinstance(smoothing, (int, float)) else None,
        ignore_index=options.get("ignore_index") if call.indices else None,
        weighted=any(options.get(name) is not None for name in ("weight", "pos_weight")),
        classes=int(call.input.shape[dim]) if dim is not None else None,
        file=place.file if place else None,
        line=place.line if place else None,
    )


@contained("loss_calls: value_statistics")
def value_statistics(call: LossCall) -> Tensor:
    """input low, high, rows sum to one; target low, high, whole numbers; share ignored. NaN where it does not apply.

    Everything is made on the tensors' own device: a number brought there from the host would wait.
    """
    source = call.input.detach()
    nan = torch.full((), float("nan"), dtype=torch.float32, device=source.device)
    parts = [nan] * 7
    if source.numel() and source.is_floating_point():
        low, high = source.aminmax()
        rows = source.float().sum(call.class_dim if call.class_dim is not None else -1)
        summing = (rows - 1).abs().max() < ROW_SUM_TOLERANCE
        parts[:3] = [low, high, summing & (low >= 0) & (high <= 1 + ROW_SUM_TOLERANCE)]
    target = call.target.detach() if call.target is not None else None
    if target is not None and target.numel() and not target.is_complex() and target.device == source.device:
        parts[3:] = _target_statistics(target, call.options.get("ignore_index") if call.indices else None, nan)
    return torch.stack([part.to(torch.float32) for part in parts])


def _target_statistics(target: Tensor, ignore: Any, nan: Tensor) -> list[Tensor]:
    """low, high, whole numbers, share ignored; ignored targets are left out of the range."""
    if target.dtype == torch.bool:
        target = target.to(torch.uint8)
    share = nan
    low = high = target
    if isinstance(ignore, int):
        ignored = target == ignore
        share = ignored.float().mean()
        limits = torch.iinfo(target.dtype)
        low, high = target.masked_fill(ignored, limits.max), target.masked_fill(ignored, limits.min)
    least, most = low.min().to(torch.float32), high.max().to(torch.float32)
    seen = least <= most
    whole = (target == target.round()).all() if target.is_floating_point() else torch.ones_like(nan)
    return [torch.where(seen, least, nan), torch.where(seen, most, nan), whole, share]


def with_values(fact: LossCallFact, values: list[float]) -> LossCallFact:
    low, high, rows, target_low, target_high, whole, ignored = (None if v != v else v for v in values)
    return replace(
        fact,
        input_low=low,
        input_high=high,
        rows_sum_to_one=None if rows is None else bool(rows),
        target_low=target_low,
        target_high=target_high,
        target_integral=None if whole is None else bool(whole),
        ignored=ignored,
    )


def widen(new: LossCallFact, old: LossCallFact) -> LossCallFact:
    """The new look with its ranges widened to what was seen before; equal to the old one if it shows nothing new."""
    if (new.input_shape[1:], new.reduction, new.weighted) != (old.input_shape[1:], old.reduction, old.weighted):
        return new
    both = (new.rows_sum_to_one, old.rows_sum_to_one)
    whole = (new.target_integral, old.target_integral)
    return replace(
        old,
        input_low=_least(new.input_low, old.input_low),
        input_high=_most(new.input_high, old.input_high),
        rows_sum_to_one=None if None in both else all(both),
        target_low=_least(new.target_low, old.target_low, exact=True),
        target_high=_most(new.target_high, old.target_high, exact=True),
        target_integral=None if None in whole else all(whole),
        ignored=old.ignored if new.ignored is None or (old.ignored or 0) < 1 else new.ignored,
    )


def _least(new: float | None, old: float | None, exact: bool = False) -> float | None:
    """Logits creep on with training: a range is only widened when it grows by half its width."""
    if new is None or old is None:
        return old if new is None else new
    return new if new < old - (0 if exact else 0.5 * abs(old)) else old


def _most(new: float | None, old: float | None, exact: bool = False) -> float | None:
    if new is None or old is None:
        return old if new is None else new
    return new if new > old + (0 if exact else 0.5 * abs(old)) else old
