"""The learning rate lies in the range in which the loss falls, found by training for a moment with a growing one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import PROCEDURE, Check, Outcome, failed, passed, said_before, skipped
from torchdoctor.checks.cost.run_plan import updates_of
from torchdoctor.checks.model.freshness import is_fresh
from torchdoctor.checks.repeats.schedule_reading import read
from torchdoctor.checks.repeats.updating import train, update, wants_closure
from torchdoctor.errors import UsageError
from torchdoctor.findings import Fix, Severity
from torchdoctor.instruments.learning_rate.finding import LEAST_STEPS, Plan, sweep_rates
from torchdoctor.instruments.learning_rate.result import LearningRates
from torchdoctor.instruments.state import untouched
from torchdoctor.rules.curves import figure
from torchdoctor.rules.data import unnormalized_inputs

CHECK = Check(
    name="useful-rate",
    asks="the learning rate is in its useful range",
    part=PROCEDURE,
    order=70,
    quick=False,
    diagnoses=("learning-rate-too-high", "learning-rate-too-low"),
)
STEPS, LEAST = 50, 2 * LEAST_STEPS
"""Of a sweep; the instrument alone takes three of a hundred, for a number to be set and not a limit to be kept."""
SECONDS, MOST_SECONDS = 3.0, 15.0
"""That the sweeps may take; a model whose steps are slow gets fewer of them, or none."""
COST = 2.5
"""Of a sweep and the quick one before it, in updates a step: there is a second forward pass beside the update."""
FAR_BELOW = 1000.0
"""Recommended rate over the one that is set. The useful range begins about a decade below the recommendation, and two
more decades are left to those who know what they do."""
UPDATES = 16
"""At the rate itself, to see what it does."""
RISES = 1.5
"""Loss after these updates over the first: it has left the range in which it would come back."""
ONE_STEP = "the test is made for one optimizer that makes one gradient step at a time"
LITTLE = 0.02
"""Of the fall that the recommended rate gives in as many updates."""


def perform(bench: Bench) -> Outcome:
    if len(bench.optimizers) != 1:
        return skipped(ONE_STEP)
    if not bench.train:
        return skipped("there is no batch to train on")
    unscaled = said_before(bench, unnormalized_inputs.RULE.name, Severity.WARNING)
    if unscaled is not None:
        return skipped(f"the data are to be scaled first, as {unscaled[0]} says: after that another rate is useful")
    optimizer = bench.optimizers[0]
    rate = highest_rate(bench)
    if rate <= 0:
        return skipped("the learning rate is zero")
    steps = _affordable(bench)
    if wants_closure(optimizer):
        return skipped(ONE_STEP)
    if steps is None:
        return skipped("a step takes so long that the test would take more than a quarter of a minute")
    plan = Plan(
        low=min(1e-7, rate / 10),
        high=max(10.0, 10 * rate),
        steps=steps,
        seeds=(0,),
        accumulate=max(1, bench.accumulation),
        scaler=next((s for s in bench.scalers if s.is_enabled()), None),
        restore=tuple(bench.schedulers),
    )
    try:
        found = sweep_rates(bench.subject, optimizer, _Shuffled(bench.train), plan, progress=False)
    except UsageError as error:
        return skipped(str(error))
    if found.recommended is None:
        return skipped("the range test does not tell: no rate moves the loss beyond its noise in a moment")
    if found.divergence is not None and rate >= found.divergence:
        return _too_high(bench, optimizer, rate, found)
    if rate * FAR_BELOW < found.recommended and bench.sets_rates:
        return skipped(f"it is {figure(rate)} in the first steps, and the loop sets it anew as it goes")
    if rate * FAR_BELOW < found.recommended:
        return _too_low(bench, optimizer, rate, found)
    return _useful(rate, found)


class _Shuffled:
    """The batches at hand in another order every time."""

    def __init__(self, batches: list[Any]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Any]:
        return (self._batches[i] for i in torch.randperm(len(self._batches)).tolist())


def highest_rate(bench: Bench) -> float:
    """Of the largest group; over the run, where a schedule raises it."""
    rates = [float(group["lr"]) for optimizer in bench.optimizers for group in optimizer.param_groups]
    calls = updates_of(bench) if bench.step_of_schedule != "epoch" else bench.epochs
    for scheduler in bench.schedulers:
        try:
            reading = read(scheduler, calls or 1_000)
        except UsageError:
            continue
        rates += [reading.peak] if reading is not None else []
    return max(rates, default=0.0)


def _affordable(bench: Bench) -> int | None:
    """Steps a sweep, by the time that one takes."""
    with untouched(*bench.subject.parts, *bench.optimizers, *bench.schedulers, *bench.scalers):
        update(bench, bench.train[:1])
        begun = perf_counter()
        update(bench, bench.train[:1])
        cost = (perf_counter() - begun) * max(1, bench.accumulation)
    if LEAST * COST * cost > MOST_SECONDS:
        return None
    return min(STEPS, max(LEAST, int(SECONDS / COST / max(cost, 1e-9))))


def _course(bench: Bench, optimizer: Optimizer, rate: float) -> list[float]:
    """Losses of a few updates at that rate, and the loss after them."""
    with untouched(*bench.subject.parts, *bench.optimizers, *bench.schedulers, *bench.scalers):
        largest = max(float(group["lr"]) for group in optimizer.param_groups)
        for group in optimizer.param_groups:
            value = rate * float(group["lr"]) / largest if largest > 0 else rate
            _set(group, value)
        before = _level(bench)
        losses = train(replace(bench, schedulers=[]), UPDATES)
        return [before, *losses, _level(bench)]


def _set(group: dict[str, Any], rate: float) -> None:
    if isinstance(group["lr"], Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def _level(bench: Bench) -> float:
    """The mean loss of some batches as they are."""
    losses = [float(bench.subject.loss(batch).detach()) for batch in bench.train[:4]]
    return sum(losses) / len(losses)


def _too_high(bench: Bench, optimizer: Optimizer, rate: float, found: LearningRates) -> Outcome:
    """Told only where a few updates at that rate show it, too."""
    losses = _course(bench, optimizer, rate)
    worst = max(losses[1:]) if all(map(math.isfinite, losses)) else math.inf
    if worst <= RISES * abs(losses[0]) and losses[-1] <= losses[0]:
        return _useful(rate, found, f"; {UPDATES} updates at the rate itself lower the loss all the same")
    warmed = rate > max(float(group["lr"]) for group in optimizer.param_groups)
    reached = "NaN or Inf" if not math.isfinite(worst) else figure(worst)
    return failed(
        f"the learning rate, {figure(rate)}, is in the range in which the loss diverges (from "
        f"{figure(found.divergence or rate)} on): {UPDATES} updates take it from {figure(losses[0])} to {reached}"
        + ("; a warm-up that ends there only delays it" if warmed else ""),
        "learning-rate-too-high",
        Fix("Lower the rate.", _line(optimizer, found)),
        severity=Severity.WARNING if warmed else Severity.ERROR,
        evidence=(f"the range test recommends {figure(found.recommended or 0.0)}",),
        **_figures(rate, found),
    )


def _too_low(bench: Bench, optimizer: Optimizer, rate: float, found: LearningRates) -> Outcome:
    recommended = found.recommended or rate
    mine, best = _course(bench, optimizer, rate), _course(bench, optimizer, recommended)
    fall, possible = mine[0] - mine[-1], best[0] - best[-1]
    total = updates_of(bench)
    in_time = total is not None and fall / UPDATES * total >= possible
    if not possible > 0 or fall > LITTLE * possible or in_time:
        slower = f"; {UPDATES} updates lower the loss by {figure(fall)}, those at the other by {figure(possible)}"
        return _useful(rate, found, slower)
    tuned = is_fresh(bench) is False
    return failed(
        f"the learning rate, {figure(rate)}, is {figure(recommended / rate)} times below the useful one, "
        f"{figure(recommended)}: {UPDATES} updates lower the loss by {figure(max(fall, 0.0))}, where that one lowers "
        f"it by {figure(possible)}" + ("; for fine-tuning that may be meant" if tuned else ""),
        "learning-rate-too-low",
        Fix("Raise the rate.", _line(optimizer, found)),
        severity=Severity.INFO if tuned else Severity.WARNING,
        evidence=(f"the range test recommends {figure(recommended)}",),
        **_figures(rate, found),
    )


def _useful(rate: float, found: LearningRates, beside: str = "") -> Outcome:
    end = f"it diverges from {figure(found.divergence)} on" if found.divergence is not None else "none diverges"
    best = f"{figure(found.recommended or rate)} is recommended" if found.trusted else "which is best is in doubt"
    return passed(f"{figure(rate)}; {best}, {end}{beside}", **_figures(rate, found))


def _figures(rate: float, found: LearningRates) -> dict[str, Any]:
    return {"rate": rate, "recommended": found.recommended, "divergence": found.divergence}


def _line(optimizer: Optimizer, found: LearningRates) -> str:
    return f"optimizer = torch.optim.{type(optimizer).__name__}(model.parameters(), lr={found.recommended:.1g})"
