"""Judge one class of many, or yes against no: of samples, tokens or pixels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from torchdoctor.distributions.multiplicity import holm
from torchdoctor.instruments.evaluating.calibration import Calibration, calibrate, calibration_error, fit_temperature
from torchdoctor.instruments.evaluating.forms import DECISIONS
from torchdoctor.instruments.evaluating.judged import DENSE_CLASSES, Choices, ClassScore, Confused, Judged, call
from torchdoctor.instruments.evaluating.metrics import (
    Counts,
    Estimate,
    Floats,
    Ints,
    confuse,
    effective,
    f1_estimate,
    judge_confusion,
    mean_of,
    wilson,
)
from torchdoctor.instruments.evaluating.predictions import Predictions
from torchdoctor.instruments.evaluating.ranking import Bools, Ranked, auroc, average_precision, precision_at, rank
from torchdoctor.instruments.evaluating.slicing import LEAST, fisher

CONFUSED_KEPT = 20
NAMED = "the confidence in the class that is named"


def judge_classes(predictions: Predictions, names: tuple[str, ...] | None, choices: Choices) -> Judged:
    """One of many classes, or yes against no; for samples, tokens or pixels."""
    table, level = predictions.elements, choices.level
    label_E, predicted_E = table["label"].astype(np.int64), table["predicted"].astype(np.int64)
    classes = max(predictions.form.width, int(max(label_E.max(), predicted_E.max())) + 1)
    names = names or tuple(str(c) for c in range(classes))
    right_N, count_N = predictions.samples["right"], predictions.samples["count"]
    total, size = float(count_N.sum()), effective(right_N, count_N)
    counts, dependence = Counts.of(label_E, predicted_E, classes), total / size
    metrics = {"accuracy": wilson(right_N.sum() / dependence, size, level)}
    metrics |= judge_confusion(label_E, predicted_E, classes, size, level)
    scored = predictions.form.scores != DECISIONS
    if scored:
        for top in (t for t in choices.top if 1 < t < classes):
            hits = float((table["rank"] < top).mean())
            metrics[f"top_{top}_accuracy"] = wilson(hits * size, size, level)
        metrics["log_loss"] = mean_of(predictions.samples["own_loss"], count_N, level)
    ranked = _rank_classes(predictions, classes, choices) if scored and classes <= DENSE_CLASSES else Ranking()
    calibration = _calibrate_classes(predictions, classes, names, choices, dependence) if scored else None
    most = int(counts.support.argmax())
    dense = classes <= DENSE_CLASSES
    return Judged(
        metrics=metrics | ranked.metrics | ({"ece": calibration.estimate} if calibration is not None else {}),
        elements=int(total),
        baseline=float(counts.support[most] / counts.support.sum()),
        baseline_text=f"always naming {call(names[most])}",
        class_names=names,
        confusion=confuse(label_E, predicted_E, classes) if dense else None,
        confused=_confused(label_E, predicted_E, classes, names, counts),
        classes=class_scores(counts, names, ranked, dependence, level),
        calibration=calibration,
        notes=() if dense else (f"with {classes} classes there is no confusion matrix and no AUROC by class",),
    )


@dataclass(frozen=True)
class Ranking:
    metrics: dict[str, Estimate] = field(default_factory=dict)
    by_class: dict[int, tuple[Estimate, float]] = field(default_factory=dict)


def _rank_classes(predictions: Predictions, classes: int, choices: Choices) -> Ranking:
    """One class against the rest. Of two, the second is what is looked for."""
    scores_SC, label_S = predictions.scores["scores"].astype(np.float64), predictions.scores["label"]
    sample_S = np.unique(predictions.scores["sample"], return_inverse=True)[1]
    all_kept = predictions.scores.stride == 1
    if classes == 2:
        return rank_columns({1: scores_SC[:, 1] - scores_SC[:, 0]}, {1: label_S == 1}, sample_S, choices, all_kept)
    columns = {c: scores_SC[:, c] for c in range(scores_SC.shape[1])}
    return rank_columns(columns, {c: label_S == c for c in columns}, sample_S, choices, all_kept)


def rank_columns(
    scores: dict[int, Floats], true: dict[int, Bools], sample_S: Ints | None, choices: Choices, all_kept: bool
) -> Ranking:
    """Of rows that are a part of all, the k highest are others: then there is no precision at k."""
    ranked: dict[int, Ranked] = {}
    for c, score_S in scores.items():
        found = rank(score_S, true[c])
        if found is not None:
            ranked[c] = found
    if not ranked:
        return Ranking()
    precision = {c: average_precision(scores[c], true[c]) for c in ranked}
    metrics = {
        "auroc": auroc(list(ranked.values()), choices.level, sample_S),
        "average_precision": Estimate.bare(float(np.mean(list(precision.values())))),
    }
    rows = len(next(iter(scores.values())))
    for k in (k for k in choices.k if k < rows and all_kept):
        shares = [precision_at(scores[c], true[c], k) for c in ranked]
        mean = float(np.mean(shares))
        metrics[f"precision_at_{k}"] = wilson(mean * k, k, choices.level) if len(shares) == 1 else Estimate.bare(mean)
    return Ranking(metrics, {c: (auroc([r], choices.level, sample_S), precision[c]) for c, r in ranked.items()})


def class_scores(
    counts: Counts, names: tuple[str, ...], ranked: Ranking, dependence: float, level: float
) -> tuple[ClassScore, ...]:
    worse = _worse_classes(counts, dependence, level)
    scored = []
    for c in np.flatnonzero(counts.support + counts.predicted).tolist():
        right, support, named = (float(a[c]) / dependence for a in (counts.right, counts.support, counts.predicted))
        area, precision = ranked.by_class.get(c, (None, None))
        scored.append(
            ClassScore(
                name=names[c],
                support=int(counts.support[c]),
                predicted=int(counts.predicted[c]),
                precision=wilson(right, named, level),
                recall=wilson(right, support, level),
                f1=f1_estimate(right, support, named, level),
                auroc=area,
                average_precision=precision,
                worse=c in worse,
            )
        )
    return tuple(scored)


def _worse_classes(counts: Counts, dependence: float, level: float) -> set[int]:
    """Classes whose samples are missed more often than those of all others together."""
    total, wrong = counts.support.sum(), counts.support.sum() - counts.right.sum()
    tested = [c for c in np.flatnonzero(counts.support >= LEAST) if counts.support[c] <= total - LEAST]
    chances = [
        fisher(
            round((counts.support[c] - counts.right[c]) / dependence),
            round(counts.support[c] / dependence),
            round(wrong / dependence),
            round(total / dependence),
        )
        for c in tested
    ]
    return {int(c) for c, chance in zip(tested, holm(chances), strict=True) if chance < 1 - level}


def _confused(
    label_E: Ints, predicted_E: Ints, classes: int, names: tuple[str, ...], counts: Counts
) -> tuple[Confused, ...]:
    wrong = label_E != predicted_E
    cell, count = np.unique(label_E[wrong] * classes + predicted_E[wrong], return_counts=True)
    found = []
    for i in np.argsort(-count, kind="stable")[:CONFUSED_KEPT]:
        true, named = divmod(int(cell[i]), classes)
        found.append(Confused(names[true], names[named], int(count[i]), int(counts.support[true])))
    return tuple(found)


def _calibrate_classes(
    predictions: Predictions, classes: int, names: tuple[str, ...], choices: Choices, dependence: float
) -> Calibration:
    """Of yes against no the probability of yes; of many classes the confidence in the one that is named."""
    logs_SC = predictions.scores["scores"].astype(np.float64)
    label_S = predictions.scores["label"].astype(np.int64)
    positive = classes == 2
    about = f"the probability of {call(names[1])}" if positive else NAMED

    def look(scores: Floats) -> tuple[Floats, Bools]:
        share_SC = np.exp(scores - scores.max(1, keepdims=True))
        share_SC /= share_SC.sum(1, keepdims=True)
        if positive:
            return share_SC[:, 1], label_S == 1
        named_S = share_SC.argmax(1)
        return share_SC[np.arange(len(label_S)), named_S], named_S == label_S

    return judge_confidence(logs_SC, label_S, look, about, choices, dependence)


def judge_confidence(
    logs_SC: Floats,
    label_S: Ints,
    look: Callable[[Floats], tuple[Floats, Bools]],
    about: str,
    choices: Choices,
    dependence: float,
) -> Calibration:
    """`look` gives confidences and hits for scores; with the temperature that would lower the loss most."""
    found = calibrate(
        *look(logs_SC),
        about=about,
        of_named=about == NAMED,
        bins=choices.bins,
        binning=choices.binning,
        level=choices.level,
        dependence=dependence,
    )
    fitted = fit_temperature(logs_SC, label_S)
    if fitted is None:
        return found
    after = calibration_error(*look(logs_SC / fitted.value), choices.bins, choices.binning)
    return replace(found, temperature=fitted.value, loss=fitted.loss, loss_mended=fitted.loss_mended, ece_mended=after)
