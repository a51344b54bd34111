"""Judge predicted numbers: one a sample, or several."""

from __future__ import annotations

import math

import numpy as np

from torchdoctor.instruments.evaluating.judged import Choices, Judged, NumberScore
from torchdoctor.instruments.evaluating.metrics import Estimate, Floats, judge_numbers, resample
from torchdoctor.instruments.evaluating.predictions import Predictions
from torchdoctor.instruments.evaluating.residuals import follow

OUTPUTS_APART = 64
"""Predicted numbers a sample up to which each is judged for itself."""


def judge_values(predictions: Predictions, names: tuple[str, ...] | None, choices: Choices) -> Judged:
    """With their residuals; of several those of the worst."""
    predicted_SD, target_SD = predictions.scores["scores"], predictions.scores["label"]
    width, level = target_SD.shape[1], choices.level
    elements = width * int((predictions.samples["count"] > 0).sum())
    spread = float(np.sqrt(np.square(target_SD - target_SD.mean(0)).mean()))
    if width == 1:
        metrics = judge_numbers(target_SD[:, 0], predicted_SD[:, 0], level)
        residuals = follow(target_SD[:, 0], predicted_SD[:, 0], level)
        return Judged(metrics, elements, spread, "always naming the mean", residuals=residuals)
    apart = _apart(predicted_SD, target_SD, names, level) if width <= OUTPUTS_APART else ()
    worst = min(range(len(apart)), key=lambda d: _low(apart[d].r2.value), default=None)
    return Judged(
        metrics=_judge_together(predicted_SD, target_SD, level),
        elements=elements,
        baseline=spread,
        baseline_text="always naming the mean",
        class_names=tuple(s.name for s in apart),
        numbers=apart,
        residuals=follow(target_SD[:, worst], predicted_SD[:, worst], level) if worst is not None else None,
        notes=(f"residuals are those of output {apart[worst].name}, the worst",) if worst is not None else (),
    )


def _low(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _apart(
    predicted_SD: Floats, target_SD: Floats, names: tuple[str, ...] | None, level: float
) -> tuple[NumberScore, ...]:
    scores = []
    for d in range(target_SD.shape[1]):
        found = judge_numbers(target_SD[:, d], predicted_SD[:, d], level)
        scores.append(NumberScore(names[d] if names else str(d), found["r2"], found["rmse"], found["mae"]))
    return tuple(scores)


def _judge_together(predicted_SD: Floats, target_SD: Floats, level: float) -> dict[str, Estimate]:
    """R2 is the mean over outputs; of very many, that of all together. Samples are drawn whole."""
    width = target_SD.shape[1]
    centred, residual = target_SD - target_SD.mean(0), target_SD - predicted_SD
    single = width <= OUTPUTS_APART
    gather = (lambda a: a) if single else (lambda a: a.sum(1, keepdims=True))
    parts = [gather(a) for a in (centred, centred**2, residual, residual**2, np.abs(residual))]
    columns = parts[0].shape[1]

    def figures(sums_DK: Floats) -> Floats:
        count = sums_DK[:, :1]
        y, y2, r, r2, a = (sums_DK[:, 1 + i * columns : 1 + (i + 1) * columns] for i in range(5))
        spread = np.maximum(y2 - (y * y / count if single else 0.0), 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            explained = np.nanmean(np.where(spread > 0, 1 - r2 / spread, np.nan), axis=1)
        each = count[:, 0] * width
        return np.stack([explained, np.sqrt(r2.sum(1) / each), a.sum(1) / each, r.sum(1) / each], 1)

    rows = np.concatenate([np.ones((len(target_SD), 1)), *parts], axis=1)
    names = ("r2", "rmse", "mae", "mean_residual")
    return dict(zip(names, resample(rows, figures, level), strict=True))
