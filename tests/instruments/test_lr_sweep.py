"""One sweep of find_lr: the twin that never learns, and processes that go together."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from torchdoctor.instruments.learning_rate.sweep import Twin
from torchdoctor.instruments.subject import Subject

X, Y = torch.randn(16, 6), torch.randint(0, 3, (16,))


class Holding(nn.Module):
    """A loss that holds the model, as penalties on its weights do."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, outputs: Tensor, target: Tensor) -> Tensor:
        penalty = sum(p.square().sum() for p in self.model.parameters())
        return nn.functional.cross_entropy(outputs, target) + 0.01 * penalty


class Averaging(nn.Module):
    """Keeps a mean in a buffer that every forward replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * (x.mean(0) + 1)
        return self.inner(x - self.mean)


def test_a_twin_gives_back_the_weights_of_a_model_that_its_loss_holds_too() -> None:
    model = nn.Linear(6, 3)
    subject = Subject(model, Holding(model))
    start = subject.loss((X, Y)).item()
    twin = Twin(subject)
    with torch.no_grad():
        model.weight.add_(1.0)
    learned, weight = subject.loss((X, Y)).item(), model.weight.detach().clone()
    assert twin.loss([(X, Y)]) == pytest.approx(start) and start != pytest.approx(learned)
    assert torch.equal(model.weight, weight)


def test_a_twin_has_the_buffers_of_the_beginning() -> None:
    model = Averaging()
    subject = Subject(model, nn.CrossEntropyLoss())
    twin, begun = Twin(subject), torch.equal(model.mean, torch.zeros(6))
    start = subject.loss((X, Y)).item()
    mean = model.mean
    assert begun and twin.loss([(X, Y)]) == pytest.approx(start)
    assert model.mean is mean and twin.loss([(X, Y)]) == pytest.approx(start)


@pytest.mark.slow
def test_processes_share_the_loss_and_stop_together(tmp_path: Any) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, sys, torch
            from torch import nn
            from torch.nn.parallel import DistributedDataParallel
            from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
            from torchdoctor.instruments.learning_rate.finding import find_lr
            from torchdoctor.instruments.noise_scale import gradient_noise_scale

            torch.set_num_threads(1)
            where = f"file://{sys.argv[2]}"
            torch.distributed.init_process_group("gloo", init_method=where, rank=int(sys.argv[1]), world_size=2)
            torch.manual_seed(0)
            data = TensorDataset(torch.randn(256, 6), torch.randint(0, 3, (256,)))
            model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)))
            loader = DataLoader(data, 8, sampler=DistributedSampler(data))
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            kept = [p.detach().clone() for p in model.parameters()]
            found = find_lr(model, optimizer, loader, nn.CrossEntropyLoss(), steps=30, seeds=2, accumulate=2)
            assert all(torch.equal(a, b) for a, b in zip(kept, model.parameters()))
            print(found.recommended, [s.losses.tolist() for s in found.sweeps])

            alone, together = (
                gradient_noise_scale(part, loader, nn.CrossEntropyLoss()) for part in (model.module, model)
            )
            assert together.scale == alone.scale and any("2 processes" in note for note in together.notes)
            """
        )
    )
    store = tmp_path / "store"
    runs = [
        subprocess.Popen([sys.executable, script, str(rank), store], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    first, second = (run.communicate(timeout=120)[0] for run in runs)
    assert [run.returncode for run in runs] == [0, 0]
    assert first == second and "[" in first
