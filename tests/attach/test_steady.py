"""Steps that are only counted: what is written all the same, and what ends the counting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchdoctor
from torchdoctor import signals
from torchdoctor.attach.governor import Governor
from torchdoctor.attach.session import Session
from torchdoctor.facts import NonfiniteFact
from torchdoctor.run import Run

STEPS = 120


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is taken for one so short that a full one comes only now and then."""
    monkeypatch.setattr(Governor, "_detail_interval", lambda *_: 16)


@contextmanager
def watching(folder: Path) -> Iterator[Session]:
    with torchdoctor.watch(out=folder, quiet=True) as doctor:
        yield doctor._session


def recorded(session: Session) -> Run:
    return session.record.stored_run()


class Training:
    def __init__(self, momentum: float = 0.0) -> None:
        torch.manual_seed(0)
        self.x, self.y = torch.randn(64, 8), torch.randint(0, 3, (64,))
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=momentum)

    def loss(self) -> Tensor:
        return F.cross_entropy(self.model(self.x), self.y)

    def step(self) -> float:
        self.optimizer.zero_grad()
        loss = self.loss()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def counted(session: Session, steps: int, step: Callable[[], float]) -> tuple[list[float], int]:
    """Losses, and how many of the steps were only counted."""
    losses, count = [], 0
    for _ in range(steps):
        count += session.steady.on
        losses.append(step())
    return losses, count


def test_losses_rates_and_times_of_every_step(tmp_path: Path) -> None:
    training = Training()
    schedule = torch.optim.lr_scheduler.ExponentialLR(training.optimizer, 0.99)

    def step() -> float:
        loss = training.step()
        schedule.step()
        return loss

    with watching(tmp_path) as session:
        losses, count = counted(session, STEPS, step)
    run = recorded(session)
    assert count > STEPS / 2
    np.testing.assert_allclose(run.scalar(signals.LOSS_TRAIN).values, losses, rtol=1e-6)
    np.testing.assert_allclose(
        run.scalar(signals.LEARNING_RATE, "0.0").values, 0.1 * 0.99 ** np.arange(STEPS), rtol=1e-5
    )
    assert run.scalar(signals.TIME_STEP).steps.tolist() == list(range(1, STEPS))
    assert run.phase is not None
    assert (run.phase.updates, run.phase.backwards, run.phase.passes_unknown) == (STEPS, STEPS, 0)
    cleared = run.scalar(signals.GRADIENTS_CLEARED)
    assert 20 < len(cleared.values) < STEPS
    assert (cleared.values == 1).all()


def test_gradients_that_are_no_longer_cleared_are_seen(tmp_path: Path) -> None:
    training = Training()
    clear = [True]

    def step() -> float:
        if clear[0]:
            training.optimizer.zero_grad()
        loss = training.loss()
        loss.backward()
        training.optimizer.step()
        return loss.item()

    with watching(tmp_path) as session:
        counted(session, 60, step)
        clear[0] = False
        counted(session, 60, step)
    cleared = recorded(session).scalar(signals.GRADIENTS_CLEARED)
    assert (cleared.values[cleared.steps < 60] == 1).all()
    late = cleared.values[cleared.steps > 61]
    assert len(late)
    assert (late == 0).all()


@pytest.mark.parametrize("how", ["eval", "no_grad", "set_grad_enabled", "by hand"])
def test_a_validation_is_seen_whenever_it_comes(how: str, tmp_path: Path) -> None:
    training = Training()
    expected = []

    def validate() -> None:
        if how == "eval":
            training.model.eval()
            with torch.no_grad():
                value = training.loss()
            training.model.train()
        elif how == "no_grad":
            with torch.no_grad():
                value = training.loss()
        elif how == "set_grad_enabled":
            torch.set_grad_enabled(False)
            value = training.loss()
            torch.set_grad_enabled(True)
        else:
            with torch.no_grad():
                loss = -training.model(training.x).log_softmax(1).gather(1, training.y[:, None]).mean()
                expected.append(loss.item())
            return
        expected.append(value.item())

    with watching(tmp_path) as session:
        for _ in range(4):
            assert counted(session, 31, training.step)[1] > 5 or session.context.step < 40
            validate()
        training.step()
    run = recorded(session)
    seen = run.scalar(signals.LOSS_VALIDATION)
    np.testing.assert_allclose(seen.values, expected, rtol=1e-5)
    assert seen.steps.tolist() == [31, 62, 93, 124]
    assert len(run.scalar(signals.LOSS_TRAIN)) == 125


def test_accumulation_is_counted_as_such(tmp_path: Path) -> None:
    training = Training()

    def step() -> float:
        training.optimizer.zero_grad()
        for _ in range(3):
            loss = training.loss() / 3
            loss.backward()
        nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)
        training.optimizer.step()
        return 3 * loss.item()

    with watching(tmp_path) as session:
        losses, count = counted(session, STEPS, step)
    run = recorded(session)
    assert count > STEPS / 3
    np.testing.assert_allclose(run.scalar(signals.LOSS_TRAIN).values, losses, rtol=1e-6)
    assert run.phase is not None
    assert (run.phase.updates, run.phase.backwards) == (STEPS, 3 * STEPS)
    assert len(run.scalar(signals.CLIP_NORM)) == STEPS
    assert (run.scalar(signals.GRADIENTS_CLEARED).values == 1).all()


@pytest.mark.parametrize("role", ["input", "target"])
def test_what_turned_the_loss_to_nan_is_still_named(role: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(64, 8), torch.randn(64, 1)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> float:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    with watching(tmp_path) as session:
        counted(session, 60, step)
        while not session.steady.on:
            step()
        (x if role == "input" else y)[3, 0] = float("nan")
        at = session.context.step
        step()
    facts = [s for s in recorded(session).seen if isinstance(s.fact, NonfiniteFact) and s.fact.role == role]
    assert [s.step for s in facts] == [at]


def test_a_second_optimizer_and_a_closure_are_looked_at_in_full(tmp_path: Path) -> None:
    first, second = Training(), Training(momentum=0.9)
    with watching(tmp_path) as session:
        counted(session, 60, first.step)
        for _ in range(6):
            first.step()
            second.step()
        assert not session.steady.on
        assert session.loop.at_work == 2
    assert "1" in recorded(session).optimizers


def test_a_loop_with_more_losses_than_usual_is_never_counted_again(tmp_path: Path) -> None:
    """A validation that builds a graph and changes no mode shows by its loss alone."""
    training = Training()
    with watching(tmp_path) as session:
        for epoch in range(4):
            counted(session, 30, training.step)
            for _ in range(3):
                training.loss()
            assert session.steady.barred or epoch < 2
        assert len(counted(session, 20, training.step)[0]) == 20
        assert session.steady.barred
