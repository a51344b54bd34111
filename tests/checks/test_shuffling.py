from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, Sampler, TensorDataset

from checks.programs import HEALTHY, Program, loader
from torchdoctor.checks.bench import Bench
from torchdoctor.checks.data.mixing import count_runs
from torchdoctor.checks.performing import choose, perform
from torchdoctor.findings import Severity
from torchdoctor.instruments.subject import Subject

NAME = "shuffling"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    outcome = HEALTHY[kind]().outcome(NAME)
    assert outcome.passed, outcome.text


def by_target(program: Program) -> tuple[Tensor, Tensor]:
    x, y = program.train.dataset.tensors
    order = y.flatten().argsort(stable=True)
    return x[order], y[order]


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "regression"])
def test_sorted_and_not_shuffled(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = by_target(program)
    program.train = loader(x, y, shuffle=False, batch=8)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "not-shuffled" and outcome.severity is Severity.ERROR, outcome.text
    program.train = loader(x, y, shuffle=True, batch=8)
    assert program.outcome(NAME).passed


@pytest.mark.parametrize("kind", HEALTHY)
def test_mixed_and_not_shuffled_is_told_only(kind: str) -> None:
    program = HEALTHY[kind]()
    program.train = loader(*program.train.dataset.tensors, shuffle=False)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.INFO
    assert "does not shuffle" in outcome.text


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_order_is_told_of_a_loop_that_gives_no_loss(shuffle: bool) -> None:
    """Optimizers take turns in it, say."""
    program = HEALTHY["mlp"]()
    train = loader(*program.train.dataset[:], shuffle=shuffle)
    bench = Bench(Subject(program.model), [next(iter(train))], train_loader=train, why_no_loss="they take turns")
    names = (NAME, "worker-randomness", "validation-augmentation")
    bench.validation, bench.validation_loader = [next(iter(program.val))], program.val
    made = {c.check.name: c.outcome for c in perform(bench, choose(True, names))}
    assert made[NAME].passed is shuffle and all(made[name].passed for name in names[1:])
    bench.train_loader = [next(iter(train)) for _ in range(4)]
    assert "they take turns" in perform(bench, choose(True, (NAME,)))[0].outcome.text


def test_one_epoch_of_mixed_data() -> None:
    program = HEALTHY["mlp"]()
    program.train = loader(*program.train.dataset.tensors, shuffle=False)
    assert program.outcome(NAME, epochs=1).passed


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_blocks_of_a_class(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = by_target(program)
    blocks = torch.arange(len(x)).split(4)
    order = torch.cat([blocks[i] for i in torch.randperm(len(blocks)).tolist()])
    program.train = loader(x[order], y[order], shuffle=False, batch=32 if kind == "mlp" else 16)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "not-shuffled" and outcome.severity is not Severity.INFO, outcome.text


class Always(Sampler[int]):
    """The same random order each time."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(self.size, generator=torch.Generator().manual_seed(0)).tolist())

    def __len__(self) -> int:
        return self.size


class Going(Always):
    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.rng = np.random.default_rng(0)

    def __iter__(self) -> Iterator[int]:
        return iter(self.rng.permutation(self.size).tolist())


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "decoder"])
@pytest.mark.parametrize("batched", [True, False])
def test_the_same_order_in_each_epoch(kind: str, batched: bool) -> None:
    program = HEALTHY[kind]()
    data = program.train.dataset
    for sampler, good in ((Always(len(data)), False), (Going(len(data)), True)):
        state = sampler.rng.bit_generator.state if isinstance(sampler, Going) else None
        program.train = (
            DataLoader(data, batch_sampler=BatchSampler(sampler, 16, False))
            if batched
            else DataLoader(data, 16, sampler=sampler)
        )
        batches = list(program.train)
        if isinstance(sampler, Going):
            sampler.rng.bit_generator.state = state
        outcome = program.outcome(NAME)
        assert len(batches) and (outcome.passed is good), outcome.text
        assert good or outcome.severity is Severity.WARNING
        assert program.outcome(NAME, epochs=1).passed


def test_a_generator_of_the_loader_goes_on() -> None:
    program = HEALTHY["mlp"]()
    data, generator = program.train.dataset, torch.Generator().manual_seed(3)
    program.train = DataLoader(data, 16, shuffle=True, generator=generator)
    before = generator.get_state()
    assert program.outcome(NAME).passed
    assert torch.equal(generator.get_state(), before)


def test_samplers_of_ranks() -> None:
    program = HEALTHY["mlp"]()
    data = program.train.dataset
    program.train = DataLoader(data, 16, sampler=DistributedSampler(data, 2, 0))
    outcome = program.outcome(NAME)
    assert outcome.passed and "set_epoch" in outcome.text
    program.train = DataLoader(data, 16, sampler=DistributedSampler(data, 2, 0, shuffle=False))
    assert program.outcome(NAME).severity is Severity.INFO


class Stream(IterableDataset[Any]):
    def __init__(self, block: int) -> None:
        self.block = block

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(0)
        for i in range(4000):
            label = int(torch.randint(0, 4, (1,), generator=generator)) if self.block == 1 else i // self.block % 4
            yield torch.randn(12, generator=generator), label


@pytest.mark.parametrize(("block", "expected"), [(1, True), (32, False), (1000, None)])
def test_streams(block: int, expected: bool | None) -> None:
    program = HEALTHY["mlp"]()
    program.train = DataLoader(Stream(block), 16)
    outcome = program.outcome(NAME)
    assert outcome.passed is expected, outcome.text


class Batches:
    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return (batch for batch in self.batches)


@pytest.mark.parametrize("how", ["list", "generator"])
def test_batches_alone(how: str) -> None:
    program = HEALTHY["mlp"]()
    for data, good in ((program.train.dataset, True), (TensorDataset(*by_target(program)), False)):
        batches = [{"x": x, "label": y} for x, y in DataLoader(data, 16)]
        program.train = batches if how == "list" else Batches(batches)
        outcome = program.outcome(NAME)
        assert (outcome.severity is Severity.INFO or outcome.passed) if good else outcome.diagnosis == "not-shuffled"
        assert good or outcome.severity is not Severity.INFO


def test_runs_as_they_are_counted_in_random_order() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0.0, 1.0, 2.0], [60, 30, 10])
    runs = [count_runs(rng.permutation(labels))[0] for _ in range(2000)]
    _, mean, error = count_runs(labels)
    assert abs(np.mean(runs) - mean) < 4 * error / np.sqrt(2000)
    assert abs(np.std(runs) / error - 1) < 0.1
