"""Predictions against labels as rules judge them: shares, recall by class, accuracy against the best constant guess."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.distributions.gaps import nanmax, nanmean
from torchdoctor.facts import TRAIN, VALIDATION, LabelsFact, LossCallFact, PredictionsFact, SamplesFact
from torchdoctor.rules import baseline
from torchdoctor.run import Run
from torchdoctor.signals import BATCH_SIZE

Counts = NDArray[np.float64]

TOKENS = 1.5
"""More labels than this times the batch size are tokens or pixels, whose rare classes are rare on purpose."""
SIGMAS = 3.0
WINDOWS = 3
"""The last windows of training looks that stand for the end of training."""


@dataclass(frozen=True)
class Outcome:
    """One validation pass, or some training windows added up."""

    step: int
    phase: str
    support: Counts
    correct: Counts
    predicted: Counts

    @property
    def samples(self) -> float:
        return float(self.support.sum())

    @property
    def accuracy(self) -> float:
        return float(self.correct.sum() / max(1.0, self.samples))

    @property
    def shares(self) -> Counts:
        return self.support / max(1.0, self.samples)

    @property
    def majority(self) -> float:
        """Accuracy of always naming the most frequent class."""
        return float(self.shares.max())

    @property
    def recall(self) -> Counts:
        """NaN for classes without samples."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.support > 0, self.correct / self.support, np.nan)

    @property
    def balanced(self) -> float:
        return float(nanmean(self.recall)) if self.samples else math.nan

    @property
    def present(self) -> int:
        return int((self.support > 0).sum())

    @property
    def favourite(self) -> tuple[int, float]:
        """The class predicted most, and the share of samples it is predicted for."""
        c = int(self.predicted.argmax())
        return c, float(self.predicted[c] / max(1.0, float(self.predicted.sum())))


def read(step: int, fact: PredictionsFact) -> Outcome:
    return Outcome(step, fact.phase, *(np.asarray(v, float) for v in (fact.support, fact.correct, fact.predicted)))


def passes(run: Run) -> list[Outcome]:
    """Validation passes of one kind (the last one's number of classes, at least half its samples), oldest first."""
    found = [read(s, f) for s, f in run.facts_at(PredictionsFact) if f.phase == VALIDATION and f.samples]
    if not found:
        return []
    last = found[-1]
    alike = [o for o in found if len(o.support) == len(last.support)]
    most = max(o.samples for o in alike)
    return [o for o in alike if 2 * o.samples >= most]


def training(run: Run, windows: int = WINDOWS) -> Outcome | None:
    """The end of training: its last windows of looks added up."""
    found = [read(s, f) for s, f in run.facts_at(PredictionsFact) if f.phase == TRAIN and f.samples]
    alike = [o for o in found if len(o.support) == len(found[-1].support)][-windows:]
    if not alike:
        return None
    sums = (sum(getattr(o, name) for o in alike) for name in ("support", "correct", "predicted"))
    return Outcome(alike[-1].step, TRAIN, *(np.asarray(v, float) for v in sums))


def beats_chance(outcome: Outcome) -> bool:
    """Accuracy above the share of the largest class, or mean recall above that of guessing, by three sigma."""
    share = outcome.majority
    error = math.sqrt(share * (1 - share) / outcome.samples)
    recall, even = outcome.balanced, 1 / outcome.present
    support = outcome.support[outcome.support > 0]
    spread = math.sqrt(float((even * (1 - even) / support).sum())) / outcome.present
    return outcome.accuracy > share + SIGMAS * error or recall > even + SIGMAS * spread


def is_by_sample(run: Run) -> bool:
    """One label a sample; not a language model, a tagger or a segmentation. Training calls decide where there are any:
    a whole split may be scored at once from outputs put together."""
    traces = [run.scalar(BATCH_SIZE, k).values for k in run.keys(BATCH_SIZE)]
    sizes = [float(nanmax(values)) for values in traces if np.isfinite(values).any()]
    calls = [c for c in run.facts(LossCallFact) if c.target_shape and (c.classes or c.function in baseline.BINARY)]
    if any(len(c.target_shape or ()) > 1 and math.prod((c.target_shape or [1])[1:]) > 1 for c in calls):
        return False
    trained = [c for c in calls if c.phase == TRAIN] or calls
    labels = max((c.target_shape[0] for c in trained if c.target_shape), default=0)
    return not sizes or labels <= TOKENS * max(sizes)


def labels(run: Run, phase: str = TRAIN) -> Counter[int]:
    """Counts of the labels seen in that phase."""
    counts: Counter[int] = Counter()
    for fact in run.facts(LabelsFact):
        if fact.phase == phase:
            counts.update({int(k): v for k, v in fact.counts.items()})
    return counts


def is_weighted(run: Run) -> bool:
    """Class weights or pos_weight were given to the training loss."""
    return any(c.weighted for c in baseline.loss_calls(run))


def loss_place(run: Run) -> LossCallFact | None:
    return next((c for c in reversed(baseline.loss_calls(run)) if c.file), None)


def looks(run: Run, phase: str, task: str | None = None) -> list[tuple[int, SamplesFact]]:
    """Sample-by-sample looks of that phase, oldest first; those of the first loss call where there are several."""
    found = [(s, f) for s, f in run.facts_at(SamplesFact) if f.phase == phase and task in (None, f.task)]
    logged = [(s, f) for s, f in found if f.logged]
    if logged:
        return logged
    first = next((f for _, f in found if f.task == "classes"), found[0][1]) if found else None
    return [(s, f) for s, f in found if first is not None and (f.site, f.task) == (first.site, first.task)]


def few(values: list[Any], limit: int = 6) -> str:
    """`1, 2, 3 and 4 more`."""
    shown = ", ".join(str(v) for v in values[:limit])
    return shown if len(values) <= limit else f"{shown} and {len(values) - limit} more"
