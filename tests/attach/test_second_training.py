"""A second training in one script: what is frozen in it is looked at before its first update."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import torchdoctor
from torchdoctor.attach.registry import Registry
from torchdoctor.facts import FrozenChangeFact


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


def test_a_model_is_partly_frozen_where_its_optimizer_does_not_train_all_of_it() -> None:
    model, other = make(), make()
    optimizer = torch.optim.SGD(model[3].parameters(), 0.01)
    other[0].weight.requires_grad_(False)
    assert not Registry().is_partly_frozen(optimizer)
    model[0].weight.requires_grad_(False)
    assert Registry().is_partly_frozen(optimizer)
