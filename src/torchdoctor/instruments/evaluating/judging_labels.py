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
"""Numbers that are drawn anew for the interval of F1; of more rows, every so many."""


def judge_labels(predictions: Predictions, names: tuple[str, ...] | None, choices: Choices) -> Judged:
    """Each label is a decision of its own; those of a sample count together."""
    logit_SK, true_SK = predictions.scores["scores"].astype(np.float64), predictions.scores["label"].astype(bool)
    limit = math.log(predictions.threshold / (1 - predictions.threshold))
    named_SK, labels, level = logit_SK >= limit, logit_SK.shape[1], choices.level
    names = names or tuple(str(k) for k in range(labels))
    right_N, count_N = predictions.samples["right"], predictions.samples["count"]
    size = effective(right_N, count_N)
    whole = float((right_N == count_N)[count_N > 0].sum())
    metrics = {
        "exact_match": wilson(whole, float((count_N > 0).sum()), level),
        "label_accuracy": wilson(right_N.sum() * size / count_N.sum(), size, level),
        **_f1_of_labels(true_SK, named_SK, level),
        "log_loss": mean_of(predictions.samples["own_loss"], count_N, level),
    }
    columns = {k: logit_SK[:, k] for k in range(labels)}
    dense = labels <= DENSE_CLASSES
    ranked = rank_columns(columns, {k: true_SK[:, k] for k in columns}, None, choices) if dense else Ranking()
    counts = Counts(*(a.sum(0).astype(np.float64) for a in (true_SK, named_SK, true_SK & named_SK)))
    calibration = _calibrate_labels(logit_SK, true_SK, choices, float(count_N.sum()) / size)
    missed, false = counts.support - counts.right, counts.predicted - counts.right
    cells = np.stack([len(true_SK) - counts.right - missed - false, false, missed, counts.right], 1)
    majority = np.maximum(true_SK.mean(0), 1 - true_SK.mean(0))
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


def _f1_of_labels(true_SK: Bools, named_SK: Bools, level: float) -> dict[str, Estimate]:
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
    return dict(zip(("micro_f1", "macro_f1"), resample(rows, figures, level), strict=True))


def _calibrate_labels(logit_SK: Floats, true_SK: Bools, choices: Choices, dependence: float) -> Calibration:
    logit_E, true_E = logit_SK.reshape(-1), true_SK.reshape(-1)
    pair_E2 = np.stack([np.zeros_like(logit_E), logit_E], 1)

    def look(scores: Floats) -> tuple[Floats, Bools]:
        return 1 / (1 + np.exp(-np.clip(scores[:, 1] - scores[:, 0], -500, 500))), true_E

    about = "the probability of each label"
    return judge_confidence(pair_E2, true_E.astype(np.int64), look, about, choices, dependence)
