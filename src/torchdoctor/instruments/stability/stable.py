"""Formulas that hold in floating point, beside those that break: what the diagnoses of the numerics family recommend.

    torchdoctor.stable.softmax(scores)        # torch's own, ready to use
    print(torchdoctor.stable.show("softmax")) # both forms on the input that breaks one of them
    print(torchdoctor.stable.table())         # all pairs

`PAIRS` holds both forms of each as functions and as code, and why the first one breaks.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchdoctor.instruments.stability.comparison import Comparison, Overview, show, table
from torchdoctor.instruments.stability.pairs import PAIRS, Pair, entropy, masked_mean, normalize

__all__ = [
    "PAIRS",
    "Comparison",
    "Overview",
    "Pair",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "distance",
    "entropy",
    "log_sigmoid",
    "log_softmax",
    "logsumexp",
    "masked_mean",
    "normalize",
    "show",
    "softmax",
    "softplus",
    "standardize",
    "table",
]


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Not exp(x) / exp(x).sum(): that overflows from 88.7 on."""
    return torch.softmax(scores, dim=dim)


def log_softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Not log(softmax(x)): that is minus infinity for scores about 100 apart."""
    return F.log_softmax(scores, dim=dim)


def logsumexp(scores: Tensor, dim: int | tuple[int, ...] = -1, keepdim: bool = False) -> Tensor:
    """Not log(exp(x).sum()): that overflows from 88.7 on."""
    return torch.logsumexp(scores, dim=dim, keepdim=keepdim)


def cross_entropy(scores: Tensor, target: Tensor, **options: Any) -> Tensor:
    """On raw scores, not on probabilities."""
    return F.cross_entropy(scores, target, **options)


def binary_cross_entropy_with_logits(scores: Tensor, target: Tensor, **options: Any) -> Tensor:
    """On raw scores, not on a sigmoid's output."""
    return F.binary_cross_entropy_with_logits(scores, target, **options)


def log_sigmoid(scores: Tensor) -> Tensor:
    """Not log(sigmoid(x))."""
    return F.logsigmoid(scores)


def softplus(x: Tensor, **options: Any) -> Tensor:
    """Not log(1 + exp(x))."""
    return F.softplus(x, **options)


def distance(x: Tensor, y: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """With a gradient of 0 where both are equal; not sqrt(((x - y) ** 2).sum())."""
    return torch.linalg.vector_norm(x - y, dim=dim, keepdim=keepdim)


def standardize(x: Tensor, eps: float = 1e-5) -> Tensor:
    """Along the last dimension, to mean 0 and variance 1; zeros where all values are equal."""
    return F.layer_norm(x, x.shape[-1:], eps=eps)
