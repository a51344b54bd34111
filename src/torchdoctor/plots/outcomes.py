"""What the model predicts: recall by class, what is taken for what, and whether its confidence can be believed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from torchdoctor.facts import VALIDATION, PredictionsFact, SamplesFact
from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, line
from torchdoctor.plots.palette import BLUE, GREY, HEAT, ORANGE, RED
from torchdoctor.run import Run

F = TypeVar("F", PredictionsFact, SamplesFact)

FAR = 0.2
"""Recall below the mean by which a title names a class."""
MOST_CLASSES = 60


def draw_classes(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    fact = _last(run, PredictionsFact)
    if fact is None or not 1 < fact.classes <= MOST_CLASSES or not sum(fact.support):
        return None
    support, correct = np.array(fact.support, float), np.array(fact.correct, float)
    recall = np.divide(correct, support, out=np.full(len(support), np.nan), where=support > 0)
    names = [str(i) for i in range(fact.classes)]
    mean, worst = float(np.nanmean(recall)), int(np.nanargmin(recall))
    shares = {"type": "bar", "name": "share of the samples", "x": names, "y": support / support.sum()}
    found = {"type": "bar", "name": "found (recall)", "x": names, "y": recall}
    chart = Chart("classes", "", [{**found, "marker": {"color": BLUE}}, {**shares, "marker": {"color": GREY}}])
    chart.layout = axes("class", "share", barmode="group")
    chart.layout["yaxis"] |= {"range": [0, 1.02], "tickformat": ".0%"}
    chart.layout["xaxis"] |= {"type": "category"}
    never = [i for i, n in enumerate(fact.predicted) if not n and fact.support[i]]
    if never:
        chart.title = f"{len(never)} of {fact.classes} classes are never predicted ({', '.join(map(str, never[:5]))})"
    elif recall[worst] < mean - FAR:
        chart.title = f"Class {worst} is found in {recall[worst]:.0%} of its samples, all together in {mean:.0%}"
    else:
        chart.title = f"All {fact.classes} classes are found about equally well ({mean:.0%} on average)"
    return chart


def draw_confusion(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """Of the pairs that were written down: the most frequent mistakes."""
    fact, counts = _last(run, SamplesFact), _last(run, PredictionsFact)
    if fact is None or counts is None or not fact.confused or not 1 < counts.classes <= MOST_CLASSES:
        return None
    table = np.full((counts.classes, counts.classes), np.nan)
    for true, said, samples in fact.confused:
        if true < counts.classes and said < counts.classes:
            table[true, said] = samples  # not a share: how many there are of a class was counted in another pass
    names = [str(i) for i in range(counts.classes)]
    hover = "is %{y}, taken for %{x}<br>%{z} samples<extra></extra>"
    heat = {"type": "heatmap", "x": names, "y": names, "z": table, "colorscale": HEAT, "hovertemplate": hover}
    heat |= {"zmin": 0, "colorbar": {"title": {"text": "samples"}, "thickness": 14}}
    true, said, samples = fact.confused[0]
    layout = axes("predicted", "true class", hovermode="closest")
    layout["xaxis"] |= {"type": "category"}
    layout["yaxis"] |= {"type": "category", "autorange": "reversed"}
    return Chart("confusion", f"Most often class {true} is taken for class {said}: {samples} samples", [heat], layout)


def draw_calibration(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    fact = _last(run, SamplesFact)
    bins = np.array([b for b in fact.bins if b and b[0] > 0]) if fact is not None else np.zeros((0, 3))
    if fact is None or len(bins) < 2:
        return None
    size, sure, right = bins.T
    chart = Chart("calibration", "", layout=axes("confidence", "share that is right", hovermode="closest"))
    chart.data.append(line("calibrated", [0, 1], [0, 1], GREY, dash="dash"))
    marker = {"size": 6 + 18 * np.sqrt(size / size.max()), "color": ORANGE}
    points = {"type": "scatter", "mode": "lines+markers", "name": "the model", "x": sure, "y": right}
    chart.data.append(
        {**points, "marker": marker, "line": {"color": ORANGE}, "text": [f"{n:.0f} samples" for n in size]}
    )
    chart.layout["xaxis"] |= {"range": [0, 1.02], "tickformat": ".0%"}
    chart.layout["yaxis"] |= {"range": [0, 1.02], "tickformat": ".0%"}
    gap = float((size * (sure - right)).sum() / size.sum())
    error = f" (calibration error {fact.ece:.3f})" if fact.ece is not None else ""
    word = "more sure than it is right" if gap > 0 else "less sure than it could be"
    close = abs(gap) < 0.03
    chart.title = f"Confidence can be believed{error}" if close else f"The model is {word}, by {abs(gap):.0%}{error}"
    return chart


def draw_worst(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """The samples of the largest loss, by their place in the pass."""
    fact = _last(run, SamplesFact)
    if fact is None or not fact.worst:
        return None
    rows = sorted(fact.worst, key=lambda row: -row["loss"])[:20]
    names = [f"sample {row['index']}" for row in rows]
    said = [_mistake(row) for row in rows]
    bars = {"type": "bar", "orientation": "h", "x": [row["loss"] for row in rows], "y": names, "text": said}
    share = sum(row["loss"] for row in rows) / max(fact.loss * fact.samples, 1e-12)
    title = f"The {len(rows)} worst of {fact.samples} samples carry {min(share, 1.0):.0%} of the loss"
    layout = axes("loss", "", hovermode="closest") | {"yaxis": {"autorange": "reversed", "type": "category"}}
    return Chart("worst", title, [{**bars, "marker": {"color": RED}, "opacity": 0.8}], layout, tall=True)


def _mistake(row: dict[str, object]) -> str:
    if row.get("predicted") is None:
        return ""
    sure = row.get("confidence")
    return f"is {row.get('label')}, said {row['predicted']}" + (
        f" ({sure:.0%} sure)" if isinstance(sure, float) else ""
    )


def _last(run: Run, kind: type[F]) -> F | None:
    facts = run.facts(kind)
    return next((f for f in reversed(facts) if f.phase == VALIDATION), facts[-1] if facts else None)
