from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from checks.programs import HEALTHY, Program
from torchdoctor.attach.target import FILE, Target
from torchdoctor.checks import repeated_start
from torchdoctor.checks.bench import Bench
from torchdoctor.findings import Severity
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.subject import Subject

NAME = "repeated-start"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed


class Noisy(nn.Module):
    def __init__(self, model: nn.Module, noise: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.model, self.noise = model, noise

    def forward(self, *args: Tensor) -> Tensor:
        return self.noise(self.model(*args))


def _noisy(kind: str, noise: Callable[[Tensor], Tensor]) -> Program:
    program = HEALTHY[kind]()
    program.model = Noisy(program.model, noise)
    return program


@pytest.mark.parametrize("kind", HEALTHY)
def test_numbers_that_no_seed_reaches(kind: str) -> None:
    def noise(x: Tensor) -> Tensor:
        return x + torch.from_numpy(np.random.default_rng().normal(size=x.shape)).float()

    outcome = _noisy(kind, noise).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "unseeded-randomness"
    assert outcome.severity is Severity.WARNING and "step 1" in outcome.text and "the model (Noisy)" in outcome.text
    assert "test_repeated_start.py" in outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "decoder"])
def test_generators_that_are_kept(kind: str) -> None:
    own, seeded, unseeded = torch.Generator(), np.random.default_rng(0), np.random.default_rng()
    assert _noisy(kind, lambda x: x + torch.randn(x.shape, generator=own)).outcome(NAME).passed
    assert _noisy(kind, lambda x: x + float(seeded.normal())).outcome(NAME).passed
    outcome = _noisy(kind, lambda x: x + float(unseeded.normal())).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "unseeded-randomness"


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "decoder"])
def test_a_state_that_is_kept(kind: str) -> None:
    program = HEALTHY[kind]()

    class Counting(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model, self.calls, self.last = model, 0, None

        def forward(self, *args: Tensor) -> Tensor:
            out = self.model(*args) * (1 + 0.1 * self.calls)
            out = out if self.last is None else out + self.last.mean()
            self.calls, self.last = self.calls + 1, out.detach()
            return out

    program.model = Counting(program.model)
    assert program.outcome(NAME).passed


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "autoencoder"])
def test_noise_of_torch_itself_is_seeded(kind: str) -> None:
    assert _noisy(kind, lambda x: x + torch.randn_like(x)).outcome(NAME).passed


class Unsteady(torch.autograd.Function):
    """Adds what an order of summation would, as a kernel on a device may."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        Unsteady.calls += 1  # no chance: two draws may be rounded to the same
        return gradient * (1 + 1e-6 * Unsteady.calls)


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "decoder"])
def test_a_backward_pass_that_differs(kind: str) -> None:
    outcome = _noisy(kind, Unsteady.apply).outcome(NAME)
    assert outcome.passed is False and "gradients of" in outcome.text and "step 1" in outcome.text


class Drawn(Dataset[Any]):
    def __init__(self, seed: int | None) -> None:
        self.rng = np.random.default_rng(seed)

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.from_numpy(self.rng.normal(size=12)).float(), index % 4


def test_a_dataset_with_a_generator_of_its_own() -> None:
    program = HEALTHY["mlp"]()
    program.train = DataLoader(Drawn(0), 16)
    assert program.outcome(NAME).passed
    program.train = DataLoader(Drawn(None), 16)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "unseeded-randomness" and "loader" in outcome.text


class Epochs(IterableDataset[Any]):
    """Another order in every epoch, by a number that it counts itself."""

    epoch = 0

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        generator = torch.Generator().manual_seed(self.epoch)
        self.epoch += 1
        return ((torch.randn(12, generator=generator), n % 4) for n in range(64))


def test_a_dataset_that_counts_its_epochs_is_seeded() -> None:
    program = HEALTHY["mlp"]()
    program.train = DataLoader(Epochs(), 16)
    outcome = program.outcome(NAME)
    assert outcome.passed, outcome.text


def test_a_dataset_that_draws_anew_every_time() -> None:
    class Fresh(Drawn):
        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return torch.from_numpy(np.random.default_rng().normal(size=12)).float(), index % 4

    program = HEALTHY["mlp"]()
    program.train = DataLoader(Fresh(0), 16)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "unseeded-randomness" and "first batches" in outcome.text


def test_what_the_loop_of_a_script_counts_is_no_chance() -> None:
    """A weight that rises with the steps, a hidden state that is carried over: a script keeps them to itself."""
    program, steps = HEALTHY["mlp"](), iter(range(1000))
    program.loss_fn = lambda out, y: nn.functional.cross_entropy(out, y) * (1 + next(steps) / 100)
    bench = Bench(
        Subject(program.model, program.loss_fn),
        first_batches(program.train, 4),
        train_loader=program.train,
        optimizers=[program.optimizer],
    )
    assert repeated_start.perform(bench).passed is False
    bench.target = Target(FILE, "train.py")
    outcome = repeated_start.perform(bench)
    assert outcome.passed is None and "two-starts" in outcome.text


def test_everything_is_put_back() -> None:
    program = HEALTHY["cnn"]()
    before = {name: value.clone() for name, value in program.model.state_dict().items()}
    state = torch.random.get_rng_state()
    program.outcome(NAME)
    assert all(torch.equal(before[name], value) for name, value in program.model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state()) and not program.optimizer.state


def test_a_script_without_any_seed_is_a_note() -> None:
    from torchdoctor.checks import repeated_start
    from torchdoctor.checks.bench import Bench
    from torchdoctor.instruments.subject import Subject

    bench = Bench(Subject(nn.Linear(12, 4), nn.CrossEntropyLoss()), [], train_loader=DataLoader(Drawn(None), 16))
    bench.train = [next(iter(bench.train_loader))]
    for seeded, severity in ((None, Severity.WARNING), (True, Severity.WARNING), (False, Severity.INFO)):
        bench.seeded = seeded
        assert repeated_start.perform(bench).severity is severity
