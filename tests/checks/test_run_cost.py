from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from checks.programs import HEALTHY, Program, loader
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.cost.run_plan import updates_an_epoch
from torchdoctor.checks.cost.step_clock import Times
from torchdoctor.checks.cost.step_memory import measure_memory
from torchdoctor.findings import Severity
from torchdoctor.instruments.batches import first_batches
from torchdoctor.instruments.subject import Subject

NAME = "run-cost"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    program = HEALTHY[kind]()
    outcome = program.outcome(NAME, quick=True, epochs=10)
    figures = outcome.figures
    assert outcome.passed and "10 epochs" in outcome.text and "activations" in outcome.text
    parts = ("seconds_wait", "seconds_forward", "seconds_backward", "seconds_update")
    assert 0.5 * sum(figures[p] for p in parts) < figures["seconds_step"] < 10 * sum(figures[p] for p in parts)
    assert figures["seconds_run"] == pytest.approx(10 * figures["seconds_epoch"])
    assert figures["seconds_epoch"] >= len(program.train) * figures["seconds_step"]
    size = sum(p.numel() * p.element_size() for p in program.model.parameters())
    assert figures["gradients_bytes"] == size <= figures["parameters_bytes"]
    assert figures["optimizer_bytes"] >= 2 * size and figures["activations_bytes"] > 0
    assert not program.optimizer.state and all(p.grad is None for p in program.model.parameters())


def test_memory_in_closed_form() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(32, 8)
    data = loader(x, x[:, :1], batch=16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    bench = Bench(Subject(model, nn.MSELoss()), first_batches(data, 2), train_loader=data, optimizers=[optimizer])
    with bench.experiment():
        memory = measure_memory(bench)
    weights = 4 * (8 * 4 + 4 + 4 + 1)
    assert memory.parameters == memory.gradients == memory.optimizer == weights
    # the tanh keeps its result for itself and for the layer after it, and the loss what it is given
    assert memory.activations == 4 * (16 * 4 + 16)
    assert memory.peak == 3 * weights + memory.activations
    assert memory.process is None or memory.process > memory.peak


class Slow:
    """A loader that takes its time over every batch."""

    def __init__(self, inner: Any, seconds: float) -> None:
        self.inner, self.seconds = inner, seconds

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.inner:
            time.sleep(self.seconds)
            yield batch


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "multilabel", "autoencoder", "rnn"])
def test_a_loader_that_is_waited_for(kind: str) -> None:
    program = HEALTHY[kind]()
    program.train = Slow(program.train, 0.06)
    outcome = program.outcome(NAME, quick=True)
    assert outcome.passed is False and outcome.diagnosis == "input-bound"
    assert outcome.severity is Severity.WARNING and outcome.figures["data_share"] > 0.4
    assert outcome.fix is not None and "num_workers" in (outcome.fix.listing or "")


def test_without_a_length() -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(zip(torch.randn(64, 12), torch.randint(0, 4, (64,)), strict=True))

    program = HEALTHY["mlp"]()
    program.train = torch.utils.data.DataLoader(Stream(), 16)
    outcome = program.outcome(NAME, quick=True, epochs=3)
    assert outcome.passed and "not known" in outcome.text and "seconds_run" not in outcome.figures


def test_workers_and_accumulation() -> None:
    program = HEALTHY["mlp"]()
    program.train = loader(torch.randn(96, 12), torch.randint(0, 4, (96,)), num_workers=1)
    outcome = program.outcome(NAME, quick=True, epochs=2, accumulation=4)
    figures = outcome.figures
    assert outcome.passed is not None and figures["updates"] == 2 and figures["batches"] == 6


def test_a_step_is_the_sum_of_its_parts() -> None:
    times = Times(wait=[1.0, 3.0], forward=[1.0, 1.0, 100.0], backward=[2.0], update=[4.0])
    assert times.step(1) == 2 + (1 + 1 + 10) / 3 + 2 + 4 and times.step(4) == times.step(1) - 3


def test_updates_an_epoch() -> None:
    bench = Bench(Subject(nn.Linear(1, 1)), [], train_loader=range(10), accumulation=4)
    assert updates_an_epoch(bench) == 3


def test_a_model_without_an_optimizer() -> None:
    program: Program = HEALTHY["regression"]()
    program.optimizer = None
    assert program.outcome(NAME, quick=True).passed


class Drawn(Dataset[Any]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.randn(12), index % 4


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return ((torch.randn(12), n % 4) for n in range(48))


@pytest.mark.parametrize(("name", "data"), [(NAME, Drawn()), ("split-overlap", Streamed())])
def test_persistent_workers_go_on_as_they_were(name: str, data: Any) -> None:
    """An epoch under way gives the batches that it would have given, and so does the next."""

    def train(checks: bool) -> list[Tensor]:
        torch.manual_seed(0)
        program, workers = HEALTHY["mlp"](), {"num_workers": 2, "persistent_workers": True}
        program.train, program.val = DataLoader(data, 8, **workers), DataLoader(data, 8, **workers)
        walks = [iter(program.train), iter(program.val)]
        seen = [next(walk)[0] for walk in walks]
        if checks:
            assert "could not be examined" not in program.outcome(name, quick=True).text
        seen += [x for walk in walks for x, _ in walk]
        return seen + [x for part in (program.train, program.val) for x, _ in part]

    one, other = train(False), train(True)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
