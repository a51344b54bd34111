"""Two learners that are linear in the labels, so that hundreds of shuffled label sets cost one matrix product.

Ridge regression predicts H y with a matrix H that knows the inputs alone. What it would have predicted for a fold that
it was not fitted to follows from H as well: the errors there are (I - H_ff)^-1 (y - H y)_f (Allen's PRESS, by blocks).
Neighbours predict W y, with W the mean over the nearest other samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor.instruments.probing.data import Evidence, Floats

PENALTIES = (0.1, 3.0, 100.0)
"""Of the mean eigenvalue of the inputs' Gram matrix, which is 1: from nearly least squares to nearly the mean. The best
is taken, for real and for shuffled labels alike."""
EXAMPLES = 20
"""Shuffles whose score is told to the reader as chance."""


@dataclass(frozen=True)
class Score:
    statistic: float
    shuffled: Floats
    predictions: Floats
    """(N, C), of samples that were not learned from"""
    examples: list[tuple[Floats, NDArray[np.intp]]]
    """the same for a few shuffles, with their order"""


def ridge(evidence: Evidence, orders: NDArray[np.intp], folds: NDArray[Any]) -> Score:
    x = torch.from_numpy(evidence.inputs)
    gram = x @ x.T / x.shape[1]
    values, vectors = torch.linalg.eigh(gram)
    values, vectors = values.clamp_min(0).float(), vectors.float()
    targets = _shuffles(evidence, orders)
    best: tuple[Tensor, Tensor] | None = None
    for penalty in PENALTIES:
        errors = _held_out_errors(values, vectors, penalty * float(values.mean()), targets, folds)
        explained = 1 - errors.square().sum((0, 2)) / targets.square().sum((0, 2))
        if best is None:
            best = (explained, errors)
            continue
        better = explained > best[0]
        best = (torch.where(better, explained, best[0]), torch.where(better[None, :, None], errors, best[1]))
    assert best is not None
    return _score(best[0], targets - best[1], evidence, orders)


def _held_out_errors(values: Tensor, vectors: Tensor, penalty: float, targets: Tensor, folds: NDArray[Any]) -> Tensor:
    """(N, S, C) errors on folds that were left out, for S label sets; the mean is fitted along, without penalty."""
    count, sets, outputs = targets.shape
    hat = (vectors * (values / (values + penalty))) @ vectors.T + 1 / count
    flat = targets.reshape(count, -1)
    left = flat - hat @ flat
    errors = torch.empty_like(left)
    for fold in np.unique(folds):
        at = torch.from_numpy(np.flatnonzero(folds == fold))
        block = torch.eye(len(at)) - hat[at][:, at]
        errors[at] = torch.linalg.solve(block, left[at])
    return errors.reshape(count, sets, outputs)


def neighbours(evidence: Evidence, orders: NDArray[np.intp], each: int) -> Score:
    """How well a sample's centred target agrees with the mean over its nearest neighbours'; as Moran's I does it."""
    x = torch.from_numpy(evidence.inputs).float()
    each = min(each, len(x) - 1)
    distances = torch.cdist(x, x).fill_diagonal_(torch.inf)
    nearest = distances.topk(each, largest=False).indices
    weights = torch.zeros(len(x), len(x)).scatter_(1, nearest, 1 / each)
    targets = _shuffles(evidence, orders)
    means = (weights @ targets.reshape(len(x), -1)).reshape(targets.shape)
    agreement = (targets * means).sum((0, 2)) / targets.square().sum((0, 2))
    return _score(agreement, means, evidence, orders)


def _shuffles(evidence: Evidence, orders: NDArray[np.intp]) -> Tensor:
    """(N, 1 + S, C): the targets as they are, and in every order."""
    targets = torch.from_numpy(evidence.targets).float()
    return torch.cat([targets[:, None], targets[torch.from_numpy(orders.T)]], 1)


def _score(statistics: Tensor, predictions: Tensor, evidence: Evidence, orders: NDArray[np.intp]) -> Score:
    told = predictions[:, : 1 + EXAMPLES].double().numpy() + evidence.offset
    examples = [(told[:, i + 1], orders[i]) for i in range(min(EXAMPLES, len(orders)))]
    found = statistics.double().numpy()
    return Score(float(found[0]), found[1:], told[:, 0], examples)
