from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, random_split

from checks.programs import HEALTHY
from torchdoctor.findings import Severity

NAME = "validation-augmentation"
FLOATS = ("mlp", "cnn", "regression", "multilabel")


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    outcome = HEALTHY[kind]().outcome(NAME)
    assert outcome.passed, outcome.text


class RandomNoise:
    def __init__(self, draw: Any) -> None:
        self.draw = draw

    def __call__(self, x: Tensor) -> Tensor:
        return x + 0.1 * self.draw()


class Augmented(Dataset[Any]):
    def __init__(self, data: Any, transform: Any) -> None:
        self.data, self.transform = data, transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        x, y = self.data[index]
        return self.transform(x), y


DRAWS = {
    "torch": lambda: torch.rand(1),
    "numpy": lambda: np.random.rand(),
    "python": random.random,
    "half the time": lambda: float(torch.rand(1) < 0.5),
}


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("draw", DRAWS)
def test_a_random_transform(kind: str, draw: str) -> None:
    program = HEALTHY[kind]()
    program.val = DataLoader(Augmented(program.val.dataset, RandomNoise(DRAWS[draw])), 16)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "augmentation-on-validation" and outcome.severity is Severity.WARNING
    assert "RandomNoise" in outcome.evidence[0].text


def test_a_generator_of_its_own_goes_on_from_where_it_was() -> None:
    program = HEALTHY["mlp"]()
    generator = np.random.default_rng(0)
    data = Augmented(program.val.dataset, RandomNoise(generator.random))
    data.generator = generator  # type: ignore[attr-defined]
    program.val = DataLoader(data, 16)
    before = generator.bit_generator.state
    from torchdoctor.checks.data.sources import Source

    Source(program.val).items([0, 1, 2])
    assert generator.bit_generator.state == before
    assert program.outcome(NAME).diagnosis == "augmentation-on-validation"


def test_parts_of_one_augmented_dataset() -> None:
    program = HEALTHY["mlp"]()
    train, held = random_split(Augmented(program.train.dataset, RandomNoise(DRAWS["torch"])), [0.8, 0.2])
    program.train, program.val = DataLoader(train, 16, shuffle=True), DataLoader(held, 16)
    outcome = program.outcome(NAME)
    assert any("one dataset object" in e.text for e in outcome.evidence)


def test_a_collate_fn_that_draws() -> None:
    def collate(items: list[Any]) -> Any:
        x, y = default_collate(items)
        return x + torch.randn_like(x), y

    program = HEALTHY["mlp"]()
    program.val = DataLoader(program.val.dataset, 16, collate_fn=collate)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "augmentation-on-validation" and "collate_fn" in outcome.evidence[-1].text


def test_noise_that_is_the_same_each_time() -> None:
    program = HEALTHY["mlp"]()

    def noise(x: Tensor) -> Tensor:
        return x + torch.randn(x.shape, generator=torch.Generator().manual_seed(1))

    program.val = DataLoader(Augmented(program.val.dataset, noise), 16)
    assert program.outcome(NAME).passed


def test_noise_that_is_the_task() -> None:
    class Denoising(Dataset[Any]):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, index: int) -> Any:
            x = torch.full((16,), float(index))
            return x + torch.randn(16), x

    program = HEALTHY["autoencoder"]()
    program.train, program.val = DataLoader(Denoising(), 16, shuffle=True), DataLoader(Denoising(), 16)
    assert program.outcome(NAME).passed is None


class Stream(IterableDataset[Any]):
    def __init__(self, noise: float, shuffles: bool = False) -> None:
        self.noise, self.shuffles = noise, shuffles

    def __iter__(self) -> Iterator[Any]:
        order = torch.randperm(64) if self.shuffles else torch.arange(64)
        for i in order.tolist():
            yield torch.full((12,), i / 64) + self.noise * torch.randn(12), i % 4


@pytest.mark.parametrize(
    ("noise", "shuffles", "expected"), [(0.0, False, True), (0.1, False, False), (0.1, True, None)]
)
def test_streams(noise: float, shuffles: bool, expected: bool | None) -> None:
    program = HEALTHY["mlp"]()
    program.val = DataLoader(Stream(noise, shuffles), 16)
    assert program.outcome(NAME).passed is expected


class Batches:
    def __init__(self, batches: list[Any], noise: float) -> None:
        self.batches, self.noise = batches, noise

    def __iter__(self) -> Iterator[Any]:
        for x, y in self.batches:
            yield {"x": x + self.noise * torch.randn_like(x), "label": y}


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_anything_that_gives_batches(noise: float) -> None:
    program = HEALTHY["mlp"]()
    program.train = Batches(list(program.train), 0.1)
    program.val = Batches(list(program.val), noise)
    assert program.outcome(NAME).passed is (noise == 0)


def test_a_list_and_nothing() -> None:
    program = HEALTHY["mlp"]()
    program.val = list(program.val)
    assert program.outcome(NAME).passed
    program.val = None
    assert program.outcome(NAME).passed is None


def test_few_samples_that_change_are_no_pass() -> None:
    """One sample in sixteen is random: below the bar of a warning, and yet not "the same"."""

    class Rarely(Dataset[Any]):
        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> Any:
            x = torch.full((12,), float(index))
            return (x + torch.randn(12) if index == 5 else x), index % 4

    program = HEALTHY["mlp"]()
    program.val = DataLoader(Rarely(), 16)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.INFO and "1 of 16" in outcome.text
