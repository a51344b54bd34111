"""Trainings that follow one another in one run: folds, stages, a new optimizer each. Each is judged by itself."""

from __future__ import annotations

from itertools import pairwise

from torchdoctor.rules.curves import Curve
from torchdoctor.run import Run
from torchdoctor.signals import LEARNING_RATE

MOST_STAGES = 8
"""Folds that are looked at; what is wrong with all of them shows in the first."""


def stages(run: Run) -> list[tuple[int, int]]:
    """First and last step of the first trainings, where they came one after the other; else nothing."""
    return all_stages(run)[:MOST_STAGES]


def all_stages(run: Run) -> list[tuple[int, int]]:
    """First and last step of each optimizer's work, where they came one after the other; else nothing."""
    spans: dict[str, tuple[int, int]] = {}
    for key in run.keys(LEARNING_RATE):
        trace = run.scalar(LEARNING_RATE, key)
        if not len(trace):
            continue
        optimizer = key.partition(".")[0]
        first, last = int(trace.first(1).steps[0]), int(trace.steps[-1])
        known = spans.get(optimizer, (first, last))
        spans[optimizer] = (min(first, known[0]), max(last, known[1]))
    ordered = sorted(spans.values())
    if len(ordered) < 2 or any(after[0] <= before[1] for before, after in pairwise(ordered)):
        return []
    return ordered


def parts(run: Run, curve: Curve) -> list[Curve]:
    """The curve of each stage, or the whole one."""
    found: list[Curve] = []
    for first, last in stages(run):
        keep = (curve.steps >= first) & (curve.steps <= last)
        broke = curve.broke_at if curve.broke_at is not None and first <= curve.broke_at <= last else None
        if keep.any():
            found.append(Curve(curve.steps[keep], curve.values[keep], broke))
    return found or [curve]
