"""Predictions against targets, where a loss call shows both: accuracy, recall by class, confidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchdoctor import signals
from torchdoctor.attach.guard import contained
from torchdoctor.facts import TRAIN, VALIDATION, PredictionsFact
from torchdoctor.probes.batches import count_values
from torchdoctor.probes.context import Context
from torchdoctor.probes.loss_calls import LossCall

CLASSES_LIMIT = 1000
"""Beyond this many classes counts by class are not kept."""
ELEMENTS_LIMIT = 4_000_000
"""A prediction of more elements is thinned to a part of its samples."""
WINDOW_LOOKS = 20
"""Training looks summed into one PredictionsFact."""

_BINARY = ("binary_cross_entropy", "binary_cross_entropy_with_logits")


@dataclass
class Tally:
    """Counts by class over a number of batches."""

    classes: int
    support: NDArray[np.int64]
    correct: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: float = 0.0
    samples: int = 0
    looks: int = 0

    @classmethod
    def empty(cls, classes: int) -> Tally:
        return cls(classes, *(np.zeros(classes, np.int64) for _ in range(3)))

    def add(self, counts_3C: NDArray[Any], confidence: float) -> None:
        self.support += counts_3C[0].astype(np.int64)
        self.correct += counts_3C[1].astype(np.int64)
        self.predicted += counts_3C[2].astype(np.int64)
        samples = int(counts_3C[0].sum())
        self.confidence += confidence * samples
        self.samples += samples
        self.looks += 1

    @property
    def accuracy(self) -> float:
        return float(self.correct.sum()) / self.samples if self.samples else float("nan")

    def fact(self, phase: str) -> PredictionsFact:
        return PredictionsFact(
            phase=phase,
            classes=self.classes,
            samples=self.samples,
            support=self.support.tolist(),
            correct=self.correct.tolist(),
            predicted=self.predicted.tolist(),
            confidence=self.confidence / self.samples if self.samples else None,
        )


@contained("predictions: count")
def count(call: LossCall) -> Tensor | None:
    """Support, correct and predicted by class, and the summed confidence in one more column: (3, C + 1).

    None where the call does not classify.
    """
    scores, target, probabilities = scores_of(call)
    if scores is None or target is None:
        return None
    classes = scores.shape[-1]
    if not 1 < classes <= CLASSES_LIMIT:
        return None
    if scores.numel() > ELEMENTS_LIMIT:
        keep = max(1, ELEMENTS_LIMIT // classes)
        stride = -(-scores.shape[0] // keep)
        scores, target = scores[::stride], target[::stride]
    best, predicted = scores.max(-1)
    valid = (target >= 0) & (target < classes)
    confidence = best if probabilities else (best - scores.float().logsumexp(-1)).exp()
    truth = torch.where(valid, target, torch.full_like(target, classes))
    hit = torch.where(valid & (predicted == target), target, torch.full_like(target, classes))
    guess = torch.where(valid, predicted, torch.full_like(target, classes))
    rows = [count_values(x, classes + 1)[:classes] for x in (truth, hit, guess)]
    total = torch.where(valid, confidence.float(), torch.zeros_like(confidence, dtype=torch.float32)).sum()
    extra = torch.stack([total, total, total]).unsqueeze(1)
    return torch.cat([torch.stack(rows), extra], 1)


def scores_of(call: LossCall) -> tuple[Tensor | None, Tensor | None, bool]:
    """Scores with classes last and flat class indices; and whether the scores are probabilities."""
    source, target = call.input.detach(), call.target
    if target is None or source.numel() == 0 or target.numel() == 0:
        return None, None, False
    target = target.detach()
    if call.class_dim is not None:
        if call.indices:
            labels = target.reshape(-1)
        elif target.is_floating_point() and target.shape == source.shape:
            labels = target.argmax(call.class_dim).reshape(-1)
        else:
            return None, None, False
        scores = source.movedim(call.class_dim, -1).reshape(-1, source.shape[call.class_dim])
        ignore = call.options.get("ignore_index")
        if call.indices and isinstance(ignore, int):
            labels = torch.where(labels == ignore, torch.full_like(labels, -1), labels)
        return scores, labels.long(), False
    single = source.numel() == source.shape[0] if source.dim() else False
    if call.function in _BINARY and single and target.shape == source.shape:
        logits = source.reshape(-1).float()
        if call.function == "binary_cross_entropy":
            return torch.stack([1 - logits, logits], -1), (target.reshape(-1) > 0.5).long(), True
        return torch.stack([torch.zeros_like(logits), logits], -1), (target.reshape(-1) > 0.5).long(), False
    return None, None, False


class PredictionProbe:
    """Sums what `count` finds: over each validation pass, and over windows of training looks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._train: Tally | None = None
        self._validation: dict[str, Tally] = {}
        self._first_loader: str | None = None

    @contained("predictions: train")
    def train(self, counts: Tensor) -> None:
        step = self._context.step

        def arrived(array: NDArray[Any]) -> None:
            classes = array.shape[1] - 1
            samples = array[0, :classes].sum()
            if not samples:
                return
            confidence = float(array[0, classes] / samples)
            self._context.record.scalar(signals.ACCURACY_TRAIN.name, step, float(array[1, :classes].sum() / samples))
            self._context.record.scalar(signals.CONFIDENCE_TRAIN.name, step, confidence)
            if self._train is None or self._train.classes != classes:
                self._train = Tally.empty(classes)
            self._train.add(array[:, :classes], confidence)
            if self._train.looks >= WINDOW_LOOKS:
                self.flush_train(step)

        self._context.read(counts, arrived)

    @contained("predictions: flush_train")
    def flush_train(self, step: int) -> None:
        if self._train is not None and self._train.samples:
            self._context.record.fact(self._train.fact(TRAIN), step, TRAIN)
            self._train = Tally.empty(self._train.classes)

    def prefer(self, loader: str) -> None:
        """The loader whose passes are the validation; others are kept apart."""
        self._first_loader = loader

    @contained("predictions: validation")
    def validation(self, loader: str, counts: Tensor) -> None:
        if self._first_loader is None:
            self._first_loader = loader

        def arrived(array: NDArray[Any]) -> None:
            classes = array.shape[1] - 1
            samples = array[0, :classes].sum()
            tally = self._validation.get(loader)
            if tally is None or tally.classes != classes:
                tally = self._validation[loader] = Tally.empty(classes)
            if samples:
                tally.add(array[:, :classes], float(array[0, classes] / samples))

        self._context.read(counts, arrived)

    @contained("predictions: end_validation")
    def end_validation(self, step: int, later: Callable[[Callable[[], None]], None]) -> None:
        def write() -> None:
            tallies, self._validation = self._validation, {}
            for loader, tally in tallies.items():
                if not tally.samples:
                    continue
                key = "" if loader == self._first_loader else loader
                record = self._context.record
                record.scalar(signals.ACCURACY_VALIDATION.name, step, tally.accuracy, key)
                record.scalar(signals.CONFIDENCE_VALIDATION.name, step, tally.confidence / tally.samples, key)
                record.fact(tally.fact(VALIDATION), step, f"{VALIDATION}/{key}")

        later(write)
