"""What a run recorded of the inputs it was trained on, look by look. No torch in here."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from torchdoctor.errors import UsageError
from torchdoctor.facts import TRAIN, InputsFact, LoaderFact, TokensFact
from torchdoctor.instruments.evaluating.metrics import Floats, Ints
from torchdoctor.rules.data.columns import is_constant
from torchdoctor.run import Run

RECORDED = 256
"""Features that a look holds; of more, every so many."""
TOKENS = ("int64", "int32", "int16")
UNITS = {2: "column", 3: "feature", 4: "channel", 5: "channel"}


@dataclass(frozen=True)
class Trained:
    """Looks at training batches of one kind. Statistics are over a batch, of each feature that was recorded."""

    shapes: tuple[tuple[int, ...], ...]
    """of a sample, the most frequent first"""
    dtype: str
    feature_dim: int | None
    """of a batch; None where all values count as one feature"""
    index: Ints
    """places of the recorded features along it"""
    size: Floats
    """samples of each look"""
    mean: Floats
    """(L, F), as the others"""
    std: Floats
    low: Floats
    high: Floats
    nonfinite: int
    samples: int
    """different ones among all looks"""
    population: int | None
    """of the training set, where known"""
    tokens: TokensFact | None

    @property
    def unit(self) -> str:
        return "value" if self.feature_dim is None else UNITS[len(self.shapes[0]) + 1]

    @property
    def is_text(self) -> bool:
        return self.dtype in TOKENS

    @property
    def centre(self) -> Floats:
        """Mean of each feature over all looks."""
        return np.average(self.mean, axis=0, weights=self.size)

    @property
    def spread(self) -> Floats:
        """Standard deviation of each feature over all batches together; 0 where only rounding varies."""
        square = np.average(np.square(self.std) + np.square(self.mean - self.centre), axis=0, weights=self.size)
        return np.where(is_constant(self.low.min(0), self.high.max(0), self.dtype), 0.0, np.sqrt(square))


def read_trained(run: Run) -> Trained:
    looks = [f for f in run.facts(InputsFact) if f.phase == TRAIN and f.role == "input" and len(f.shape) >= 2]
    if not looks:
        raise UsageError(
            "the run holds no look at training inputs, so nothing can be compared with them; it was recorded without "
            "them, or by another tool: record it with torchdoctor run or torchdoctor.watch"
        )
    # other models of the same script, and a last batch that holds other shapes, are not what is asked about
    kind = Counter(_kind(f) for f in looks).most_common(1)[0][0]
    looks = [f for f in looks if _kind(f) == kind]
    by_feature = all(f.feature_mean for f in looks)
    sizes = [float(f.shape[0]) for f in looks]
    dim = looks[0].feature_dim if by_feature else None
    features = looks[0].shape[dim] if dim is not None else 1
    columns = [_columns(f, by_feature) for f in looks]
    stats = [np.array([c[i] for c in columns], np.float64) for i in range(4)]
    whole = np.isfinite(np.stack(stats)).all((0, 2))
    if not whole.any():
        raise UsageError("every recorded batch has a feature without a finite value; nothing can be compared")
    return Trained(
        shapes=tuple(s for s, _ in Counter(tuple(f.shape[1:]) for f in looks).most_common()),
        dtype=looks[0].dtype,
        feature_dim=dim,
        index=np.arange(0, features, -(-features // RECORDED)),
        size=np.array(sizes)[whole],
        mean=stats[0][whole],
        std=stats[1][whole],
        low=stats[2][whole],
        high=stats[3][whole],
        nonfinite=sum(f.nonfinite for f in looks),
        samples=_distinct(looks),
        population=max((f.samples or 0 for f in run.facts(LoaderFact) if f.phase == TRAIN), default=0) or None,
        tokens=next((f for f in reversed(run.facts(TokensFact)) if f.phase == TRAIN), None),
    )


def _kind(fact: InputsFact) -> tuple[int, str, int | None]:
    """Looks of one kind have as many dimensions and features, and one type."""
    return len(fact.shape), fact.dtype, len(fact.feature_mean) if fact.feature_mean else None


def _columns(fact: InputsFact, by_feature: bool) -> tuple[list[float], ...]:
    rows = (
        (fact.feature_mean, fact.feature_std, fact.feature_low, fact.feature_high)
        if by_feature
        else ([fact.mean], [fact.std], [fact.low], [fact.high])
    )
    return tuple([math.nan if v is None else float(v) for v in row or ()] for row in rows)


def _distinct(looks: list[InputsFact]) -> int:
    """Of each look at most 256 samples are fingerprinted; the share of different ones stands for all."""
    marks = [m for f in looks for m in f.fingerprints]
    total = sum(f.shape[0] for f in looks)
    return max(1, round(total * len(set(marks)) / len(marks))) if marks else total
