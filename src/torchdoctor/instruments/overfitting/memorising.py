"""Attempts to memorise one batch, each from the same weights and the same random state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor.errors import UsageError
from torchdoctor.instruments.overfitting.loss_reading import Reading, read_loss
from torchdoctor.instruments.state import Randomness, Trained
from torchdoctor.instruments.subject import Subject

RATES = (1e-3, 1e-2, 1e-4, 3e-3, 1e-1)
"""For Adam, whose step is about the rate: from the least that moves a weight of usual size in some hundred steps to the
most that a linear model stands; the likeliest first."""
OTHER_RATES = (1e-3, 1e-2, 1e-1, 1.0)
FACTORS = (0.01, 0.1, 10.0, 100.0)
"""Of the rate in use. With the others they tell whether it is the rate or the optimizer."""
RACE = 25
"""Steps after which a rate that works is ahead of one that does not."""
FULL = 3
"""Rates that get all steps, the best of the race first."""
IN_A_ROW = 3
"""Steps that have to stay below the goal."""
STILL, MOVED = 60, 1e-5
"""Steps over which the loss moves by no more than this share of itself: it will not move any more."""
LOST = 1e3
"""Loss over the first one from which an attempt is given up."""


@dataclass
class Attempt:
    optimizer: str
    lr: float | None
    losses: list[float] = field(default_factory=list)
    reached: int | None = None
    """steps until the loss was at the goal, and stayed there"""

    @property
    def best(self) -> float:
        finite = [v for v in self.losses if math.isfinite(v)]
        return min(finite) if finite else math.inf

    @property
    def end(self) -> float:
        """Median of the last few losses."""
        last = self.losses[-5:]
        return float(np.median(last)) if last and all(map(math.isfinite, last)) else math.inf

    @property
    def still(self) -> bool:
        last = self.losses[-STILL:]
        return len(last) == STILL and max(last) - min(last) <= MOVED * abs(last[-1])

    @property
    def falling(self) -> bool:
        """The last quarter still took a tenth off the loss."""
        if len(self.losses) < 40 or not math.isfinite(self.end):
            return False
        before = float(np.median(self.losses[-len(self.losses) // 4 - 5 : -len(self.losses) // 4]))
        return before - self.end > 0.1 * abs(before)


@dataclass(frozen=True)
class Recipe:
    """An optimizer that can be made at any rate. `rate` is the one it was handed over with, if any."""

    name: str
    make: Callable[[float | None], Optimizer]
    rate: float | None = None
    given: bool = False
    """by the user: then it is tried as it is, first"""


def recipe_of(model: nn.Module, optimizer: Any, lr: float | None) -> Recipe:
    """From an optimizer, a class of optimizers, a function of parameters, or nothing, which is Adam."""
    if isinstance(optimizer, Optimizer):
        return _existing(optimizer, lr)
    held = [p for p in model.parameters() if p.requires_grad]
    if optimizer is None:
        return own_recipe(model, lr)
    if not callable(optimizer):
        raise UsageError(
            f"optimizer is a {type(optimizer).__name__}; hand over an optimizer, its class, or a function of parameters"
        )

    def make(rate: float | None) -> Optimizer:
        return optimizer(held) if rate is None else optimizer(held, lr=rate)

    return Recipe(getattr(optimizer, "__name__", "optimizer"), make, lr, lr is not None)


def own_recipe(model: nn.Module, lr: float | None = None) -> Recipe:
    """Adam; Adagrad for embeddings with sparse gradients, which Adam does not take."""
    sparse = any(getattr(m, "sparse", False) for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag))
    kind = torch.optim.Adagrad if sparse else torch.optim.Adam

    def make(rate: float | None) -> Optimizer:
        return kind([p for p in model.parameters() if p.requires_grad], lr=rate if rate is not None else 1e-3)

    return Recipe(kind.__name__, make, lr, lr is not None)


def _existing(optimizer: Optimizer, lr: float | None) -> Recipe:
    base = float(optimizer.param_groups[0]["lr"])

    def make(rate: float | None) -> Optimizer:
        for group in optimizer.param_groups:
            factor = 1.0 if rate is None else rate / base if base else math.nan
            group["lr"] = rate if math.isnan(factor) else group["lr"] * factor
        return optimizer

    return Recipe(type(optimizer).__name__, make, lr if lr is not None else base, True)


class Memoriser:
    """`goal` is the loss to reach. What an attempt leaves behind stays until the next one, to be looked at."""

    def __init__(
        self, subject: Subject, batch: Any, others: tuple[Any, ...], steps: int, advance: Callable[[], None]
    ) -> None:
        self.subject, self.batch, self.steps, self._advance = subject, batch, steps, advance
        self._start, self._randomness = Trained(*subject.parts, *others), Randomness()
        self.goal = -math.inf
        self.attempts: list[Attempt] = []
        self.final: tuple[Attempt, Trained, Reading] | None = None
        """the best of the attempts with all steps, the weights that it reached, and a look at the loss there"""

    def put_back(self) -> None:
        self._start.put_back()
        self._randomness.put_back()

    def attempt(self, recipe: Recipe, rate: float | None, steps: int | None = None) -> Attempt:
        self.put_back()
        if not self.subject.model.training:
            self.subject.model.train()
        optimizer, found = recipe.make(rate), Attempt(recipe.name, rate if rate is not None else recipe.rate)
        below = 0
        for step in range(steps or self.steps):
            loss = self._step(optimizer)
            found.losses.append(loss)
            self._advance()
            below = below + 1 if loss <= self.goal else 0
            if below == IN_A_ROW:
                found.reached = step + 1 - IN_A_ROW
                break
            if not math.isfinite(loss) or abs(loss) > LOST * (abs(found.losses[0]) + 1) or found.still:
                break
        return found

    def _step(self, optimizer: Optimizer) -> float:
        values: list[float] = []
        held = [p for part in self.subject.parts for p in part.parameters()]
        held += [p for group in optimizer.param_groups for p in group["params"]]

        def closure() -> Tensor:
            for parameter in held:
                parameter.grad = None
            loss = self.subject.loss(self.batch)
            values.append(float(loss.detach()))
            if math.isfinite(values[-1]):
                loss.backward()
            return loss

        if isinstance(optimizer, torch.optim.LBFGS):
            optimizer.step(closure)
        else:
            closure()
            if math.isfinite(values[0]):
                optimizer.step()
        return values[0]

    def search(self, recipe: Recipe) -> Attempt:
        """A race of rates, then all steps for the best of them, until one reaches the goal."""
        races = []
        for rate in RATES:
            races.append(self._kept(self.attempt(recipe, rate, min(RACE, self.steps))))
            if races[-1].reached is not None:
                return races[-1]
        ranked = sorted(races, key=lambda a: a.end)[:FULL]
        best: Attempt | None = None
        for race in ranked:
            if not math.isfinite(race.end) and best is not None:
                continue
            found = self._in_full(recipe, race.lr)
            if found.reached is not None:
                return found
            best = found if best is None or found.end < best.end else best
        assert best is not None
        return best

    def try_as_given(self, recipe: Recipe) -> Attempt:
        return self._in_full(recipe, recipe.rate)

    def _in_full(self, recipe: Recipe, rate: float | None) -> Attempt:
        found = self._kept(self.attempt(recipe, rate))
        if found.reached is None and (self.final is None or found.end < self.final[0].end):
            self.final = found, Trained(*self.subject.parts), read_loss(self.subject, self.batch)
        return found

    def _kept(self, attempt: Attempt) -> Attempt:
        self.attempts.append(attempt)
        return attempt
