"""An evaluation in words: how good, where it fails, how sure it is, then the figures."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchdoctor.instruments.evaluating.calibration import Calibration
from torchdoctor.instruments.evaluating.forms import BINARY, MULTILABEL, REGRESSION, TOKENS
from torchdoctor.instruments.evaluating.judged import call
from torchdoctor.instruments.evaluating.metrics import Estimate
from torchdoctor.instruments.tables import listed, table
from torchdoctor.report.text import count as counted
from torchdoctor.rules.curves import figure

if TYPE_CHECKING:
    from torchdoctor.instruments.evaluating.evaluation import Evaluation

NAMES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "F1, mean over classes",
    "micro_f1": "F1, all labels together",
    "matthews": "Matthews correlation",
    "auroc": "AUROC",
    "average_precision": "average precision",
    "exact_match": "all labels right",
    "label_accuracy": "labels right",
    "log_loss": "log loss",
    "loss": "loss_fn",
    "r2": "R2",
    "rmse": "RMSE",
    "mae": "MAE",
    "mean_residual": "mean of target - prediction",
}
SHOWN_CLASSES, SHOWN_SLICES, SHOWN_CONFUSED = 8, 8, 4
ELEMENTS = {TOKENS: "decisions (tokens or pixels)", MULTILABEL: "labels"}


def describe(found: Evaluation) -> str:
    return "\n".join(_lines(found))


def _lines(found: Evaluation) -> Iterator[str]:
    yield verdict(found)
    for line in weaknesses(found):
        yield f"  {line}"
    yield ""
    shown = {n: e for n, e in found.metrics.items() if n != "loss" or not _is_told(found)}
    yield from table(("", "value", f"{found.level:.0%} interval"), [_row(found, n, e) for n, e in shown.items()])
    yield from _classes(found)
    yield from _outputs(found)
    yield from _slices(found)
    yield from _worst(found)
    if found.notes:
        yield ""
        yield from (f"note: {note}" for note in found.notes)


def _is_told(found: Evaluation) -> bool:
    """The user's loss is that of the task."""
    own = found.metrics.get("log_loss")
    return own is not None and math.isclose(own.value, found.metrics["loss"].value, rel_tol=1e-4)


def verdict(found: Evaluation) -> str:
    """One sentence."""
    if found.task == REGRESSION:
        r2, rmse = found.metrics["r2"], found.metrics["rmse"]
        explained = f"{max(0.0, r2.value):.1%}" if math.isfinite(r2.value) else "an unknown share"
        worse = ", which is worse than naming the mean" if r2.value < 0 else ""
        return (
            f"The predictions explain {explained} of the variance of {counted(found.samples, 'sample')}: "
            f"R2 {_interval(r2)}{worse}. Typical error (RMSE) {figure(rmse.value)}, {found.baseline_text} "
            f"{figure(found.baseline)}."
        )
    name = "label_accuracy" if found.task == MULTILABEL else "accuracy"
    score = found.metrics[name]
    what = f"{found.elements} {ELEMENTS[found.task]} of " if found.task in ELEMENTS else ""
    against = f"; {found.baseline_text} gives {found.baseline:.1%}"
    if score.high < found.baseline:
        against = f", which is less than {found.baseline_text} gives ({found.baseline:.1%})"
    elif score.low <= found.baseline:
        against = f", which is not clearly more than {found.baseline_text} ({found.baseline:.1%})"
    return (
        f"{score.value:.1%} of {what}{counted(found.samples, 'sample')} are right ({found.level:.0%} interval "
        f"{score.low:.1%} to {score.high:.1%}){against}."
    )


def weaknesses(found: Evaluation) -> Iterator[str]:
    """What a reader should look at, the gravest first."""
    worse = [s for s in found.slices if s.worse]
    for part in worse[:3]:
        many = counted(part.samples, "sample")
        yield f"worse than the rest beyond chance: {part.name} ({many}), {_against(found, part)}"
    if len(worse) > 3:
        yield f"and {len(worse) - 3} more slices"
    weak = sorted((c for c in found.classes if c.worse), key=lambda c: c.recall.value)
    if weak and found.task not in (BINARY,):
        said = [f"{call(c.name)} ({c.recall.value:.0%} of {c.support})" for c in weak]
        yield f"found less often than the others, beyond chance: {listed(said, 4)}"
    never = [call(c.name) for c in found.classes if c.predicted == 0 and c.support]
    if never:
        yield f"never named: {listed(never)}"
    if found.calibration is not None and found.calibration.is_marked:
        yield from _calibration(found.calibration)
    if found.residuals is not None:
        yield from found.residuals.words


def _against(found: Evaluation, part: Any) -> str:
    if found.task == REGRESSION:
        return f"mean absolute error {_interval(part.score)} against {figure(part.rest)}"
    return f"{part.score.value:.1%} right ({part.score.low:.1%} to {part.score.high:.1%}) against {part.rest:.1%}"


