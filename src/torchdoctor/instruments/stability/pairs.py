"""Pairs of formulas that are equal on paper: one that breaks in floating point, and the one to use instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[..., Tensor]
Inputs = tuple[Tensor, ...]
LARGE = (1.0, 3.0, 10.0, 20.0, 50.0, 80.0, 90.0, 110.0, 200.0, 500.0, 1000.0)
"""Sizes of scores: exp overflows at 11.1 in float16 and at 88.7 in float32, probabilities underflow at about 100."""
SMALL = (1.0, 1e-2, 1e-4, 1e-8, 1e-15, 1e-25, 0.0)
"""Sizes down to zero: a square underflows below 1e-23 in float32."""


@dataclass(frozen=True)
class Pair:
    name: str
    by_hand: Function
    stable: Function
    by_hand_code: str
    stable_code: str
    why: str
    rule: str
    """the diagnosis that recommends it"""
    make: Callable[[float], Inputs]
    """inputs of a size; the first is differentiated"""
    size: str
    """what the size is"""
    breaking: float
    """a size that breaks the form by hand in float32"""
    sizes: tuple[float, ...]


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of what the mask selects; 0 where it selects nothing."""
    return torch.where(mask, x, 0).sum() / mask.sum().clamp_min(1)


def entropy(scores: Tensor, dim: int = -1) -> Tensor:
    """Of the probabilities that softmax gives; never a log of zero."""
    logs = F.log_softmax(scores, dim=dim)
    return -(logs.exp() * logs).sum(dim)


def normalize(x: Tensor, dim: int = -1, eps: float | None = None) -> Tensor:
    """Vectors of length 1, and zeros where they are zeros. F.normalize bounds the length at 1e-12, which is 0 in
    float16: there it is the smallest normal number."""
    bound = max(1e-12, torch.finfo(x.dtype).tiny) if eps is None else eps
    return F.normalize(x, dim=dim, eps=bound)


def _scores(size: float) -> Inputs:
    return (torch.tensor([size, 0.0, -size], dtype=torch.float64),)


def _scores_and_class(size: float) -> Inputs:
    return torch.tensor([[size, 0.0]], dtype=torch.float64), torch.tensor([1])


def _score_and_label(size: float) -> Inputs:
    return torch.tensor([size], dtype=torch.float64), torch.tensor([0.0], dtype=torch.float64)


def _vector(size: float) -> Inputs:
    return (torch.tensor([3.0, 4.0], dtype=torch.float64) * size,)


def _two_vectors(size: float) -> Inputs:
    return torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([1.0, 2.0 + size], dtype=torch.float64)


def _selected(size: float) -> Inputs:
    return torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64), torch.arange(4) < size


def _spread(size: float) -> Inputs:
    return (torch.tensor([0.5, 0.5, 0.5 + size], dtype=torch.float64),)


