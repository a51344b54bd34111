"""What is known when a batch could not be memorised, and how a cause is put."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torchdoctor.instruments.one_look.gradients import GradientSummary
from torchdoctor.instruments.overfitting.loss_reading import Floor, Reading, floor_of_loss, read_loss
from torchdoctor.instruments.overfitting.memorising import Attempt, Memoriser, Recipe, own_recipe
from torchdoctor.instruments.state import Trained
from torchdoctor.instruments.subject import Subject

REACHED = 0.01
"""Share of the way from a constant answer down to the floor that may be left: with ten classes a loss of 0.02, at which
every sample is right with 98 % of the probability."""


def goal_of(floor: Floor, start: float) -> float:
    """The loss at which a batch counts as memorised."""
    if not floor.known and start <= 0:
        return start - max(1.0, abs(start))
    above = min(start, floor.guess) if floor.guess is not None and floor.guess > floor.value else start
    return floor.value + REACHED * max(above - floor.value, 0.0)


@dataclass(frozen=True)
class Cause:
    name: str
    """of the diagnosis, as `torchdoctor explain` knows it, where there is one"""
    text: str
    fix: str
    proven: bool = False
    """by an experiment, or because the loss stands where the cause holds it"""


@dataclass
class Case:
    subject: Subject
    batch: Any
    recipe: Recipe
    memoriser: Memoriser
    floor: Floor
    goal: float
    start: Reading
    end: Reading
    """at the weights that the best attempt reached, which are kept"""
    weights: Trained
    best: Attempt
    gradients: GradientSummary
    """of the first step"""
    noisy: bool
    ruled_out: list[str] = field(default_factory=list)

    @property
    def reached(self) -> float:
        """The lowest level of any attempt."""
        return min([self.best.end, *(a.end for a in self.memoriser.attempts)])

    def holds_at(self, bound: float) -> bool:
        """Whether `bound` is above the goal, and the loss came down to it and no farther."""
        return bound > self.goal and self.reached >= bound - 0.02 * abs(bound) - 1e-6


def steps_for(case: Case, batch: Any, recipe: Recipe | None = None) -> int | None:
    """In how many steps another batch is memorised from the same weights; None if it is not, or says nothing."""
    case.memoriser.put_back()
    reading = read_loss(case.subject, batch)
    floor = floor_of_loss(reading)
    constant = floor.guess is not None and floor.guess <= floor.value
    if not math.isfinite(reading.value) or constant:
        return None
    bench = Memoriser(case.subject, batch, (), case.memoriser.steps, lambda: None)
    bench.goal = goal_of(floor, reading.value)
    return bench.search(recipe or own_recipe(case.subject.model)).reached