def _calibration(c: Calibration) -> Iterator[str]:
    said = f"{c.about} is {c.confidence:.1%} on average, {c.share:.1%} comes true; " if c.is_one_sided else ""
    yield f"{c.word}: {said}calibration error (ECE) {c.ece:.3f}, a calibrated model stays below {c.chance_limit:.3f}"
    if c.temperature is not None and c.is_mended:
        yield f"to mend that, divide the logits by {c.temperature:.3g}: it brings the error to {c.ece_mended:.3f}"


def _row(found: Evaluation, name: str, estimate: Estimate) -> tuple[str, str, str]:
    words = NAMES.get(name) or name.replace("_", " ")
    if found.calibration is not None and name == "ece":
        words = f"ECE, {found.calibration.binning}"
    interval = f"{_number(estimate.low)} to {_number(estimate.high)}" if estimate.how else "-"
    return words, _number(estimate.value), interval


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:.3f}" if 0.0005 <= abs(value) < 10 or value == 0 else figure(value)


def _interval(estimate: Estimate) -> str:
    if not math.isfinite(estimate.low):
        return figure(estimate.value)
    return f"{figure(estimate.value)} ({figure(estimate.low)} to {figure(estimate.high)})"


def _classes(found: Evaluation) -> Iterator[str]:
    if not found.classes:
        return
    shown = sorted(found.classes, key=lambda c: c.f1.value if math.isfinite(c.f1.value) else 2.0)[:SHOWN_CLASSES]
    few, word = len(found.classes) <= SHOWN_CLASSES, "label" if found.task == MULTILABEL else "class"
    if few:
        shown = list(found.classes)
    yield ""
    yield f"By {word}" if few else f"By {word}, the {SHOWN_CLASSES} weakest of {len(found.classes)}"
    rows = [
        (
            c.name,
            str(c.support),
            _number(c.precision.value),
            f"{_number(c.recall.value)} ({_number(c.recall.low)} to {_number(c.recall.high)})",
            _number(c.f1.value),
            _number(c.auroc.value) if c.auroc is not None else "-",
        )
        for c in shown
    ]
    yield from table(("", "samples", "precision", "recall", "F1", "AUROC"), rows)
    for pair in found.confused[:SHOWN_CONFUSED] if len(found.class_names) > 2 else ():
        yield f"  {call(pair.true)} is taken for {call(pair.predicted)}: {pair.count} of {pair.support}"


def _outputs(found: Evaluation) -> Iterator[str]:
    if not found.numbers:
        return
    shown = sorted(found.numbers, key=lambda n: n.r2.value if math.isfinite(n.r2.value) else 2.0)[:SHOWN_CLASSES]
    yield ""
    yield "By output" if len(found.numbers) <= SHOWN_CLASSES else f"By output, the {SHOWN_CLASSES} weakest"
    rows = [(n.name, _interval(n.r2), figure(n.rmse.value), figure(n.mae.value)) for n in shown]
    yield from table(("", "R2", "RMSE", "MAE"), rows)


def _slices(found: Evaluation) -> Iterator[str]:
    if not found.slices:
        return
    yield ""
    hidden = len(found.slices) - SHOWN_SLICES
    yield f"By slice, the worst first{f' ({hidden} more in .slices)' if hidden > 0 else ''}"
    numbers = found.task == REGRESSION
    rows = []
    for s in found.slices[:SHOWN_SLICES]:
        score = _interval(s.score) if numbers else f"{s.score.value:.1%} ({s.score.low:.1%} to {s.score.high:.1%})"
        rest = figure(s.rest) if numbers else f"{s.rest:.1%}"
        chance = "too few" if math.isnan(s.chance) else f"{s.chance:.2g}"
        rows.append((s.name, str(s.samples), score, rest, chance))
    yield from table(("", "samples", "MAE" if numbers else "right", "rest", "p (Holm)"), rows)


def _worst(found: Evaluation) -> Iterator[str]:
    if not found.worst:
        return
    yield ""
    yield f"Samples of the largest loss ({found.loss_name}), by their {found.index}"
    for w in found.worst:
        sure = f" ({w.confidence:.1%} sure)" if w.confidence is not None else ""
        said = ""
        if w.target is not None:
            said = (
                f"said {_value(w.prediction)}{sure}{';' if isinstance(w.target, list) else ','} is {_value(w.target)}"
            )
        elif w.prediction is not None:
            said = str(w.prediction)
        yield f"  {w.index:>8}  loss {figure(w.loss):<8} {said}".rstrip()


def _value(value: Any) -> str:
    if isinstance(value, list):
        return listed([str(v) for v in value], 6) or "none"
    return figure(value) if isinstance(value, float) else str(value)
