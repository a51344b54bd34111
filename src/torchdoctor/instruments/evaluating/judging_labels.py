"""Judge any number of labels a sample."""

from __future__ import annotations

import math

import numpy as np

from torchdoctor.instruments.evaluating.calibration import Calibration
from torchdoctor.instruments.evaluating.judged import DENSE_CLASSES, Choices, Judged
from torchdoctor.instruments.evaluating.judging_classes import Ranking, class_scores, judge_confidence, rank_columns
from torchdoctor.instruments.evaluating.metrics import Counts, Estimate, Floats, effective, mean_of, resample, wilson
from torchdoctor.instruments.evaluating.predictions import Predictions
from torchdoctor.instruments.evaluating.ranking import Bools

RESAMPLED = 2_000_000
"""Numbers that are drawn anew for the interval of F1; of more rows, every so many. F1 itself is that of all."""


def judge_labels(predictions: Predictions, names: tuple[str, ...] | None, choices: Choices) -> Judged:
    """Each label is a decision of its own; those of a sample count together."""
    logit_SK, true_SK = predictions.scores["scores"].astype(np.float64), predictions.scores["label"].astype(bool)
    limit = math.log(predictions.threshold / (1 - predictions.threshold))
    named_SK, labels, level = logit_SK >= limit, logit_SK.shape[1], choices.level
    names = names or tuple(str(k) for k in range(labels))
    right_N, count_N = predictions.samples["right"], predictions.samples["count"]
    size = effective(right_N, count_N)
    whole, rows = float((right_N == count_N)[count_N > 0].sum()), float((count_N > 0).sum())
    counts = Counts(*predictions.label_counts)
    metrics = {
        "exact_match": wilson(whole, rows, level),
        "label_accuracy": wilson(right_N.sum() * size / count_N.sum(), size, level),
        **_f1_of_labels(counts, true_SK, named_SK, predictions.scores.stride, level),
        "log_loss": mean_of(predictions.samples["own_loss"], count_N, level),
    }
    columns = {k: logit_SK[:, k] for k in range(labels)}
    dense = labels <= DENSE_CLASSES
    ranked = Ranking()
    if dense:
        all_kept = predictions.scores.stride == 1
        ranked = rank_columns(columns, {k: true_SK[:, k] for k in columns}, None, choices, all_kept)
    calibration = _calibrate_labels(logit_SK, true_SK, choices, float(count_N.sum()) / size)
    missed, false = counts.support - counts.right, counts.predicted - counts.right
    cells = np.stack([rows - counts.right - missed - false, false, missed, counts.right], 1)
    majority = np.maximum(counts.support, rows - counts.support) / rows
    return Judged(
        metrics=metrics | ranked.metrics | {"ece": calibration.estimate},
        elements=int(count_N.sum()),
        baseline=float(majority.mean()),
        baseline_text="always naming the more frequent answer",
        class_names=names,
        confusion=cells.reshape(labels, 2, 2).astype(np.int64) if dense else None,
        classes=class_scores(counts, names, ranked, 1.0, level),
        calibration=calibration,
    )


def _f1_of_labels(
    counts: Counts, true_SK: Bools, named_SK: Bools, kept_stride: int, level: float
) -> dict[str, Estimate]:
    """`counts` of all rows; those that were kept, one in `kept_stride`, are for the interval."""
    stride = max(1, -(-3 * true_SK.size // RESAMPLED))
    kept = [a[::stride] for a in (true_SK, named_SK, true_SK & named_SK)]
    labels = true_SK.shape[1]

    def figures(sums_DK: Floats) -> Floats:
        support, named, right = (sums_DK[:, 1 + i * labels : 1 + (i + 1) * labels] for i in range(3))
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(support + named > 0, 2 * right / (support + named), np.nan)
        every = 2 * right.sum(1) / np.maximum((support + named).sum(1), 1e-300)
        return np.stack([every, np.where(np.isfinite(each).any(1), np.nanmean(each, axis=1), np.nan)], 1)

    rows = np.concatenate([np.ones((len(kept[0]), 1)), *kept], axis=1)
    sums = np.concatenate([[1.0], counts.support, counts.predicted, counts.right])
    found = resample(rows, figures, level, sums, stride * kept_stride)
    return dict(zip(("micro_f1", "macro_f1"), found, strict=True))


def _calibrate_labels(logit_SK: Floats, true_SK: Bools, choices: Choices, dependence: float) -> Calibration:
    logit_E, true_E = logit_SK.reshape(-1), true_SK.reshape(-1)
    pair_E2 = np.stack([np.zeros_like(logit_E), logit_E], 1)

    def look(scores: Floats) -> tuple[Floats, Bools]:
        return 1 / (1 + np.exp(-np.clip(scores[:, 1] - scores[:, 0], -500, 500))), true_E

    about = "the probability of each label"
    return judge_confidence(pair_E2, true_E.astype(np.int64), look, about, choices, dependence)
