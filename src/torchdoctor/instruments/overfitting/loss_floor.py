"""The least that a loss can be on given targets: with any answers, with one answer for all, or with one for each group.

A smoothed or soft target has an entropy, and no model gets below it. Samples with equal inputs get equal answers, so
that their group has the floor of its mean target. One constant answer for all is the guess that a model has to beat.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from torchdoctor.probes.loss_calls import LossCall

CHUNK = 1 << 22
"""Numbers in a table of groups and classes at a time."""
ZERO = frozenset(
    f"{name}_loss"
    for name in (
        *("mse", "l1", "huber", "smooth_l1", "multi_margin", "multilabel_margin", "hinge_embedding", "ctc"),
        *("cosine_embedding", "margin_ranking", "triplet_margin", "soft_margin", "multilabel_soft_margin"),
    )
)
"""Losses that can come as near to zero as one likes, whatever the targets."""
TOP = 1e-3
"""Log-probabilities may exceed zero by rounding in half precision."""


@torch.no_grad()
def floor_of(call: LossCall) -> float | None:
    """With any answers; None where it cannot be known."""
    if call.function in ZERO:
        return 0.0
    if call.function == "nll_loss":
        return 0.0 if float(call.input.max()) <= TOP else None
    if call.function == "poisson_nll_loss":
        return _poisson(call)
    if call.function == "cross_entropy" and call.indices and not call.options.get("label_smoothing"):
        return 0.0
    return least(call, None)


def guess_of(call: LossCall) -> float | None:
    """With one answer for all samples."""
    return least(call, torch.zeros(call.samples, dtype=torch.long, device="cpu"))


@torch.no_grad()
def least(call: LossCall, groups: Tensor | None, *, by_place: bool = False) -> float | None:
    """With one answer for each group of samples; `groups` has a number for each sample, or with `by_place` for each
    place of each sample; None for each sample its own. None is given where the loss is not of a known kind."""
    reading = READINGS.get(call.function)
    if reading is None or call.target is None:
        return None
    try:
        return reading(call, groups, by_place)
    except (RuntimeError, IndexError, ValueError):
        return None


def places_of(call: LossCall, samples: int) -> int | None:
    """Classified places in each sample: 1 for images, the length for sequences; None where they do not fit."""
    if call.target is None or not call.indices or not samples:
        return None
    places, rest = divmod(call.target.numel(), samples)
    return places if places and not rest else None


def _ids(groups: Tensor | None, rows: int, by_place: bool, device: torch.device) -> Tensor:
    """A group for every row, counted from 0: rows of one sample lie together, and each place has groups of its own."""
    if groups is None:
        return torch.arange(rows, device=device)
    places, rest = divmod(rows, len(groups) if not by_place else groups.numel())
    if rest:
        raise ValueError(f"{rows} rows of {len(groups)} samples")
    if by_place:
        return torch.unique(groups.flatten(), return_inverse=True)[1].to(device)
    place = torch.arange(rows, device=groups.device) % places
    return torch.unique(groups.repeat_interleave(places) * places + place, return_inverse=True)[1].to(device)


def _entropies(totals: Tensor) -> Tensor:
    """The least cross-entropy of each row of summed target weights: at probabilities in their proportion."""
    return torch.xlogy(totals.sum(-1), totals.sum(-1)) - torch.xlogy(totals, totals).sum(-1)


def _cross_entropy(call: LossCall, groups: Tensor | None, by_place: bool) -> float:
    scores, target, options = call.input.detach(), call.target, call.options
    assert target is not None
    dim = 0 if scores.dim() == 1 else 1
    classes, smoothing = scores.shape[dim], float(options.get("label_smoothing") or 0.0)
    weight = options.get("weight")
    weight = torch.ones(classes, device=scores.device) if weight is None else weight.detach().float()
    if not call.indices:
        rows = target.detach().float().movedim(dim, -1).reshape(-1, classes)
        shares = weight * ((1 - smoothing) * rows + smoothing / classes)
        ids = _ids(groups, len(rows), by_place, rows.device)
        totals = torch.zeros(int(ids.max()) + 1, classes, device=rows.device).index_add_(0, ids, shares)
        return float(_entropies(totals).sum()) / (1.0 if options.get("reduction") == "sum" else len(rows))
    labels = target.detach().flatten()
    ids, kept = _ids(groups, len(labels), by_place, labels.device), labels != options.get("ignore_index", -100)
    norm = {"sum": 1.0, "none": float(len(labels))}.get(
        str(options.get("reduction")), float(weight[labels[kept]].sum())
    )
    return _indexed(labels[kept], ids[kept], weight, smoothing) / norm


def _indexed(labels: Tensor, ids: Tensor, weight: Tensor, smoothing: float) -> float:
    """Summed over groups, a few at a time: a vocabulary times all places may not fit into memory."""
    _, ids = torch.unique(ids, return_inverse=True)
    order, classes, total = ids.argsort(), len(weight), 0.0
    ids, labels = ids[order], labels[order]
    width = max(1, CHUNK // classes)
    for first in range(0, int(ids.max()) + 1 if len(ids) else 0, width):
        begin, end = (int(torch.searchsorted(ids, edge)) for edge in (first, first + width))
        part, own = ids[begin:end] - first, labels[begin:end]
        totals = torch.zeros(int(part.max()) + 1, classes, device=weight.device)
        totals.index_put_((part, own), (1 - smoothing) * weight[own], accumulate=True)
        if smoothing:
            totals += torch.bincount(part)[:, None] * (smoothing / classes) * weight
        total += float(_entropies(totals).sum())
    return total


def _binary(call: LossCall, groups: Tensor | None, by_place: bool) -> float:
    target, options = call.target, call.options
    assert target is not None
    ones, zeros = target.detach().float(), 1 - target.detach().float()
    if options.get("pos_weight") is not None:
        ones = ones * options["pos_weight"].float()
    if options.get("weight") is not None:
        ones, zeros = ones * options["weight"].float(), zeros * options["weight"].float()
    pairs = torch.stack([ones, zeros], -1)
    ids = _samples(groups, len(pairs), pairs.device)
    totals = torch.zeros(int(ids.max()) + 1, *pairs.shape[1:], device=pairs.device).index_add_(0, ids, pairs)
    return float(_entropies(totals).sum()) / (1.0 if options.get("reduction") == "sum" else target.numel())


def _divergence(call: LossCall, groups: Tensor | None, by_place: bool) -> float:
    target, options = call.target, call.options
    assert target is not None
    rows = (target.detach().exp() if options.get("log_target") else target.detach()).float()
    flat = rows.reshape(-1, rows.shape[-1])
    ids = _ids(groups, len(flat), by_place, flat.device)
    totals = torch.zeros(int(ids.max()) + 1, flat.shape[1], device=flat.device).index_add_(0, ids, flat)
    total = float(_entropies(totals).sum() + torch.xlogy(flat, flat).sum())
    norm = {"sum": 1, "batchmean": len(rows)}.get(str(options.get("reduction")), rows.numel())
    return total / norm


def _squares(call: LossCall, groups: Tensor | None, by_place: bool) -> float:
    return _around(call, groups, lambda rows: (rows - rows.mean(0)).square())


def _distances(call: LossCall, groups: Tensor | None, by_place: bool) -> float:
    return _around(call, groups, lambda rows: (rows - rows.median(0).values).abs())


def _around(call: LossCall, groups: Tensor | None, apart: Callable[[Tensor], Tensor]) -> float:
    target = call.target
    assert target is not None
    rows = target.detach().float()
    if groups is None:
        return 0.0
    ids = _samples(groups, len(rows), rows.device)
    total = sum(float(apart(rows[ids == group]).sum()) for group in torch.unique(ids))
    return total / (1.0 if call.options.get("reduction") == "sum" else rows.numel())


def _samples(groups: Tensor | None, rows: int, device: torch.device) -> Tensor:
    if groups is None:
        return torch.arange(rows, device=device)
    if len(groups) != rows:
        raise ValueError(f"{rows} rows of {len(groups)} samples")
    return torch.unique(groups, return_inverse=True)[1].to(device)


def _poisson(call: LossCall) -> float | None:
    """At a rate equal to the target."""
    if call.target is None:
        return None
    t = call.target.detach().float()
    values = t - torch.xlogy(t, t)
    if call.options.get("full"):
        values = values + torch.where(t > 1, torch.xlogy(t, t) - t + 0.5 * (2 * math.pi * t.clamp_min(1)).log(), 0.0)
    return float(values.sum() if call.options.get("reduction") == "sum" else values.mean())


READINGS: dict[str, Callable[[LossCall, Tensor | None, bool], float]] = {
    "cross_entropy": _cross_entropy,
    "binary_cross_entropy": _binary,
    "binary_cross_entropy_with_logits": _binary,
    "kl_div": _divergence,
    "mse_loss": _squares,
    "l1_loss": _distances,
}
