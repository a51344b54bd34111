"""Do the inputs say anything about the labels? Two plain learners against the same labels, shuffled."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from torchdoctor.attach.guard import unseen
from torchdoctor.errors import UsageError
from torchdoctor.instruments.probing.data import Evidence, Task, read_evidence
from torchdoctor.instruments.probing.learners import Score, neighbours, ridge
from torchdoctor.instruments.progress import progress_bar
from torchdoctor.instruments.result import Result
from torchdoctor.plots.figure import mark_place, new_figure
from torchdoctor.plots.palette import BLUE, GREY, RED
from torchdoctor.rules.curves import figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SAMPLES = 1000
"""Eigenvalues of a matrix of this side take a second; a weak relation (R2 of 0.02) shows in as many."""
PERMUTATIONS = 500
"""The smallest p that they can show is 1 / 501."""
WORK = 4e10
"""Multiplications for all shuffles together, a few seconds on one core; with many classes fewer shuffles fit."""
LEAST_SHUFFLES = 199
"""With fewer, not even the smallest p would be below the level."""
LEVEL = 0.01
"""One false alarm in a hundred; halved for each of the two learners (Bonferroni)."""
WEAK = 0.02
"""Share of the targets' variance up to which a relation is there, but little of it."""


@dataclass(frozen=True)
class Probe:
    """One learner."""

    name: str
    score: float
    """cross-validated: accuracy for classes, mean area under the ROC curve for labels, R2 for numbers"""
    chance: float
    """what it scores on shuffled labels, on average"""
    statistic: float
    """what is compared with shuffled labels: the share of variance explained, or the agreement of neighbours"""
    shuffled: NDArray[np.float64]
    p_value: float


@dataclass(frozen=True)
class ProbeResult(Result):
    related: bool
    p_value: float
    """the smaller of the two learners', times two"""
    probes: tuple[Probe, ...]
    task: str
    samples: int
    features: int
    classes: int
    majority: float
    """share of the most frequent class; NaN for other targets"""
    permutations: int
    notes: tuple[str, ...]

    @property
    def linear(self) -> Probe:
        return self.probes[0]

    @property
    def nearest(self) -> Probe:
        return self.probes[1]

    @property
    def metric(self) -> str:
        return {"classes": "accuracy", "labels": "area under the ROC curve", "numbers": "R2"}[self.task]

    def __str__(self) -> str:
        lines = [self._verdict()]
        for probe in self.probes:
            lines.append(
                f"  {probe.name:<18} {self.metric} {self._number(probe.score)}, on shuffled labels "
                f"{self._number(probe.chance)}, p = {_p(probe.p_value, self.permutations)}"
            )
        if self.task == "classes":
            lines.append(f"  always naming the most frequent class scores {self.majority:.1%}")
        about = f"{self.classes} {self.task if self.classes > 1 else self.task.removesuffix('s')} to tell"
        lines.append(f"  {self.samples} samples of {self.features} features, {about}, {self.permutations} shuffles")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join([*lines, f"  {self._caveat()}"])

    def _verdict(self) -> str:
        if not self.related:
            return (
                "No relation between inputs and labels was found: plain learners do no better on these labels than on "
                "shuffled ones."
            )
        if self.linear.p_value > LEVEL / 2:
            how = "though not linearly: alike inputs have alike labels"
        elif self.linear.statistic < WEAK and self.nearest.p_value > LEVEL / 2:
            how = "a little, as a linear model shows"
        else:
            how = "as a linear model shows"
        return f"The inputs tell about the labels, {how}."

    def _caveat(self) -> str:
        if self.related:
            return "So inputs and labels belong together, in part at least; how well a network will do is not said."
        return (
            "Linear models and neighbours miss what is neither linear nor smooth (parity, small marks in large "
            "images).\n  Print a few pairs and look: were inputs and labels shuffled, sorted or joined apart from each "
            "other?"
        )

    def _number(self, value: float) -> str:
        return f"{value:.1%}" if self.task == "classes" else figure(value)

    def plot(self) -> Figure:
        said = "stands out from" if self.related else "is no better than"
        title = f"What the inputs tell {said} shuffled labels, p = {_p(self.p_value, self.permutations)}"
        chart = new_figure(title, "score (share explained, agreement)", "shuffles", barmode="overlay")
        for probe, colour, height in zip(self.probes, (BLUE, GREY), (1.0, 0.9), strict=True):
            chart.add_histogram(
                x=probe.shuffled, name=f"{probe.name}, shuffled", marker_color=colour, opacity=0.6, nbinsx=40
            )
            shown = RED if probe.p_value > LEVEL / 2 else colour
            mark_place(chart, probe.statistic, probe.name, shown, height=height)
        return chart


