"""Loops without an optimizer, a loader or a loss function of torch: all there is to see are backward passes."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import torchdoctor
from torchdoctor.signals import LOSS_TRAIN


def test_every_step_is_counted_after_the_model_is_no_longer_watched(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    inputs = torch.randn(64, 8)
    with torchdoctor.watch(model, out=tmp_path, quiet=True) as doctor:
        for _ in range(100):
            loss = (model(inputs) - inputs[:, :1]).square().mean()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.05 * parameter.grad
                    parameter.grad = None
    run = doctor.run()
    assert run is not None
    assert run.scalar(LOSS_TRAIN).steps.tolist() == list(range(100))
    assert run.phase is not None
    assert run.phase.passes_validation == 0
