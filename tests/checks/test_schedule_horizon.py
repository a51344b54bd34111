from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler as lrs
from torch.optim.lr_scheduler import LRScheduler

from checks.programs import HEALTHY
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.check import Outcome
from torchdoctor.checks.schedule_horizon import perform
from torchdoctor.findings import Severity
from torchdoctor.instruments.subject import Subject

NAME = "schedule-horizon"
EPOCHS, BATCHES = 20, 50
UPDATES = EPOCHS * BATCHES
Make = Callable[[torch.optim.Optimizer], Any]


def _outcome(make: Make, unit: str | None = None, epochs: int = EPOCHS, batches: int = BATCHES) -> Outcome:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    bench = Bench(
        Subject(model, nn.MSELoss()),
        [],
        train_loader=range(batches),
        optimizers=[optimizer],
        schedulers=[make(optimizer)],
        epochs=epochs,
        step_of_schedule=unit,
    )
    before = optimizer.param_groups[0]["lr"]
    with bench.experiment():
        outcome = perform(bench)
    assert optimizer.param_groups[0]["lr"] == before
    return outcome


def _warm(optimizer: torch.optim.Optimizer, warmup: int, total: int) -> LRScheduler:
    up = lrs.LinearLR(optimizer, 0.01, total_iters=warmup)
    return lrs.SequentialLR(optimizer, [up, lrs.CosineAnnealingLR(optimizer, total - warmup)], [warmup])


FITTING: dict[str, tuple[Make, str]] = {
    "cosine by epochs": (lambda o: lrs.CosineAnnealingLR(o, EPOCHS), "epoch"),
    "cosine by updates": (lambda o: lrs.CosineAnnealingLR(o, UPDATES), "update"),
    "one cycle": (lambda o: lrs.OneCycleLR(o, 0.1, UPDATES), "update"),
    "steps": (lambda o: lrs.StepLR(o, 6), "epoch"),
    "milestones": (lambda o: lrs.MultiStepLR(o, [10, 15]), "epoch"),
    "milestones by updates": (lambda o: lrs.MultiStepLR(o, [500, 800]), "update"),
    "warm-up and cosine": (lambda o: _warm(o, 50, UPDATES), "update"),
    "warm-up and cosine by epochs": (lambda o: _warm(o, 2, EPOCHS), "epoch"),
    "lambda": (lambda o: lrs.LambdaLR(o, lambda s: min(1, s / 100) * max(0.0, 1 - s / UPDATES)), "update"),
    "warm-up alone": (lambda o: lrs.LinearLR(o, 0.1, total_iters=5), "epoch"),
    "chained": (
        lambda o: lrs.ChainedScheduler([lrs.LinearLR(o, 0.1, total_iters=3), lrs.ExponentialLR(o, 0.9)]),
        "epoch",
    ),
    "restarts": (lambda o: lrs.CosineAnnealingWarmRestarts(o, 100), "update"),
    "cyclic": (lambda o: lrs.CyclicLR(o, 0.01, 0.1, 100), "update"),
    "plateau": (lambda o: lrs.ReduceLROnPlateau(o, patience=3), "epoch"),
    "exponential": (lambda o: lrs.ExponentialLR(o, 0.9), "epoch"),
}


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("kind", FITTING)
def test_quiet(kind: str, told: bool) -> None:
    make, unit = FITTING[kind]
    assert _outcome(make, unit if told else None).passed


OTHERWISE = {
    "cosine by epochs": "update",
    "cosine by updates": "epoch",
    "one cycle": "epoch",
    "steps": "update",
    "milestones": "update",
    "milestones by updates": "epoch",
    "warm-up and cosine": "epoch",
    "lambda": "epoch",
    "exponential": "update",
}


