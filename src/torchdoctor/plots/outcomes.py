"""What the model predicts: recall by class, what is taken for what, and whether its confidence can be believed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from torchdoctor.distributions.binomial import at_least, at_most
from torchdoctor.distributions.gaps import nanmean
from torchdoctor.facts import VALIDATION, PredictionsFact, SamplesFact
from torchdoctor.findings import Finding
from torchdoctor.plots.chart import Chart, axes, line, percent
from torchdoctor.plots.palette import BLUE, GREY, HEAT, ORANGE, RED, faint
from torchdoctor.rules.curves import figure
from torchdoctor.run import Floats, Run

F = TypeVar("F", PredictionsFact, SamplesFact)

FAR = 0.2
"""Recall below the mean by which a title names a class, and distance of two that nobody calls equal."""
BY_CHANCE = 0.05
"""Probability, over all classes, from which on a difference may be chance."""
MUTED = faint(GREY, 0.35)
MOST_CLASSES = 60
WORST = 20
CLOSE = 0.03
"""Calibration error up to which confidence can be taken at its word: that of models after temperature scaling (Guo et
al., 2017)."""


def draw_classes(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    fact = _last(run, PredictionsFact)
    if fact is None or not 1 < fact.classes <= MOST_CLASSES or not sum(fact.support):
        return None
    support, correct = np.array(fact.support, float), np.array(fact.correct, float)
    recall = np.divide(correct, support, out=np.full(len(support), np.nan), where=support > 0)
    names = [str(i) for i in range(fact.classes)]
    shares = {"type": "bar", "name": "share of the samples", "x": names, "y": support / support.sum()}
    found = {"type": "bar", "name": "found (recall)", "x": names, "y": recall}
    chart = Chart("classes", "", [{**found, "marker": {"color": BLUE}}, {**shares, "marker": {"color": GREY}}])
    chart.layout = axes("class", "share", barmode="group")
    chart.layout["yaxis"] |= {"range": [0, 1.02], "tickformat": ".0%"}
    chart.layout["xaxis"] |= {"type": "category"}
    chart.title = _classes_title(fact, recall) + _of(fact)
    return chart


def _classes_title(fact: PredictionsFact, recall: Floats) -> str:
    """Differences between classes are told as such only where chance does not explain them."""
    never = [i for i, n in enumerate(fact.predicted) if not n and fact.support[i]]
    if never:
        return f"{len(never)} of {fact.classes} classes are never predicted ({', '.join(map(str, never[:5]))})"
    mean, worst, best = float(nanmean(recall)), int(np.nanargmin(recall)), int(np.nanargmax(recall))
    if mean == 0:
        return f"None of the {fact.classes} classes is ever found: no prediction is right"
    low, high = percent(recall[worst]), percent(recall[best])
    if _is_chance(fact):
        if low == high:
            return f"All {fact.classes} classes are found equally well ({percent(mean)})"
        if recall[best] - recall[worst] <= FAR:
            return f"All {fact.classes} classes are found about equally well ({low} to {high} of their samples)"
        return f"Classes are found in {low} to {high} of their samples; they have so few that chance explains it"
    if recall[worst] < mean - FAR:
        return f"Class {worst} is found in {low} of its samples, the classes on average in {percent(mean)}"
    return f"Classes are found in {low} (class {worst}) to {high} (class {best}) of their samples"


def _is_chance(fact: PredictionsFact) -> bool:
    """Whether one and the same recall in all classes would often give such counts: each against that of all together,
    more strictly the more there are."""
    counts = [(right, n) for right, n in zip(fact.correct, fact.support, strict=True) if n]
    pooled = sum(right for right, _ in counts) / sum(n for _, n in counts)
    if not 0 < pooled < 1:
        return True
    tails = [min(at_least(right, n, pooled), at_most(right, n, pooled)) for right, n in counts]
    return 2 * len(tails) * min(tails) > BY_CHANCE


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
    right = np.where(np.eye(counts.classes, dtype=bool), 1.0, np.nan)
    muted = {"type": "heatmap", "x": names, "y": names, "z": right, "colorscale": [[0, MUTED], [1, MUTED]]}
    muted |= {"showscale": False, "hovertemplate": "%{y}: right, not counted here<extra></extra>"}
    true, said, samples = fact.confused[0]
    layout = axes("predicted (grey: right, not counted here)", "true class", hovermode="closest")
    layout["xaxis"] |= {"type": "category"}
    layout["yaxis"] |= {"type": "category", "autorange": "reversed"}
    return Chart(
        "confusion",
        f"Most often class {true} is taken for class {said}: {samples} samples{_of(fact)}",
        [heat, muted],
        layout,
    )


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
    chart.title = _calibration_title(size / size.sum(), sure - right, fact.ece) + _of(fact)
    return chart


def _calibration_title(weight: Floats, gap: Floats, ece: float | None) -> str:
    """By the error, since gaps up and down cancel in their mean; which then says to which side it lies."""
    lean, error = float((weight * gap).sum()), float((weight * np.abs(gap)).sum())
    error = max(error, ece) if ece is not None else error
    said = f" (calibration error {error:.3f})"
    if error < CLOSE:
        return f"Confidence can be believed{said}"
    if abs(lean) < error / 2:
        return f"Confidence is off by {percent(error)}, at times too high and at times too low{said}"
    word = "more sure than it is right" if lean > 0 else "less sure than it could be"
    return f"The model is {word}, by {percent(abs(lean))}{said}"


def draw_worst(run: Run, findings: Sequence[Finding] = ()) -> Chart | None:
    """The samples of the largest loss, by their place in the pass."""
    fact = _last(run, SamplesFact)
    if fact is None or not fact.worst:
        return None
    rows = sorted(fact.worst, key=lambda row: -row["loss"] if math.isfinite(row["loss"]) else -math.inf)[:WORST]
    names = [f"sample {row['index']}" for row in rows]
    said = [_mistake(row) for row in rows]
    bars = {"type": "bar", "orientation": "h", "x": [row["loss"] for row in rows], "y": names, "text": said}
    title = _worst_title([row["loss"] for row in rows], fact) + _of(fact)
    layout = axes("loss", "", hovermode="closest") | {"yaxis": {"autorange": "reversed", "type": "category"}}
    return Chart("worst", title, [{**bars, "marker": {"color": RED}, "opacity": 0.8}], layout, tall=True)


def _worst_title(losses: list[float], fact: SamplesFact) -> str:
    """Their share, which only losses above zero have."""
    broken = sum(not math.isfinite(loss) for loss in losses)
    who = (
        f"The {len(losses)} worst of {fact.samples} samples"
        if len(losses) > 1
        else f"The worst of {fact.samples} samples"
    )
    if broken:
        return f"The loss of {broken} of {fact.samples} samples is NaN or Inf"
    whole = fact.loss * fact.samples
    if min(losses) > 0 and math.isfinite(whole) and whole > 0:
        verb = "carry" if len(losses) > 1 else "carries"
        return f"{who} {verb} {percent(min(sum(losses) / whole, 1.0))} of the loss"
    return f"{who}: a loss of {figure(max(losses))}" + (f" down to {figure(min(losses))}" if len(losses) > 1 else "")


def _mistake(row: dict[str, object]) -> str:
    if row.get("predicted") is None:
        return ""
    sure = row.get("confidence")
    return f"is {_plain(row.get('label'))}, said {_plain(row['predicted'])}" + (
        f" ({sure:.0%} sure)" if isinstance(sure, float) else ""
    )


def _plain(value: object) -> str:
    return figure(value) if isinstance(value, float) else str(value)


def _of(fact: PredictionsFact | SamplesFact) -> str:
    """Of which samples it is said, where they are not those of validation."""
    return "" if fact.phase == VALIDATION else "; of training batches, validation was not seen"


def _last(run: Run, kind: type[F]) -> F | None:
    facts = run.facts(kind)
    return next((f for f in reversed(facts) if f.phase == VALIDATION), facts[-1] if facts else None)
