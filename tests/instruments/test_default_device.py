"""Instruments where tensors are made on another device unless told: what is meant for the CPU is made there."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

import torchdoctor

X, Y = torch.randn(96, 5), torch.randint(0, 3, (96,))
BATCHES = [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 96, 8)]


@pytest.fixture
def elsewhere() -> Iterator[tuple[nn.Module, torch.optim.Optimizer]]:
    """Tensors of the default device hold nothing, so that whoever uses one fails."""
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.set_default_device("meta")
    yield model, optimizer
    torch.set_default_device(None)


def test_trainings(elsewhere: tuple[nn.Module, torch.optim.Optimizer]) -> None:
    model, optimizer = elsewhere
    loss = nn.CrossEntropyLoss()
    assert torchdoctor.find_lr(model, optimizer, BATCHES, loss, steps=15, seeds=1, progress=False).sweeps
    assert torchdoctor.suggest_clipping(model, optimizer, BATCHES, loss, steps=20, progress=False).median > 0
    assert torchdoctor.gradient_noise_scale(model, BATCHES, loss, progress=False).noise > 0
    tried = torchdoctor.overfit_batch(model, (X, Y), loss, steps=5, progress=False)
    assert not tried.success and tried.guess is not None


def test_looks_around_the_weights(elsewhere: tuple[nn.Module, torch.optim.Optimizer]) -> None:
    loss = nn.CrossEntropyLoss()
    found = torchdoctor.sharpness(elsewhere[0], BATCHES, loss, directions=2, iterations=2, progress=False)
    assert found.curvature is not None
    assert torchdoctor.landscape(elsewhere[0], BATCHES, loss, points=3, progress=False).loss > 0


def test_looks_at_the_data(elsewhere: tuple[nn.Module, torch.optim.Optimizer]) -> None:
    inputs, labels = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    assert torchdoctor.linear_probe(inputs, labels, permutations=199, progress=False).samples == 60
    assert torchdoctor.linear_probe(BATCHES, permutations=199, progress=False).samples == 96
    assert torchdoctor.evaluate(elsewhere[0], BATCHES, progress=False).samples == 96
