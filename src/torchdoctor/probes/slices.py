"""What rows of predictions add up to: metrics, calibration, confusion, worst samples, and slices of alike samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.facts import TEMPERATURES, SamplesFact

CLASSES, REGRESSION, MULTILABEL = "classes", "regression", "multilabel"
BINS = 15
"""Guo et al. 2017 use 15 bins for the expected calibration error."""
TENTHS = 10
WORST = 16
CONFUSED = 64
RANKS = 16
PARTS = 5
"""An attribute with many values is cut into parts of equal size."""
END = 0.1
"""Both ends of it are looked at, too: a rare group drowns in a fifth of all samples."""
FEW_VALUES = 6
SLICES = 240
LEAST_SAMPLES = 10
NUMBERS = 5

Rows = NDArray[np.floating[Any]]


@dataclass
class Samples:
    """Rows of one pass or window: loss, label, predicted, confidence, rank, then the attributes."""

    task: str
    classes: int | None
    attributes: tuple[str, ...] = ()
    whole: bool = True
    rows: int = 0
    parts: list[Rows] = field(default_factory=list)
    rescaled: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1 + len(TEMPERATURES)))
    groups: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def batches(self) -> int:
        return len(self.parts)

    def add(self, rows: Rows) -> None:
        if rows.shape[1] == NUMBERS + len(self.attributes):
            self.parts.append(rows)

    def add_rescaled(self, sums: NDArray[Any]) -> None:
        self.rescaled += sums


def summarise(samples: Samples, phase: str, site: str = "", *, logged: bool = False) -> SamplesFact | None:
    if not samples.parts:
        return None
    rows = np.concatenate(samples.parts).astype(np.float64)
    index = np.arange(len(rows))
    known = np.isfinite(rows[:, 0]) & ((rows[:, 1] >= 0) if samples.task == CLASSES else True)
    rows, index = rows[known], index[known]
    if not len(rows):
        return None
    details = _classes(samples, rows) if samples.task == CLASSES else _numbers(samples, rows)
    rescaled = samples.rescaled[1:] / samples.rescaled[0] if samples.rescaled[0] else np.zeros(0)
    return SamplesFact(
        phase=phase,
        task=samples.task,
        samples=len(rows),
        loss=float(rows[:, 0].mean()),
        logged=logged,
        site=site,
        whole=samples.whole,
        rescaled=[float(v) for v in rescaled],
        worst=list(_worst(samples, rows, index)),
        slices=[
            *_group_slices(samples, rows, known),
            *list(_slices(samples, rows))[:SLICES],
        ],
        **details,
    )


def _classes(samples: Samples, rows: Rows) -> dict[str, Any]:
    label, predicted, confidence, rank = (rows[:, i] for i in range(1, NUMBERS))
    right = predicted == label
    classes = samples.classes or int(max(label.max(), predicted.max())) + 1
    found: dict[str, Any] = {"classes": classes, "correct": int(right.sum())}
    wrong = ~right
    ranks = np.bincount(np.clip(rank[wrong], 1, RANKS).astype(int), minlength=RANKS + 1)[1:]
    found["ranks"] = ranks[: min(RANKS, classes - 1)].tolist()
    found["unlikely"] = int((rank[wrong] > classes / 2).sum())
    pairs = label[wrong].astype(np.int64) * classes + predicted[wrong].astype(np.int64)
    values, counts = np.unique(pairs, return_counts=True)
    top = np.argsort(-counts, kind="stable")[:CONFUSED]
    found["confused"] = [[int(values[i] // classes), int(values[i] % classes), int(counts[i])] for i in top]
    if np.isfinite(confidence).all():
        found.update(_calibration(confidence, right))
    found["metrics"] = _class_metrics(samples, label, predicted, right, rank)
    return found


def _calibration(confidence: Rows, right: NDArray[np.bool_]) -> dict[str, Any]:
    at = np.minimum((confidence * BINS).astype(int), BINS - 1)
    count = np.bincount(at, minlength=BINS)
    sure = np.bincount(at, confidence, BINS) / np.maximum(count, 1)
    share = np.bincount(at, right.astype(float), BINS) / np.maximum(count, 1)
    order = np.argsort(confidence, kind="stable")
    tenths = [part for part in np.array_split(order, TENTHS) if len(part)]
    return {
        "ece": float((count * np.abs(sure - share)).sum() / len(confidence)),
        "bins": [[int(n), float(c), float(s)] for n, c, s in zip(count, sure, share, strict=True)],
        "tenths": [[len(p), int((~right[p]).sum()), float(confidence[p].mean())] for p in tenths],
    }


def _class_metrics(
    samples: Samples, label: Rows, predicted: Rows, right: NDArray[np.bool_], rank: Rows
) -> dict[str, float]:
    present = np.unique(label)
    recalls = [float(right[label == c].mean()) for c in present]
    every = np.union1d(present, np.unique(predicted))
    scores = []
    for c in every:
        hits = float((right & (label == c)).sum())
        scores.append(2 * hits / max(1.0, float((label == c).sum() + (predicted == c).sum())))
    batch = [float((p[:, 2] == p[:, 1])[p[:, 1] >= 0].mean()) for p in samples.parts if (p[:, 1] >= 0).any()]
    metrics = {
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(np.mean(recalls)),
        "macro_f1": float(np.mean(scores)),
        "weighted_f1": float(np.average(scores, weights=[max(1e-12, float((label == c).sum())) for c in every])),
        "batch_mean_accuracy": float(np.mean(batch)),
        "last_batch_accuracy": batch[-1],
    }
    if (samples.classes or 0) > 2:
        metrics.update({f"top{k}_accuracy": float((rank < k).mean()) for k in (2, 3, 5) if k < (samples.classes or 0)})
    if len(every) == 2 and set(every) <= {0.0, 1.0}:
        hits, guessed, real = ((predicted == 1) & right).sum(), (predicted == 1).sum(), (label == 1).sum()
        metrics["recall"] = float(hits / max(1, real))
        metrics["precision"] = float(hits / max(1, guessed))
        metrics["f1"] = float(2 * hits / max(1, guessed + real))
    return metrics


def _numbers(samples: Samples, rows: Rows) -> dict[str, Any]:
    if samples.task == MULTILABEL:
        return {"metrics": _label_metrics(rows)}
    variance = float(rows[:, 1].var())
    squared = float(rows[:, 0].mean())
    metrics = {"mse": squared, "rmse": squared**0.5, "mae": float(rows[:, 3].mean()), "variance": variance}
    metrics["prediction_variance"] = float(rows[:, 2].var())
    if samples.whole and variance > 0:
        metrics["r2"] = 1 - squared / variance
    if np.isfinite(rows[:, 4]).all():
        metrics["last_value_mse"] = float(rows[:, 4].mean())
    return {"metrics": metrics}


def _label_metrics(rows: Rows) -> dict[str, float]:
    """Of labels that are each true or false: how many are, how many are named, and the F1 over all of them."""
    true, named, both = (float(rows[:, i].mean()) for i in (1, 2, 3))
    if rows[:, 4].min() < 1:
        return {}
    return {"positives": true, "named": named, "micro_f1": 2 * both / max(true + named, 1e-12)}


def _worst(samples: Samples, rows: Rows, index: NDArray[np.intp]) -> Iterator[dict[str, Any]]:
    for i in np.argsort(-rows[:, 0], kind="stable")[:WORST]:
        found: dict[str, Any] = {"index": int(index[i]), "loss": float(rows[i, 0])}
        if samples.task == CLASSES:
            found.update(label=int(rows[i, 1]), predicted=int(rows[i, 2]))
            if np.isfinite(rows[i, 3]):
                found["confidence"] = float(rows[i, 3])
        elif samples.task == REGRESSION:
            found.update(label=float(rows[i, 1]), predicted=float(rows[i, 2]))
        yield found


def _slices(samples: Samples, rows: Rows) -> Iterator[dict[str, Any]]:
    columns = {name: rows[:, NUMBERS + i] for i, name in enumerate(samples.attributes)}
    if samples.task == REGRESSION:
        columns["target magnitude"] = np.abs(rows[:, 1])
    for name, values in columns.items():
        if not np.isfinite(values).all():
            continue
        distinct = np.unique(values)
        if len(distinct) < 2:
            continue
        if len(distinct) <= FEW_VALUES:
            parts = [values == v for v in distinct]
        else:
            edges = np.quantile(values, np.linspace(0, 1, PARTS + 1))
            at = np.searchsorted(edges[1:-1], values, side="right")
            ends = np.quantile(values, (END, 1 - END))
            parts = [*(at == i for i in range(PARTS)), values <= ends[0], values >= ends[1]]
        for part in parts:
            if part.sum() >= LEAST_SAMPLES:
                yield _slice(samples, rows, part, name, float(values[part].min()), float(values[part].max()))


def _group_slices(samples: Samples, rows: Rows, known: NDArray[np.bool_]) -> Iterator[dict[str, Any]]:
    for name, given in samples.groups.items():
        values = np.asarray([str(v) for v in given])[known]
        for value in np.unique(values)[:SLICES]:
            part = values == value
            yield {**_slice(samples, rows, part, name, None, None), "value": str(value)}


def _slice(
    samples: Samples, rows: Rows, part: NDArray[np.bool_], name: str, low: float | None, high: float | None
) -> dict[str, Any]:
    inside = rows[part]
    found: dict[str, Any] = {"by": name, "low": low, "high": high, "samples": int(part.sum())}
    found["loss"] = float(inside[:, 0].mean())
    if samples.task == CLASSES:
        found["correct"] = int((inside[:, 1] == inside[:, 2]).sum())
    else:
        found["spread"] = float(inside[:, 1].var())
    return found
