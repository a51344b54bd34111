"""Metrics of a finished run: what was logged, printed and measured, one number each, and which of them to compare."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from torchdoctor import signals
from torchdoctor.errors import UsageError
from torchdoctor.experiments.directions import read_direction
from torchdoctor.run import Run, Trace

LAST, BEST = "last", "best"
LOGGED, PRINTED, MEASURED, TEXT = "logged", "printed", "measured", "text"
TENTH = 10
"""A training loss is noisy from step to step: the mean over the last tenth of the steps stands for it."""
LOG_BYTES = 4_000_000
"""Of what the script printed, the end that is searched for a metric."""

_HELD_OUT = re.compile(r"(?:^| )(?:val|valid|validation|test|eval|dev|holdout)(?: |$)")
_NO_METRIC = re.compile(r"(?:^| )(?:epoch|step|lr|rate|runtime|second|seconds|flos|time|samples|memory|norm|version)$")
_NUMBER = r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf)\s*(%?)"
_MEASURED = (signals.ACCURACY_VALIDATION, signals.LOSS_VALIDATION, signals.LOSS_TRAIN)
_ALSO = {
    "loss.validation": ("val loss", "valid loss", "validation loss", "eval loss", "test loss", "loss"),
    "accuracy.validation": ("val acc", "val accuracy", "valid accuracy", "validation accuracy", "eval accuracy",
                            "test accuracy", "test acc", "accuracy", "acc"),
    "loss.train": ("train loss", "training loss"),
}  # fmt: skip
"""What people may call what is measured, where nothing was logged under that name."""


@dataclass(frozen=True)
class Metric:
    """Of one run."""

    name: str
    source: str
    last: float
    least: float
    most: float
    looks: int

    def value(self, which: str, higher_is_better: bool) -> float:
        return self.last if which == LAST else self.most if higher_is_better else self.least


def plain(name: str) -> str:
    """val/Acc, val_acc and val-acc are one name."""
    return " ".join(re.split(r"[^a-z0-9@]+", name.lower())).strip()


def is_held_out(name: str) -> bool:
    return bool(_HELD_OUT.search(plain(name)))


def read_metrics(run: Run) -> dict[str, Metric]:
    """By name. What was both logged and printed counts once."""
    found: dict[str, Metric] = {}
    taken: set[str] = set()
    for signal, source in ((signals.USER, LOGGED), (signals.PRINTED, PRINTED)):
        for key in run.keys(signal):
            metric = _summarise(key, source, run.scalar(signal, key))
            if metric is not None and plain(key) not in taken and not _NO_METRIC.search(plain(key)):
                taken.add(plain(key))
                found[key] = metric
    for signal in _MEASURED:
        metric = _summarise(signal.name, MEASURED, run.scalar(signal))
        if metric is not None:
            found[signal.name] = metric
    return found


def _summarise(name: str, source: str, trace: Trace) -> Metric | None:
    if not len(trace):
        return None
    last = trace.last(max(1, len(trace) // TENTH) if name == signals.LOSS_TRAIN.name else 1).values
    low, high = trace.low[np.isfinite(trace.low)], trace.high[np.isfinite(trace.high)]
    if not len(low) or not len(high):
        return Metric(name, source, math.nan, math.nan, math.nan, len(trace))
    return Metric(name, source, float(last.mean()), float(low.min()), float(high.max()), len(trace))


def read_text(log: Path, name: str) -> Metric | None:
    """A metric that the script printed under that name, in whatever form: the number that follows the name."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return None
    words = r"[\W_]{0,3}".join(map(re.escape, plain(name).split()))
    matches = re.findall(rf"(?<![a-z0-9]){words}(?:[^\n\w+.-]|-[>\s]){{0,12}}{_NUMBER}", text.lower())
    values = [float(v) / (100 if percent else 1) for v, percent in matches]
    finite = [v for v in values if math.isfinite(v)]
    if not values:
        return None
    return Metric(name, TEXT, values[-1], min(finite, default=math.nan), max(finite, default=math.nan), len(values))


def find(metrics: Mapping[str, Metric], name: str) -> Metric | None:
    """By its name as it was logged, then however it is spelt, then what is measured under another name."""
    if name in metrics:
        return metrics[name]
    wanted = plain(name)
    for key, metric in metrics.items():
        if plain(key) == wanted:
            return metric
    return next((metrics[key] for key, names in _ALSO.items() if key in metrics and wanted in names), None)


def choose(runs: Sequence[Mapping[str, Metric]]) -> tuple[str, list[str]]:
    """The metric that says how good a run is, of those that all runs have, and the others that might be it."""
    common = [name for name in runs[0] if all(name in run for run in runs)] if runs else []
    if not common:
        raise UsageError(
            "the runs have no metric in common; log one with doctor.log(val_accuracy=...), or name one that the script "
            "prints with --metric NAME"
        )
    ranked = sorted(common, key=lambda name: _rank(runs[0][name]))
    others = [n for n in ranked[1:] if is_held_out(n) or runs[0][n].source == LOGGED]
    return ranked[0], others


def _rank(metric: Metric) -> tuple[bool, int, int]:
    """Held-out before training, scores before losses and both before names that do not tell, what was logged on purpose
    before what was measured."""
    held_out = is_held_out(metric.name) or metric.name.endswith(".validation")
    standing = {True: 0, False: 1, None: 2}[read_direction(metric.name)]
    return not held_out, standing, {LOGGED: 0, PRINTED: 1}.get(metric.source, 2)


def names_of(runs: Iterable[Mapping[str, Metric]]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run))