_ALL = (
    Pair(
        "softmax",
        lambda x: torch.exp(x) / torch.exp(x).sum(-1, keepdim=True),
        lambda x: torch.softmax(x, dim=-1),
        "exp(x) / exp(x).sum(-1, keepdim=True)",
        "torch.softmax(x, dim=-1)",
        "exp overflows from 88.7 on in float32 and from 11.1 on in float16, and infinity over infinity is NaN. The "
        "stable form subtracts the largest score first, which changes nothing on paper.",
        "exp-overflow",
        _scores,
        "largest score",
        1000.0,
        LARGE,
    ),
    Pair(
        "log_softmax",
        lambda x: torch.log(torch.softmax(x, dim=-1)),
        lambda x: F.log_softmax(x, dim=-1),
        "torch.log(torch.softmax(x, dim=-1))",
        "F.log_softmax(x, dim=-1)",
        "A probability underflows to 0 for scores about 100 apart, and the log of 0 is minus infinity, with a NaN as "
        "gradient. The stable form never leaves the log domain.",
        "log-of-zero",
        _scores,
        "largest score",
        200.0,
        LARGE,
    ),
    Pair(
        "logsumexp",
        lambda x: torch.log(torch.exp(x).sum(-1)),
        lambda x: torch.logsumexp(x, dim=-1),
        "torch.log(torch.exp(x).sum(-1))",
        "torch.logsumexp(x, dim=-1)",
        "exp overflows for one large score although the result is about that score. The stable form takes the largest "
        "out of the sum first.",
        "exp-overflow",
        _scores,
        "largest score",
        200.0,
        LARGE,
    ),
    Pair(
        "cross_entropy",
        lambda x, target: F.nll_loss(torch.log(torch.softmax(x, dim=-1)), target),
        lambda x, target: F.cross_entropy(x, target),
        "F.nll_loss(torch.log(torch.softmax(x, -1)), target)",
        "F.cross_entropy(x, target)  # x: raw scores",
        "The probability of the right class underflows when the model is sure and wrong, just where the gradient "
        "matters most. Give the raw scores to the loss.",
        "log-of-zero",
        _scores_and_class,
        "lead of the wrong class",
        200.0,
        LARGE,
    ),
    Pair(
        "binary_cross_entropy_with_logits",
        lambda x, target: F.binary_cross_entropy(torch.sigmoid(x), target),
        lambda x, target: F.binary_cross_entropy_with_logits(x, target),
        "F.binary_cross_entropy(torch.sigmoid(x), target)",
        "F.binary_cross_entropy_with_logits(x, target)",
        "The sigmoid rounds to exactly 1 from 17 on in float32. torch bounds the log of what is left at -100, so "
        "nothing is NaN, but the loss is wrong and its gradient is 0: the sample is never corrected.",
        "log-of-zero",
        _score_and_label,
        "score of a negative sample",
        50.0,
        LARGE,
    ),
    Pair(
        "log_sigmoid",
        lambda x: torch.log(torch.sigmoid(x)),
        F.logsigmoid,
        "torch.log(torch.sigmoid(x))",
        "F.logsigmoid(x)",
        "The sigmoid of a very negative score underflows to 0, and its log is minus infinity.",
        "log-of-zero",
        lambda size: (torch.tensor([-size], dtype=torch.float64),),
        "score below zero",
        200.0,
        LARGE,
    ),
    Pair(
        "softplus",
        lambda x: torch.log(1 + torch.exp(x)),
        F.softplus,
        "torch.log(1 + torch.exp(x))",
        "F.softplus(x)",
        "exp overflows although softplus of a large number is that number, and the gradient is infinity over infinity.",
        "exp-overflow",
        lambda size: (torch.tensor([size], dtype=torch.float64),),
        "input",
        200.0,
        LARGE,
    ),
    Pair(
        "entropy",
        lambda x: -(torch.softmax(x, -1) * torch.log(torch.softmax(x, -1))).sum(-1),
        entropy,
        "p = torch.softmax(x, -1); -(p * torch.log(p)).sum(-1)",
        "logs = F.log_softmax(x, -1); -(logs.exp() * logs).sum(-1)",
        "0 times the log of 0 is 0 on paper and NaN in floating point. Take the log before the exponential.",
        "log-of-zero",
        _scores,
        "largest score",
        200.0,
        LARGE,
    ),
    Pair(
        "masked_mean",
        lambda x, mask: (x * mask).sum() / mask.sum(),
        masked_mean,
        "(x * mask).sum() / mask.sum()",
        "torch.where(mask, x, 0).sum() / mask.sum().clamp_min(1)",
        "A batch in which the mask selects nothing divides 0 by 0. And x * mask lets a NaN through where x is masked "
        "out: 0 times NaN is NaN.",
        "division-by-zero",
        _selected,
        "number of selected values",
        0.0,
        (0.0, 1.0, 2.0, 3.0, 4.0),
    ),
    Pair(
        "normalize",
        lambda x: x / x.norm(dim=-1, keepdim=True),
        lambda x: F.normalize(x, dim=-1, eps=1e-4),
        "x / x.norm(dim=-1, keepdim=True)",
        "F.normalize(x, dim=-1, eps=1e-4)",
        "A vector of zeros has the length 0. The stable form bounds the length from below; torch's default bound of "
        "1e-12 is 0 in float16, so give a larger one there.",
        "division-by-zero",
        _vector,
        "size of the vector",
        0.0,
        (1.0, 0.1, 0.01, 0.0),
    ),
    Pair(
        "distance",
        lambda x, y: torch.sqrt(((x - y) ** 2).sum(-1)),
        lambda x, y: torch.linalg.vector_norm(x - y, dim=-1),
        "torch.sqrt(((x - y) ** 2).sum(-1))",
        "torch.linalg.vector_norm(x - y, dim=-1)",
        "At distance 0 the loss is a plain 0, but the slope of the root is infinite and meets the 0 of the square: the "
        "gradient is NaN, although no loss shows it. The stable form has a gradient of 0 there.",
        "sqrt-at-zero",
        _two_vectors,
        "distance",
        0.0,
        SMALL,
    ),
    Pair(
        "standardize",
        lambda x: (x - x.mean(-1, keepdim=True)) / x.std(-1, correction=0, keepdim=True),
        lambda x: F.layer_norm(x, x.shape[-1:]),
        "(x - x.mean(-1, keepdim=True)) / x.std(-1, correction=0, keepdim=True)",
        "F.layer_norm(x, x.shape[-1:])  # or / (x.std(...) + 1e-6)",
        "Values that are all equal have no spread, and 0 is divided by 0. The stable form adds a little to the "
        "variance.",
        "division-by-zero",
        _spread,
        "spread of the values",
        0.0,
        (1.0, 0.5, 0.0),
    ),
)
PAIRS: dict[str, Pair] = {pair.name: pair for pair in _ALL}
