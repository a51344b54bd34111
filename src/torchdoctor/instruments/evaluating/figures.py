"""Pictures of an evaluation, as Plotly figures; each title says what is to be seen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.forms import MULTILABEL, REGRESSION
from torchdoctor.instruments.evaluating.judged import call
from torchdoctor.plots.figure import new_figure
from torchdoctor.plots.palette import BAND, BLUE, GREEN, GREY, RED
from torchdoctor.rules.curves import figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from torchdoctor.instruments.evaluating.evaluation import Evaluation

KINDS = ("confusion", "calibration", "slices", "residuals")
SHOWN_CLASSES = 40
"""Rows of a confusion matrix that can still be read; of more, those with the most errors."""
SHOWN_SLICES = 30


def draw(found: Evaluation, kind: str | None) -> Figure:
    if kind is not None and kind not in KINDS:
        raise UsageError(f"there is no picture {kind!r} of an evaluation; known are {', '.join(KINDS)}")
    kind = kind or what_matters(found)
    return {"confusion": _confusion, "calibration": _calibration, "slices": _slices, "residuals": _residuals}[kind](
        found
    )


def what_matters(found: Evaluation) -> str:
    """Slices that fail beyond chance, then a confidence that is off, then what is taken for what."""
    if any(s.worse for s in found.slices):
        return "slices"
    if found.task == REGRESSION:
        return "residuals" if found.residuals is not None or not found.slices else "slices"
    if found.calibration is not None and found.calibration.is_marked:
        return "calibration"
    if found.confusion is not None:
        return "confusion"
    return "calibration" if found.calibration is not None else "slices"


def _confusion(found: Evaluation) -> Figure:
    if found.confusion is None:
        why = "numbers are not classes" if found.task == REGRESSION else "there are too many classes"
        raise UsageError(f"there is no confusion to draw: {why}")
    if found.task == MULTILABEL:
        return _label_errors(found)
    counts, names = found.confusion, list(found.class_names)
    if len(names) > SHOWN_CLASSES:
        wrong = counts.sum(1) + counts.sum(0) - 2 * np.diag(counts)
        kept = np.sort(np.argsort(-wrong, kind="stable")[:SHOWN_CLASSES])
        counts, names = counts[np.ix_(kept, kept)], [names[i] for i in kept]
    share = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    cut = (
        f" ({len(names)} of {len(found.class_names)} classes, those with most errors)"
        if len(names) < len(found.class_names)
        else ""
    )
    if found.confused:
        pair = found.confused[0]
        taken = f"{call(pair.true)} is taken for {call(pair.predicted)}"
        title = f"Most often {taken}: {pair.count} of {pair.support}{cut}"
    else:
        title = f"Nothing is confused: all {found.elements} are right"
    drawn = new_figure(title, "predicted", "true")
    labels = [f"{n} " for n in names]
    drawn.add_heatmap(
        z=share,
        x=labels,
        y=labels,
        customdata=counts,
        colorscale="Blues",
        zmin=0,
        zmax=1,
        colorbar={"title": "share of the<br>true class"},
        text=counts if len(names) <= 20 else None,
        texttemplate="%{text}" if len(names) <= 20 else None,
        hovertemplate="true %{y}<br>predicted %{x}<br>%{customdata} (%{z:.1%})<extra></extra>",
    )
    drawn.update_yaxes(autorange="reversed", type="category")
    drawn.update_xaxes(type="category")
    return drawn


def _label_errors(found: Evaluation) -> Figure:
    shown = sorted(found.classes, key=lambda c: c.f1.value if math.isfinite(c.f1.value) else 2.0)[:SHOWN_CLASSES]
    title = f"Label {shown[0].name} is the weakest: F1 {shown[0].f1.value:.2f}" if shown else "No label occurs"
    drawn = new_figure(title, "label", "share", barmode="group", yaxis_range=[0, 1])
    names = [c.name for c in shown]
    drawn.add_bar(
        x=names, y=[1 - c.recall.value for c in shown], name="missed, of those that are true", marker_color=RED
    )
    drawn.add_bar(x=names, y=[1 - c.precision.value for c in shown], name="wrong, of those named", marker_color=BLUE)
    drawn.update_xaxes(type="category")
    return drawn


def _calibration(found: Evaluation) -> Figure:
    c = found.calibration
    if c is None:
        raise UsageError("there is no calibration to draw: the predictions come without probabilities")
    title = f"The model is {c.word}: ECE {c.ece:.3f} ({c.ece_low:.3f} to {c.ece_high:.3f}, {c.binning})"
    drawn = new_figure(title, f"{c.about}", "share that comes true", xaxis_range=[0, 1], yaxis_range=[0, 1])
    drawn.add_scatter(
        x=[0, 1], y=[0, 1], mode="lines", line={"dash": "dash", "color": GREEN}, name="right as often as it says"
    )
    most = max(b.count for b in c.bins)
    drawn.add_bar(
        x=[(b.low + b.high) / 2 for b in c.bins],
        y=[0.2 * b.count / most for b in c.bins],
        width=[b.high - b.low for b in c.bins],
        marker_color=BAND,
        marker_line_color=GREY,
        customdata=[b.count for b in c.bins],
        name="how many (not to scale)",
        hovertemplate="%{customdata} from here<extra></extra>",
    )
    drawn.add_scatter(
        x=[b.confidence for b in c.bins],
        y=[b.share for b in c.bins],
        mode="lines+markers",
        name="model",
        line={"color": BLUE},
        error_y={
            "type": "data",
            "array": [b.share_high - b.share for b in c.bins],
            "arrayminus": [b.share - b.share_low for b in c.bins],
        },
        customdata=[b.count for b in c.bins],
        hovertemplate="says %{x:.3f}, comes true %{y:.3f}<br>%{customdata} of them<extra></extra>",
    )
    return drawn


def _slices(found: Evaluation) -> Figure:
    if not found.slices:
        raise UsageError("there are no slices to draw: hand over slices=...")
    numbers = found.task == REGRESSION
    worse = [s for s in found.slices if s.worse]
    title = (
        f"{len(worse)} of {len(found.slices)} slices worse than the rest beyond chance, first of all {worse[0].name}"
        if worse
        else f"None of {len(found.slices)} slices is worse than the rest beyond chance"
    )
    shown = found.slices[:SHOWN_SLICES][::-1]
    overall = found.metrics["mae" if numbers else "label_accuracy" if found.task == MULTILABEL else "accuracy"].value
    drawn = new_figure(title, "mean absolute error" if numbers else "share right", "")
    for members, colour, name in (
        ([s for s in shown if not s.worse], BLUE, "within chance"),
        ([s for s in shown if s.worse], RED, "worse beyond chance"),
    ):
        drawn.add_scatter(
            x=[s.score.value for s in members],
            y=[s.name for s in members],
            mode="markers",
            name=name,
            marker={"color": colour, "size": 10},
            error_x=_bars(members),
            customdata=[s.samples for s in members],
            hovertemplate="%{y}<br>%{x:.3f}, %{customdata} samples<extra></extra>",
        )
    drawn.add_vline(x=overall, line_dash="dash", line_color=GREY, annotation_text=f"all: {figure(overall)}")
    drawn.update_yaxes(type="category", categoryorder="array", categoryarray=[s.name for s in shown], automargin=True)
    return drawn


def _bars(members: list[Any]) -> dict[str, Any]:
    return {
        "type": "data",
        "array": [s.score.high - s.score.value for s in members],
        "arrayminus": [s.score.value - s.score.low for s in members],
    }


def _residuals(found: Evaluation) -> Figure:
    r = found.residuals
    if r is None:
        raise UsageError("there are no residuals to draw: too few numbers were predicted, or all alike")
    words = r.words
    title = words[0][0].upper() + words[0][1:] if words else "The residuals show no trend with the prediction"
    drawn = new_figure(title, "prediction", "target - prediction")
    drawn.add_scatter(
        x=[p for p, _ in r.points],
        y=[e for _, e in r.points],
        mode="markers",
        marker={"color": BLUE, "size": 5, "opacity": 0.4},
        name="samples",
    )
    drawn.add_scatter(
        x=[(p.low + p.high) / 2 for p in r.parts],
        y=[p.residual.value for p in r.parts],
        mode="lines+markers",
        line={"color": RED},
        name="mean of a fifth",
        error_y={"type": "data", "array": [p.residual.high - p.residual.value for p in r.parts]},
    )
    drawn.add_hline(y=0, line_dash="dash", line_color=GREEN)
    return drawn
