"""A second training in one script: what is frozen in it is looked at before its first update."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import torchdoctor
from torchdoctor.facts import FrozenChangeFact, ModelFact


def make() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, shift: float, steps: int) -> None:
    for _ in range(steps):
        x = torch.randn(32, 6) + shift
        loss = (model(x) - x[:, :1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_statistics_of_a_frozen_body_are_known_before_they_move(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        first = make()
        train(first, torch.optim.SGD(first.parameters(), 0.01), 0.0, 30)
        second = make()
        second.load_state_dict(first.state_dict())
        for parameter in second[:2].parameters():
            parameter.requires_grad_(False)
        train(second, torch.optim.SGD(second[3].parameters(), 0.01), 2.0, 40)
        second.eval()
    run = doctor.run()
    assert run is not None
    drifts = [f.drift for f in run.facts(FrozenChangeFact) if f.norms]
    assert max(d for d in drifts if d is not None) > 1.0


def test_models_without_anything_frozen_are_left_to_the_usual_looks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        for _ in range(5):
            model = make()
            train(model, torch.optim.SGD(model.parameters(), 0.01), 0.0, 9)
    run = doctor.run()
    assert run is not None and run.parameters
    assert not {9, 18, 27, 36} & {step for step, _ in run.facts_at(ModelFact)}
