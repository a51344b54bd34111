"""What counts as a batch that comes again: one that a loader hands out anew, not one that is used by turns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from torchdoctor.run import Run
from torchdoctor.signals import BATCH_REPEATED

STEPS = 48


def batches(restarted: bool) -> Iterator[Tensor]:
    loader = DataLoader(TensorDataset(torch.randn(16 * STEPS, 2)), 16)
    if not restarted:
        yield from (x for (x,) in loader)
        return
    for _ in range(STEPS):
        yield next(iter(loader))[0]


def update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def train_gan(critic_updates: int) -> None:
    """The generator learns from the very samples that the critic has just seen."""
    maker, critic = nn.Linear(4, 2), nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    of_maker, of_critic = torch.optim.Adam(maker.parameters(), 1e-3), torch.optim.Adam(critic.parameters(), 1e-3)
    for step, x in enumerate(batches(restarted=False), 1):
        fake = maker(torch.randn(16, 4))
        update(of_critic, F.softplus(-critic(x)).mean() + F.softplus(critic(fake.detach())).mean())
        if step % critic_updates == 0:
            update(of_maker, F.softplus(-critic(fake)).mean())


def train_two(restarted: bool, rounds: int = 1) -> None:
    """Two models that are trained side by side on the same batches."""
    models = [nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in models]
    for x in batches(restarted):
        for _ in range(rounds):
            for model, optimizer in zip(models, optimizers, strict=True):
                update(optimizer, F.mse_loss(model(x), x.prod(1, keepdim=True)))


def names(doctor: torchdoctor.Doctor) -> list[str]:
    return [finding.name for finding in doctor.verdict().findings]


def repeated(run: Run | None) -> np.ndarray:
    assert run is not None
    return run.scalar(BATCH_REPEATED, "train").values


@pytest.mark.parametrize("critic_updates", [1, 2, 3])
def test_samples_that_both_sides_of_a_gan_use(tmp_path: Path, critic_updates: int) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train_gan(critic_updates)
    assert "repeated-batch" not in names(doctor)
    assert repeated(doctor.run()).max() == 0


@pytest.mark.parametrize("rounds", [1, 2])
def test_optimizers_that_take_turns_on_each_batch(tmp_path: Path, rounds: int) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train_two(restarted=False, rounds=rounds)
    assert "repeated-batch" not in names(doctor)


def test_optimizers_that_take_turns_on_the_same_batch_for_ever(tmp_path: Path) -> None:
    with torchdoctor.watch(out=tmp_path, quiet=True) as doctor:
        train_two(restarted=True)
    assert "repeated-batch" in names(doctor)
    assert repeated(doctor.run()).min() == 1


def train_on_columns(first: Tensor, second: Tensor | None, restarted: bool, tmp_path: Path) -> torchdoctor.Doctor:
    """A model that is given ids or categories first, and what tells samples apart after them."""
    embed, head = nn.Embedding(8, 4), nn.Linear(8, 1)

    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = embed, head

        def forward(self, ids: Tensor, values: Tensor | None = None) -> Tensor:
            return self.head(torch.cat([self.embed(ids), values if values is not None else self.embed(ids)], 1))

    model = Table()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    parts = [first] if second is None else [first, second]
    loader = DataLoader(TensorDataset(*parts), 16)
    walk = iter(loader)
    with torchdoctor.watch(model, optimizer, out=tmp_path, quiet=True) as doctor:
        for _ in range(STEPS):
            update(optimizer, model(*next(iter(loader) if restarted else walk)).square().mean())
    return doctor


@pytest.mark.parametrize(
    ("first", "has_second"),
    [
        (torch.arange(16 * STEPS) % 4, True),  # the same in each batch, in the same order
        (torch.arange(16 * STEPS) % 5, False),  # the same values in each batch, in another order
    ],
    ids=["beside others", "alone"],
)
def test_categories_that_come_again_are_no_samples(tmp_path: Path, first: Tensor, has_second: bool) -> None:
    second = torch.randn(16 * STEPS, 4) if has_second else None
    doctor = train_on_columns(first, second, restarted=False, tmp_path=tmp_path)
    assert "repeated-batch" not in names(doctor)
    assert repeated(doctor.run()).mean() < 0.5
    doctor = train_on_columns(first, second, restarted=True, tmp_path=tmp_path)
    assert "repeated-batch" in names(doctor)


def test_an_argument_that_is_the_same_in_all_steps_is_no_batch(tmp_path: Path) -> None:
    doctor = train_on_columns(torch.arange(16 * STEPS) % 16 % 8, torch.randn(16 * STEPS, 4), False, tmp_path)
    assert "repeated-batch" not in names(doctor)