@pytest.mark.parametrize("kind", OTHERWISE)
def test_stepped_in_the_other_unit(kind: str) -> None:
    outcome = _outcome(FITTING[kind][0], OTHERWISE[kind])
    assert outcome.passed is False and outcome.diagnosis == "scheduler-misuse"
    assert outcome.severity is Severity.ERROR and f"after every {FITTING[kind][1]}" in outcome.text
    assert outcome.fix is not None and "scheduler.step()" in (outcome.fix.listing or "")


MISFITS: dict[str, tuple[Make, str, str]] = {
    "a cycle that is over": (lambda o: lrs.OneCycleLR(o, 0.1, UPDATES // 2), "update", "scheduler-misuse"),
    "a cosine that is too long": (lambda o: lrs.CosineAnnealingLR(o, 100), "epoch", "scheduler-misuse"),
    "a cosine that climbs again": (lambda o: lrs.CosineAnnealingLR(o, 14), "epoch", "scheduler-misuse"),
    "a warm-up without end": (
        lambda o: lrs.LambdaLR(o, lambda s: min(1.0, s / 5000)),
        "update",
        "scheduler-misuse",
    ),
    "a line through zero": (lambda o: lrs.LambdaLR(o, lambda s: 1 - s / 600), "update", "scheduler-misuse"),
    "a line that stays at zero": (lambda o: lrs.PolynomialLR(o, 600), "update", "scheduler-misuse"),
    "a fall that is too fast": (lambda o: lrs.ExponentialLR(o, 0.3), "epoch", "learning-rate-decayed-too-early"),
}


@pytest.mark.parametrize("kind", MISFITS)
def test_of_another_length(kind: str) -> None:
    make, unit, diagnosis = MISFITS[kind]
    outcome = _outcome(make, unit)
    assert outcome.passed is False and outcome.diagnosis == diagnosis


def test_neither_unit_fits() -> None:
    outcome = _outcome(lambda o: lrs.CosineAnnealingLR(o, 7000))
    assert outcome.passed is False and outcome.severity is Severity.WARNING


def test_patience() -> None:
    assert _outcome(lambda o: lrs.ReduceLROnPlateau(o, patience=10), "update").diagnosis == "scheduler-misuse"
    assert _outcome(lambda o: lrs.ReduceLROnPlateau(o, patience=30), "epoch").severity is Severity.INFO


@pytest.mark.parametrize("make", [lambda o: lrs.StepLR(o, 10 * UPDATES), lambda o: lrs.MultiStepLR(o, [9 * UPDATES])])
@pytest.mark.parametrize("unit", ["update", "epoch"])
def test_a_schedule_that_never_acts_is_not_as_long_as_the_run(make: Make, unit: str) -> None:
    outcome = _outcome(make, unit)
    assert (outcome.passed, outcome.severity) == (False, Severity.INFO) and "no effect" in outcome.text


@pytest.mark.parametrize("kind", ["cosine", "lambda", "one cycle"])
def test_a_run_of_a_million_updates(kind: str) -> None:
    length = 20 * 50_000
    make: Make = {
        "cosine": lambda o: lrs.CosineAnnealingLR(o, length),
        "lambda": lambda o: lrs.LambdaLR(o, lambda s: 1 - s / length),
        "one cycle": lambda o: lrs.OneCycleLR(o, 0.1, length),
    }[kind]
    assert _outcome(make, "update", batches=50_000).passed
    assert _outcome(make, "epoch", batches=50_000).diagnosis == "scheduler-misuse"
    if kind != "lambda":
        assert _outcome(make, "update", batches=120_000).diagnosis == "scheduler-misuse"


@pytest.mark.parametrize("kind", HEALTHY)
def test_in_the_list(kind: str) -> None:
    program = HEALTHY[kind]()
    assert program.outcome(NAME).passed is None
    schedule = lrs.CosineAnnealingLR(program.optimizer, 30)
    assert program.outcome(NAME, scheduler=schedule).passed is None
    assert program.outcome(NAME, scheduler=schedule, epochs=30).passed
    assert program.outcome(NAME, scheduler=schedule, epochs=5).passed is not True
