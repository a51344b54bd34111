from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import torchdoctor
from torchdoctor.attach import live, session
from torchdoctor.attach.live import LiveEngine
from torchdoctor.findings import Finding, Fix, Severity, Verdict


class Examined:
    """An engine whose examinations are counted."""

    def __init__(self) -> None:
        self._done = threading.Semaphore(0)
        record = SimpleNamespace(started=True, run=lambda: None)
        self.engine = LiveEngine(SimpleNamespace(options=SimpleNamespace(stop_on=()), record=record), self._examine)  # type: ignore[arg-type]
        self.engine.listeners.append(lambda _finding: None)

    def _examine(self, _run: Any) -> Verdict:
        self._done.release()
        return Verdict(run={}, findings=())

    def at(self, step: int) -> bool:
        """Whether that step is one to examine."""
        self.engine.tick(step)
        return self._done.acquire(timeout=5.0)

    def not_at(self, step: int) -> bool:
        self.engine.tick(step)
        return not self._done.acquire(timeout=0.1)


def test_examinations_have_their_steps() -> None:
    examined = Examined()
    assert examined.not_at(2)
    assert examined.at(3)
    assert examined.not_at(9)
    assert examined.at(10)
    examined.engine.stop()


def test_an_alarm_does_not_wait_its_turn() -> None:
    examined = Examined()
    assert examined.at(3)
    examined.engine.alarm()
    examined.engine.alarm()
    assert examined.at(5)
    assert examined.not_at(6)
    assert examined.at(10)
    examined.engine.stop()


def test_out_of_turn_nothing_is_confirmed() -> None:
    told: list[str] = []
    engine = Examined().engine
    engine.listeners[:] = [lambda finding: told.append(finding.name)]
    guess = Finding("learning-rate-too-high", "H001", "hyperparameters", Severity.ERROR, 0.9, "", "", Fix("", None))
    for _ in range(3):
        engine.consider(Verdict(run={}, findings=(guess,)), in_turn=False)
    assert told == []
    engine.consider(Verdict(run={}, findings=(guess,)))
    engine.consider(Verdict(run={}, findings=(guess,)))
    assert told == ["learning-rate-too-high"]


def test_alarms_are_not_without_end() -> None:
    examined = Examined()
    assert examined.at(1_000)
    for number in range(1, 1 + live.ALARMS):
        examined.engine.alarm()
        assert examined.at(1_000 + number * live.ALARM_SPACING)
        examined.engine.alarm()
        assert examined.not_at(1_001 + number * live.ALARM_SPACING)
    examined.engine.alarm()
    assert examined.not_at(1_200)
    examined.engine.stop()


def test_values_that_are_not_finite_raise_the_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alarms: list[bool] = []
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with torchdoctor.watch(out=tmp_path, quiet=True, on_finding=lambda _finding: None):
        watching = session.current()
        assert watching is not None
        assert watching.live is not None
        monkeypatch.setattr(watching.live, "_alarmed", False)
        raised = watching.context.on_nonfinite
        watching.context.on_nonfinite = lambda: (raised(), alarms.append(watching.live._alarmed))  # type: ignore[union-attr,func-returns-value]
        for step in range(60):
            inputs = torch.full((8, 4), float("nan")) if step == 50 else torch.randn(8, 4)
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
    assert alarms[0] is True
