"""An instrument used in a training that is watched: neither disturbs the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor

Use = Callable[[nn.Module, torch.optim.Optimizer, Any, Any], Any]
USES: dict[str, Use] = {
    "find_lr": lambda m, o, d, f: torchdoctor.find_lr(m, o, d, f, steps=30, seeds=1, progress=False),
    "overfit_batch": lambda m, _, d, f: torchdoctor.overfit_batch(m, d, f, steps=40, progress=False),
    "suggest_clipping": lambda m, o, d, f: torchdoctor.suggest_clipping(m, o, d, f, steps=30, progress=False),
    "gradient_noise_scale": lambda m, _, d, f: torchdoctor.gradient_noise_scale(m, d, f, repeats=3, progress=False),
    "sharpness": lambda m, _, d, f: torchdoctor.sharpness(m, d, f, directions=2, iterations=5, progress=False),
    "landscape": lambda m, _, d, f: torchdoctor.landscape(m, d, f, points=5, progress=False),
    "linear_probe": lambda _m, _o, d, _f: torchdoctor.linear_probe(d, samples=80, permutations=200, progress=False),
    "evaluate": lambda m, _, d, f: torchdoctor.evaluate(m, d, f, progress=False),
    "check": lambda m, o, d, f: torchdoctor.check(m, d, f, optimizer=o, quick=True, progress=False),
}


def train(use: Use | None) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    x = torch.randn(160, 6)
    loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), 16, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loss_fn = nn.CrossEntropyLoss()
    losses = []
    for epoch in range(4):
        for a, b in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(a), b)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if epoch == 1 and use is not None:
            use(model, optimizer, loader, loss_fn)
    return losses


@pytest.mark.parametrize("name", USES)
def test_the_training_is_recorded_as_if_it_were_not_there(name: str, tmp_path: Path) -> None:
    alone = train(None)
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        assert train(USES[name]) == alone
    assert doctor.directory is not None
    assert torchdoctor.open_run(doctor.directory).steps == len(alone)
    assert [f.name for f in doctor.verdict().findings] == []
