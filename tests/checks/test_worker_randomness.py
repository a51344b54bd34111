from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from checks.programs import HEALTHY, Program
from torchdoctor.checks.data.worker_trial import WORKERS, can_fork
from torchdoctor.findings import Severity

NAME = "worker-randomness"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    outcome = HEALTHY[kind]().outcome(NAME)
    assert outcome.passed, outcome.text


def test_samples_without_randomness() -> None:
    program = HEALTHY["mlp"]()
    program.train = DataLoader(program.train.dataset, 16, shuffle=True, num_workers=2)
    assert program.outcome(NAME).passed


class Noisy(Dataset[Any]):
    """Adds noise that `draw(dataset)` gives to what another dataset holds."""

    def __init__(self, data: Any, draw: str) -> None:
        self.data, self.how = data, draw
        self.rng = np.random.default_rng(0)
        self.legacy = np.random.RandomState(0)
        self.python = random.Random(0)
        self.torch = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        x, *others = self.data[index]
        return (x + 0.1 * self.draw(), *others)

    def draw(self) -> float:
        return {
            "own": lambda: self.rng.random(),
            "own legacy": lambda: self.legacy.rand(),
            "own python": lambda: self.python.random(),
            "own torch": lambda: float(torch.rand(1, generator=self.torch)),
            "numpy": lambda: np.random.rand(),
            "python": random.random,
            "torch": lambda: float(torch.rand(1)),
        }[self.how]()


def noisy(program: Program, draw: str, **options: Any) -> DataLoader[Any]:
    return DataLoader(Noisy(program.train.dataset, draw), 16, shuffle=True, **options)


@pytest.mark.parametrize(
    ("kind", "draw"), [("mlp", "own"), ("cnn", "own torch"), ("regression", "own legacy"), ("multilabel", "own python")]
)
def test_a_generator_that_every_worker_gets_a_copy_of(kind: str, draw: str) -> None:
    program = HEALTHY[kind]()
    program.train = noisy(program, draw, num_workers=2)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "repeated-batch" and outcome.severity is Severity.WARNING
    assert "all 2 workers" in outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression"])
@pytest.mark.parametrize("draw", ["numpy", "python", "torch"])
def test_global_generators_are_seeded_by_torch(kind: str, draw: str) -> None:
    program = HEALTHY[kind]()
    program.train = noisy(program, draw, num_workers=2)
    assert program.outcome(NAME).passed


def alike(_worker: int) -> None:
    np.random.seed(0)


def apart(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.rng = np.random.default_rng(info.seed)  # type: ignore[attr-defined]


def test_functions_that_seed_workers() -> None:
    program = HEALTHY["mlp"]()
    program.train = noisy(program, "numpy", num_workers=2, worker_init_fn=alike)
    assert program.outcome(NAME).diagnosis == "repeated-batch"
    program.train = noisy(program, "own", num_workers=2, worker_init_fn=apart)
    assert program.outcome(NAME).passed


def test_one_worker_that_begins_anew_in_each_epoch() -> None:
    program = HEALTHY["mlp"]()
    program.train = noisy(program, "own", num_workers=1)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "repeated-batch" and "each epoch" in outcome.text
    program.train = noisy(program, "own", num_workers=1, persistent_workers=True)
    assert program.outcome(NAME).passed
    program.train = noisy(program, "torch", num_workers=1)
    assert program.outcome(NAME).passed


class Direct(Noisy):
    def __getitem__(self, index: int) -> Any:
        x, *others = self.data[index]
        return (x + 0.1 * self.rng.random(), *others)


def test_by_reading_alone() -> None:
    program = HEALTHY["mlp"]()
    program.train = DataLoader(Direct(program.train.dataset, ""), 16, num_workers=2)
    outcome = program.outcome(NAME, quick=True)
    assert outcome.diagnosis == "repeated-batch" and "dataset.rng" in outcome.evidence[0].text
    assert outcome.fix is not None and "info.dataset.rng" in (outcome.fix.listing or "")
    program = HEALTHY["mlp"]()
    program.train = noisy(program, "torch", num_workers=2)
    outcome = program.outcome(NAME, quick=True)
    assert outcome.passed is None and "quick" in outcome.text


def test_workers_that_are_spawned_are_not_started() -> None:
    data = HEALTHY["mlp"]().train.dataset
    assert can_fork(DataLoader(data, num_workers=2, multiprocessing_context="fork"))
    assert not can_fork(DataLoader(data, num_workers=2, multiprocessing_context="spawn"))


def test_no_loader() -> None:
    program = HEALTHY["mlp"]()
    program.train = list(program.train)
    assert program.outcome(NAME).passed is None


class Stream(IterableDataset[Any]):
    def __init__(self, data: Tensor, how: str) -> None:
        self.data, self.how = data, how

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info() if self.how == "divided" else None
        order = torch.randperm(len(self.data)) if self.how == "shuffled" else torch.arange(len(self.data))
        for i in order.tolist()[info.id if info else 0 :: info.num_workers if info else 1]:
            yield self.data[i], i % 4


class Undivided(IterableDataset[Any]):
    """Says nothing of workers."""

    def __init__(self, size: int, draw: Any = None) -> None:
        self.size, self.draw = size, draw

    def __iter__(self) -> Iterator[Any]:
        order = torch.randperm(self.size) if self.draw == "shuffled" else torch.arange(self.size)
        for i in order.tolist():
            yield (torch.randn(12) if self.draw == "made" else torch.full((12,), i / 100)), i % 4


@pytest.mark.parametrize(
    ("size", "draw", "severity"),
    [(200, None, Severity.ERROR), (100_000, None, Severity.ERROR), (200, "shuffled", Severity.WARNING)],
)
def test_a_stream_that_is_not_divided(size: int, draw: str | None, severity: Severity) -> None:
    program = HEALTHY["mlp"]()
    program.train = DataLoader(Undivided(size, draw), 16, num_workers=2)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "repeated-batch" and outcome.severity is severity, outcome.text


def test_streams_that_are_well() -> None:
    program = HEALTHY["mlp"]()
    program.train = DataLoader(Stream(torch.randn(200, 12), "divided"), 16, num_workers=2)
    assert program.outcome(NAME).passed
    program.train = DataLoader(Undivided(100_000, "made"), 16, num_workers=2)
    assert program.outcome(NAME).passed
    program.train = DataLoader(Undivided(200), 16, num_workers=1)
    assert program.outcome(NAME).passed


class Failing(Noisy):
    """Once it has given its first batches."""

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        if info is not None and info.num_workers == WORKERS:
            raise RuntimeError("no such file")
        return super().__getitem__(index)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_workers_that_fail_are_no_finding() -> None:
    program = HEALTHY["mlp"]()
    program.train = DataLoader(Failing(program.train.dataset, "torch"), 16, num_workers=3)
    outcome = program.outcome(NAME)
    assert outcome.passed is None and "failed" in outcome.text
