"""Can the model learn one batch by heart? If not, something is broken that more data will not mend.

Karpathy, "A Recipe for Training Neural Networks" (2019): overfit a single batch of a few examples, and verify that the
lowest loss there is can be reached.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer

from torchdoctor.attach.guard import unseen
from torchdoctor.errors import UsageError
from torchdoctor.instruments.mismatch import explained
from torchdoctor.instruments.one_batch import one_batch, samples_in
from torchdoctor.instruments.one_look.gradients import gradient_summary
from torchdoctor.instruments.overfitting.capacity import conflicts, more_steps, too_small, unexplained
from torchdoctor.instruments.overfitting.case import Case, Cause, goal_of
from torchdoctor.instruments.overfitting.causality import floor_of_beginnings
from torchdoctor.instruments.overfitting.dropout import without_dropout
from torchdoctor.instruments.overfitting.gradients import all_zero, blocked, no_graph, not_finite, rate
from torchdoctor.instruments.overfitting.heads import (
    dead_output,
    falls_with_larger_scores,
    unbounded,
    wrong_head,
)
from torchdoctor.instruments.overfitting.loss_reading import Floor, Reading, answers_right, floor_of_loss, read_loss
from torchdoctor.instruments.overfitting.memorising import (
    FULL,
    RACE,
    RATES,
    Attempt,
    Memoriser,
    Recipe,
    own_recipe,
    recipe_of,
)
from torchdoctor.instruments.overfitting.scale import unscaled
from torchdoctor.instruments.progress import progress_bar
from torchdoctor.instruments.result import Result
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import StepFn, Subject, to_device
from torchdoctor.instruments.tables import listed
from torchdoctor.plots.chart import LOG
from torchdoctor.plots.figure import mark_level, new_figure
from torchdoctor.plots.palette import BAND, BLUE, GREEN, GREY, RED
from torchdoctor.rules.curves import figure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STEPS = 300
NEAR = 2.0
"""Level above the floor, over that of the goal, up to which a batch whose answers are all right counts as memorised."""
GUESSES = ("capacity-too-low", "unexplained")
"""Reasons that are named where nothing else fits, and are none where every answer is right."""
FIX = "Give it more steps (steps=...); look for what slows it down, such as a deep stack without skip connections."
CAUSES = (blocked, rate, wrong_head, conflicts, dead_output, unscaled, more_steps, too_small)


@dataclass(frozen=True)
class OverfitResult(Result):
    success: bool
    reason: Cause | None
    """why it failed"""
    losses: list[float]
    """of the best attempt, one a step"""
    steps: int | None
    """until the goal was reached"""
    goal: float
    floor: float
    """the least that the loss can be"""
    floor_known: bool
    floor_words: str
    guess: float | None
    """the loss of one answer for all samples, where it is known"""
    optimizer: str
    lr: float | None
    attempts: list[Attempt]
    samples: int | None
    ruled_out: list[str]
    notes: list[str]

    def __bool__(self) -> bool:
        return self.success

    @property
    def end(self) -> float:
        return self.losses[-1] if self.losses else math.nan

    def __str__(self) -> str:
        what = f"this batch of {self.samples} samples" if self.samples else "this batch"
        with_ = f"{self.optimizer}, lr={self.lr:g}" if self.lr is not None else self.optimizer
        start = figure(self.losses[0]) if self.losses else "unknown"
        if self.success:
            lines = [f"The model memorises {what}: loss {start} -> {figure(self.end)} in {self.steps} steps ({with_})."]
        else:
            end = f", it came to {figure(min(self.losses))}" if len(self.losses) > 1 else ""
            could = "did not" if self.reason is not None and self.reason.name == "unexplained" else "cannot"
            lines = [f"The model {could} memorise {what}: the loss begins at {start}{end}."]
        if self.reason is not None:
            sure = "" if self.reason.proven or self.reason.name == "unexplained" else "probably "
            lines.append(f"  why     {sure}{self.reason.name}: {self.reason.text}")
            lines.append(f"  fix     {self.reason.fix}")
        if math.isfinite(self.goal):
            lines.append(f"  goal    {figure(self.goal)} or less")
            lines.append(f"  floor   {figure(self.floor)} ({self.floor_words})")
        if self.guess is not None and math.isfinite(self.goal):
            lines.append(f"  guess   {figure(self.guess)} is the loss of one answer for all samples")
        lines += [f"  not it  {text}" for text in self.ruled_out]
        return "\n".join([*lines, *(f"  note    {text}" for text in self.notes)])

    def plot(self) -> Figure:
        if self.success:
            title = f"One batch is memorised in {self.steps} steps: {figure(self.losses[0])} to {figure(self.end)}"
        else:
            title = f"One batch is not memorised: {self.reason.name if self.reason else 'the loss stays up'}"
        seen = [self.goal, *self.losses, *(v for attempt in self.attempts for v in attempt.losses)]
        positive = all(v > 0 for v in seen if math.isfinite(v))
        chart = new_figure(title, "step", "loss on the batch", yaxis=LOG if positive else {})
        for attempt in self.attempts:
            if attempt.losses is not self.losses:
                name = f"{attempt.optimizer}, lr={attempt.lr:g}" if attempt.lr is not None else attempt.optimizer
                chart.add_scatter(y=attempt.losses, mode="lines", name=name, line={"color": GREY, "width": 1})
        colour = BLUE if self.success else RED
        chart.add_scatter(y=self.losses, mode="lines", name="best attempt", line={"color": colour, "width": 3})
        if math.isfinite(self.goal):
            mark_level(chart, self.goal, "goal", GREEN)
            low = self.floor if not positive or self.floor > 0 else self.goal / 10
            chart.add_hrect(min(low, self.goal), self.goal, fillcolor=BAND, line_width=0, layer="below")
        if self.guess is not None:
            mark_level(chart, self.guess, "one answer for all", GREY, "dot")
        return chart


@unseen()
@explained
def overfit_batch(
    model: nn.Module,
    batch_or_loader: Any,
    loss_fn: Callable[..., Any] | None = None,
    *,
    step_fn: StepFn | None = None,
    optimizer: Optimizer | Callable[..., Optimizer] | None = None,
    lr: float | None = None,
    steps: int = STEPS,
    target: float | None = None,
    floor: float | None = None,
    dropout: bool = False,
    autocast: torch.dtype | None = None,
    progress: bool = True,
) -> OverfitResult:
    """Trains on one batch until it is known by heart, and says why where that fails; then everything is as it was.

        result = torchdoctor.overfit_batch(model, train_loader, nn.CrossEntropyLoss())
        assert result.success, result

    Without `optimizer` and `lr` it is Adam, at the best of several rates. `optimizer` may be an optimizer, a class or a
    function of parameters; with `lr` it is tried as it is first. `target` is the loss to reach, `floor` the least that
    the loss can be; both are worked out where the loss is one of torch's own. Dropout is off unless `dropout=True`.
    The model trains in training mode; a model in eval() is put into it for the time.
    """
    if steps < 1:
        raise UsageError(f"steps={steps}: at least one step is needed")
    if lr is not None and not lr > 0:
        raise UsageError(f"lr={lr} does not move anything; a learning rate is above 0")
    subject = Subject(model, loss_fn, step_fn=step_fn, autocast=autocast)
    return memorise(
        subject,
        one_batch(batch_or_loader),
        optimizer=optimizer,
        lr=lr,
        steps=steps,
        target=target,
        floor=floor,
        dropout=dropout,
        progress=progress,
    )


def memorise(
    subject: Subject,
    batch: Any,
    *,
    optimizer: Optimizer | Callable[..., Optimizer] | None = None,
    lr: float | None = None,
    steps: int = STEPS,
    target: float | None = None,
    floor: float | None = None,
    dropout: bool = False,
    progress: bool = True,
) -> OverfitResult:
    """The same for a subject, however its loss is computed."""
    model, batch = subject.model, to_device(batch, subject.device)
    others = (optimizer,) if isinstance(optimizer, Optimizer) else ()
    total = steps if lr is not None else RACE * len(RATES) + FULL * steps
    with (
        untouched(*subject.parts, *others),
        torch.inference_mode(False),
        torch.enable_grad(),
        contextlib.nullcontext() if dropout else without_dropout(model),
    ):
        if not model.training:
            model.train()
        noisy = _is_noisy(subject, batch)
        with (
            without_dropout(model, functions=True) if noisy and not dropout else contextlib.nullcontext(),
            progress_bar("memorising one batch", total, progress) as advance,
        ):
            noisy = noisy and _is_noisy(subject, batch)
            bench = Memoriser(subject, batch, others, steps, advance)
            return _Session(bench, recipe_of(model, optimizer, lr), target, floor, noisy).run()


class _Session:
    """The order of things: look at the first loss, try, and where that fails ask for the cause."""

    def __init__(
        self, bench: Memoriser, recipe: Recipe, target: float | None, floor: float | None, noisy: bool
    ) -> None:
        self.bench, self.recipe, self.target, self.noisy = bench, recipe, target, noisy
        self.subject, self.batch, self.model = bench.subject, bench.batch, bench.subject.model
        self.given_floor = floor
        self.floor = Floor(0.0, False, "unknown", None)
        self.goal = math.nan

    def run(self) -> OverfitResult:
        start = read_loss(self.subject, self.batch)
        if not math.isfinite(start.value):
            return self._failed(start, not_finite(self.model, start, self.batch))
        if not start.loss.requires_grad:
            return self._failed(start, no_graph(self.model, start))
        self.floor = self._floor(start)
        self.goal = self._goal(start.value)
        self.bench.goal = self.goal
        if (cause := unbounded(start, self.floor.factor)) is not None:
            return self._failed(start, cause)
        self._gradients(start)
        if start.value > self.goal and not any(p.state == "ok" for p in self.summary.parameters):
            return self._failed(start, all_zero(self.summary))
        best = self.bench.try_as_given(self.recipe) if self.recipe.given else self.bench.search(self.recipe)
        if best.reached is not None:
            return self._result(True, best, None, [])
        return self._explained(start, best)

    def _gradients(self, start: Reading) -> None:
        self.bench.put_back()
        for parameter in self.model.parameters():
            parameter.grad = None
        if not self.model.training:
            self.model.train()
        self.subject.loss(self.batch).backward()
        self.summary = gradient_summary(self.model)

    def _floor(self, start: Reading) -> Floor:
        found = floor_of_loss(start)
        if not found.known and start.calls:
            self.bench.attempt(own_recipe(self.model), RATES[1], 2)
            found = floor_of_loss(start, read_loss(self.subject, self.batch))
            self.bench.put_back()
        if self.given_floor is not None:
            return Floor(self.given_floor, True, "as given", found.guess, found.factor)
        ahead = floor_of_beginnings(self.subject, start) if found.known else None
        if ahead is not None and ahead * found.factor > found.value:
            words = "sequences that begin alike and go on differently, for a model that only looks back"
            return Floor(ahead * found.factor, True, words, found.guess, found.factor)
        return found

    def _goal(self, start: float) -> float:
        if self.target is not None:
            return self.target
        return goal_of(self.floor, start)

    def _explained(self, start: Reading, best: Attempt) -> OverfitResult:
        assert self.bench.final is not None
        _, weights, end = self.bench.final
        case = Case(
            subject=self.subject,
            batch=self.batch,
            recipe=self.recipe,
            memoriser=self.bench,
            floor=self.floor,
            goal=self.goal,
            start=start,
            end=end,
            weights=weights,
            best=best,
            gradients=self.summary,
            noisy=self.noisy,
        )
        causes: list[Cause] = []
        for examine in CAUSES:
            found = examine(case)
            if found is not None:
                causes.append(found)
                if found.proven:
                    break
        proven = [c for c in causes if c.proven]
        reason = (proven or causes or [unexplained(case)])[0]
        if reason.name not in GUESSES or not answers_right(end):
            return self._result(False, best, reason, case.ruled_out)
        right = f"all predictions are correct, but the loss is still {figure(best.best)} (goal: {figure(self.goal)})"
        above, missed = best.best - self.floor.value, self.goal - self.floor.value
        if falls_with_larger_scores(case) and above > NEAR * missed:
            reason = Cause(
                "unexplained", f"{right}; larger scores would lower it, but training does not get there", FIX
            )
            return self._result(False, best, reason, case.ruled_out)
        # Scores with a bound, such as cosines over a temperature, hold a loss up that has nothing left to learn.
        known = replace(self.floor, known=False, words=f"{self.floor.words}, for scores without a bound")
        self.floor, best = known, replace(best, reached=len(best.losses) - 1)
        result = self._result(True, best, None, [])
        return replace(result, notes=[*result.notes, right])

    def _failed(self, start: Reading, cause: Cause) -> OverfitResult:
        """Before anything was tried: a goal would mean nothing."""
        self.goal = math.nan
        return self._result(False, Attempt(self.recipe.name, self.recipe.rate, [start.value]), cause, [])

    def _result(self, success: bool, best: Attempt, reason: Cause | None, ruled_out: list[str]) -> OverfitResult:
        return OverfitResult(
            success=success,
            reason=reason,
            losses=best.losses,
            steps=best.reached,
            goal=self.goal,
            floor=self.floor.value,
            floor_known=self.floor.known,
            floor_words=self.floor.words,
            guess=self.floor.guess,
            optimizer=best.optimizer,
            lr=best.lr,
            attempts=self.bench.attempts,
            samples=samples_in(self.batch),
            ruled_out=ruled_out,
            notes=self._notes(best, success),
        )

    def _notes(self, best: Attempt, success: bool) -> list[str]:
        found = []
        if self.noisy:
            found.append("the loss is random even without dropout (stochastic depth, sampling?); levels are rough")
        if self.target is None and not self.floor.known and best.losses and best.losses[0] <= 0:
            found.append("the loss begins below zero and its floor is not known: hand over floor= or target=")
        cut = [*self.summary.missing, *self.summary.zero] if success else []
        if cut:
            found.append(f"{len(cut)} parameters get no gradient, as the rest does without them: {listed(cut)}")
        if success and self.floor.guess is not None and self.floor.guess <= self.floor.value + 1e-9:
            found.append("all samples have the same target, so a constant answer does: take a batch with several")
        return found


def _is_noisy(subject: Subject, batch: Any) -> bool:
    """Whether the same weights give two losses for the same batch. With a graph: the step may need it, as where it
    takes the gradient of the outputs."""
    first, second = (float(subject.loss(batch).detach()) for _ in range(2))
    return abs(first - second) > 1e-5 * (abs(first) + 1e-8)