@unseen()
def linear_probe(
    data: Any,
    labels: Any = None,
    *,
    task: Literal["auto", "classes", "labels", "numbers"] = "auto",
    inputs: Callable[[Any], Any] | None = None,
    samples: int = SAMPLES,
    permutations: int = PERMUTATIONS,
    folds: int = 5,
    neighbours_each: int = 5,
    seed: int = 0,
    progress: bool = True,
) -> ProbeResult:
    """Cross-validated ridge regression on the flattened, standardised inputs, and nearest neighbours beside it, each
    against the same labels in a random order: is there anything to learn?

        print(torchdoctor.linear_probe(train_loader))
        print(torchdoctor.linear_probe(X, y))

    `data` is a loader, a dataset, one batch, or an array with `labels` beside it. `inputs(batch)` picks what to look at
    where a batch holds several inputs. Classes, several labels at once and numbers are told apart by the target, or by
    `task`. No random state but one of its own (`seed`) is used.
    """
    if permutations < LEAST_SHUFFLES or samples < 20 or folds < 2 or neighbours_each < 1:
        raise UsageError(
            f"permutations={permutations}, samples={samples}, folds={folds}, neighbours_each={neighbours_each}: at "
            f"least {LEAST_SHUFFLES}, 20, 2 and 1 are needed"
        )
    if task not in ("auto", "classes", "labels", "numbers"):
        raise UsageError(f"task={task!r} is not known; it is 'auto', 'classes', 'labels' or 'numbers'")
    generator = np.random.default_rng(seed)
    evidence = read_evidence(data, labels, task, inputs, samples, generator)
    return measure_relation(evidence, permutations, folds, neighbours_each, generator, progress)


def measure_relation(
    evidence: Evidence,
    permutations: int,
    folds: int,
    neighbours_each: int,
    generator: np.random.Generator,
    progress: bool = True,
) -> ProbeResult:
    count, outputs = evidence.targets.shape
    permutations = int(max(LEAST_SHUFFLES, min(permutations, WORK / (count * count * outputs * 4))))
    orders = np.stack([generator.permutation(count) for _ in range(permutations)])
    folds_N = generator.permutation(np.arange(count) % min(folds, count))
    with torch.device("cpu"), progress_bar("plain learners on shuffled labels", 2, progress) as advance:
        linear = _probe("linear (ridge)", ridge(evidence, orders, folds_N), evidence.task)
        advance()
        near = _probe("nearest neighbours", neighbours(evidence, orders, neighbours_each), evidence.task)
        advance()
    p_value = min(1.0, 2 * min(linear.p_value, near.p_value))
    return ProbeResult(
        related=p_value <= LEVEL,
        p_value=p_value,
        probes=(linear, near),
        task=evidence.task.kind,
        samples=count,
        features=evidence.features,
        classes=outputs,
        majority=evidence.task.majority,
        permutations=permutations,
        notes=tuple(evidence.notes),
    )


def _probe(name: str, score: Score, task: Task) -> Probe:
    beaten = int((score.shuffled >= score.statistic - 1e-12).sum())
    return Probe(
        name=name,
        score=task.score(score.predictions),
        chance=float(np.mean([task.score(p, order) for p, order in score.examples])),
        statistic=score.statistic,
        shuffled=score.shuffled,
        p_value=(1 + beaten) / (1 + len(score.shuffled)),
    )


def _p(value: float, permutations: int) -> str:
    least = 1 / (1 + permutations)
    return f"{value:.3f}" if value > 2 * least or math.isclose(value, 1.0) else f"{value:.3f} (the least that can be)"
