"""Under gradient accumulation the recorded loss is the script's own, however it was divided."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchdoctor
from torchdoctor import signals
from torchdoctor.engine import examine
from torchdoctor.facts import LossDivisionFact
from torchdoctor.rules import baseline
from torchdoctor.run import Run

PASSES, ROWS = 4, 8

Divide = Callable[[Tensor, Tensor], Tensor]


def mean(out: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(out, y)


DIVISIONS: dict[str, Divide] = {
    "divided": lambda out, y: mean(out, y) / PASSES,
    "multiplied": lambda out, y: mean(out, y) * (1 / PASSES),
    "by a tensor": lambda out, y: mean(out, y) / torch.tensor(float(PASSES)),
    "a sum, averaged and divided": lambda out, y: F.cross_entropy(out, y, reduction="sum") / len(y) / PASSES,
    "a sum over all rows of the step": lambda out, y: F.cross_entropy(out, y, reduction="sum") / (ROWS * PASSES),
    "inside another term": lambda out, y: mean(out, y) / PASSES + 0.0 * out.sum(),
    "written out": lambda out, y: -out.log_softmax(1).gather(1, y[:, None]).mean() / PASSES,
    "cast": lambda out, y: (mean(out, y) / PASSES).double(),
}
WHOLE: dict[str, Divide] = {
    "not divided": mean,
    "a sum divided by the rows": lambda out, y: F.cross_entropy(out, y, reduction="sum") / len(y),
    "the average of two terms": lambda out, y: (mean(out, y) + mean(out, y)) / 2,
    "weighted": lambda out, y: mean(out, y) * 1.0,
}


def train(divide: Divide, steps: int, scaler: bool = False, passes: int = PASSES) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scale = torch.amp.GradScaler("cpu", enabled=scaler)
    losses = []
    for step in range(steps):
        own = []
        for _ in range(passes if step + 1 < steps else passes - 1):  # the last step of an epoch is often shorter
            x = torch.randn(ROWS, 12)
            y = x[:, :4].argmax(1)
            out = model(x)
            scale.scale(divide(out, y)).backward()
            own.append(mean(out, y).item())
        scale.step(optimizer)
        scale.update()
        optimizer.zero_grad()
        losses.append(sum(own) / len(own))
    return losses


def record(tmp_path: Path, divide: Divide, steps: int = 12, **ways: bool) -> tuple[Run, list[float]]:
    doctor = torchdoctor.watch(out=tmp_path, quiet=True)
    losses = train(divide, steps, **ways)
    doctor.close()
    run = doctor.run()
    assert run is not None
    return run, losses


@pytest.mark.parametrize("name", [*DIVISIONS, *WHOLE])
def test_the_recorded_loss_is_the_scripts_own(tmp_path: Path, name: str) -> None:
    run, losses = record(tmp_path, {**DIVISIONS, **WHOLE}[name])
    np.testing.assert_allclose(run.scalar(signals.LOSS_TRAIN).values, losses, rtol=1e-4)
    assert baseline.division(run) == (PASSES if name in DIVISIONS else 1)


def test_behind_a_scaler_and_on_counted_steps_it_is_the_same(tmp_path: Path) -> None:
    run, losses = record(tmp_path, DIVISIONS["divided"], steps=10, scaler=True)
    np.testing.assert_allclose(run.scalar(signals.LOSS_TRAIN).values, losses, rtol=1e-4)
    run, losses = record(tmp_path, DIVISIONS["divided"], steps=150)
    np.testing.assert_allclose(run.scalar(signals.LOSS_TRAIN).values, losses, rtol=1e-4)


def test_a_loss_that_is_divided_needs_accumulation(tmp_path: Path) -> None:
    doctor = torchdoctor.watch(out=tmp_path, quiet=True)
    losses = train(DIVISIONS["divided"], 6, passes=2)
    doctor.close()
    run = doctor.run()
    assert run is not None and not run.facts(LossDivisionFact)
    np.testing.assert_allclose(run.scalar(signals.LOSS_TRAIN).values, np.array(losses) / PASSES, rtol=1e-4)


def test_division_does_not_count_as_a_gradient_too_large(tmp_path: Path) -> None:
    for name in ("divided", "not divided"):
        run, _ = record(tmp_path, {**DIVISIONS, **WHOLE}[name], steps=40)
        scales = [f for f in examine(run).findings if f.name == "unintended-gradient-scale"]
        assert bool(scales) == (name == "not divided")


def test_batches_left_for_the_next_epoch_change_no_divisor(tmp_path: Path) -> None:
    """A loop that counts from 0 in each epoch steps after 4 + 2 backward passes there, each divided by 4."""
    torch.manual_seed(0)
    model = nn.Linear(12, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    losses, own = [], []
    with torchdoctor.watch(model, optimizer, out=tmp_path, quiet=True) as doctor:
        for i in [*range(14), *range(14), *range(14)]:
            x = torch.randn(ROWS, 12)
            loss = mean(model(x), x[:, :4].argmax(1)) / PASSES
            loss.backward()
            own.append(loss.item() * PASSES)
            if (i + 1) % PASSES == 0:
                optimizer.step()
                optimizer.zero_grad()
                losses.append(sum(own) / len(own))
                own = []
    run = doctor.run()
    assert run is not None
    recorded = run.scalar(signals.LOSS_TRAIN).values
    np.testing.assert_allclose(recorded[: len(losses)], losses, rtol=1e-5)
    assert baseline.division(run) == PASSES
