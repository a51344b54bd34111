from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from checks.programs import HEALTHY, Program, loader
from torchdoctor.checks.data.comparison import compare, differ_in_kinds, take_moments
from torchdoctor.findings import Severity

NAME = "validation-alike"
FLOATS = ("mlp", "cnn", "regression", "multilabel", "autoencoder")


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    outcome = HEALTHY[kind]().outcome(NAME)
    assert outcome.passed, outcome.text


def change(program: Program, how: Any) -> None:
    x, *others = program.val.dataset.tensors
    program.val = loader(how(x), *others, shuffle=False)


@pytest.mark.parametrize("kind", FLOATS)
def test_validation_that_is_not_divided(kind: str) -> None:
    program = HEALTHY[kind]()
    change(program, lambda x: 255 * x)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "train-validation-mismatch" and outcome.severity is Severity.ERROR
    assert "only training were divided by 255" in outcome.text


@pytest.mark.parametrize("kind", FLOATS)
def test_validation_that_is_not_standardised(kind: str) -> None:
    program = HEALTHY[kind]()
    change(program, lambda x: 5 + 3 * x)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "train-validation-mismatch", outcome.text
    assert "training is standardised and validation is not" in outcome.text


@pytest.mark.parametrize("spread", [0.56, 1.0, 1.7])
def test_data_that_has_drifted_is_not_called_unprepared(spread: float) -> None:
    program = HEALTHY["mlp"]()
    change(program, lambda x: 1.98 + spread * x)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and "shifted by" in outcome.text and "standardised" not in outcome.text


@pytest.mark.parametrize("kind", ["mlp", "regression"])
def test_one_column_on_another_scale(kind: str) -> None:
    def spoil(x: Tensor) -> Tensor:
        return torch.cat([x[:, :1] * 1000 + 4000, x[:, 1:]], 1)

    program = HEALTHY[kind]()
    change(program, spoil)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "train-validation-mismatch" and "1 of" in outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_another_type(kind: str) -> None:
    program = HEALTHY[kind]()
    change(program, lambda x: x.double())
    outcome = program.outcome(NAME)
    assert outcome.severity is Severity.ERROR and "float64" in outcome.text


def test_another_shape() -> None:
    program = HEALTHY["cnn"]()
    change(program, lambda x: x.expand(-1, 3, -1, -1))
    assert "(3, 8, 8)" in program.outcome(NAME).text


def test_missing_values_in_validation_alone() -> None:
    program = HEALTHY["mlp"]()
    change(program, lambda x: x.masked_fill(x > 1, float("nan")))
    assert "NaN" in program.outcome(NAME).text


def test_another_vocabulary() -> None:
    program = HEALTHY["rnn"]()
    torch.manual_seed(0)
    x = torch.randint(0, 10, (600, 9))
    program.train = loader(x, x[:, -1] % 3)
    program.val = loader(torch.randint(0, 10, (200, 9)), x[:200, -1] % 3, shuffle=False)
    assert program.outcome(NAME).passed
    program.val = loader(torch.randint(8, 18, (200, 9)), x[:200, -1] % 3, shuffle=False)
    assert program.outcome(NAME).diagnosis == "train-validation-mismatch"


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn"])
def test_classes_that_training_does_not_have(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = (torch.cat([a, b]) for a, b in zip(program.train.dataset.tensors, program.val.dataset.tensors, strict=True))
    order = y.argsort(stable=True)
    cut = len(x) * 4 // 5 if kind == "mlp" else int((y < y.max()).sum())
    program.train, program.val = (loader(x[o], y[o]) for o in (order[:cut], order[cut:]))
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "train-validation-mismatch", outcome.text


def test_other_shares_of_the_classes() -> None:
    program = HEALTHY["mlp"]()
    x, y = torch.randn(500, 12), (torch.rand(500) < 0.2).long()
    held = (torch.rand(200) < 0.7).long()
    program.train, program.val = loader(x, y), loader(torch.randn(200, 12), held, shuffle=False)
    outcome = program.outcome(NAME)
    assert outcome.severity is Severity.WARNING and "class" in outcome.text


def test_classes_that_a_sampler_evens_out() -> None:
    program = HEALTHY["mlp"]()
    y, held = (torch.rand(500) < 0.1).long(), (torch.rand(200) < 0.1).long()
    weights = torch.where(y == 1, 9.0, 1.0).tolist()
    program.train = DataLoader(TensorDataset(torch.randn(500, 12), y), 16, sampler=WeightedRandomSampler(weights, 500))
    program.val = loader(torch.randn(200, 12), held, shuffle=False)
    assert program.outcome(NAME).passed


def test_targets_on_another_scale() -> None:
    program = HEALTHY["regression"]()
    x, y = program.val.dataset.tensors
    program.val = loader(x, 10 * y + 3, shuffle=False)
    assert "targets" in program.outcome(NAME).text


def test_a_sorted_validation_set_is_read_all_over() -> None:
    program = HEALTHY["mlp"]()
    torch.manual_seed(0)
    centres = 3 * torch.randn(4, 12)
    y, held = torch.randint(0, 4, (2000,)), torch.arange(2000) // 500
    program.train = loader(centres[y] + torch.randn(2000, 12), y)
    program.val = loader(centres[held] + torch.randn(2000, 12), held, shuffle=False)
    assert program.outcome(NAME).passed


class Stream(IterableDataset[Any]):
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(int(self.scale))
        while True:
            yield self.scale * torch.randn(12, generator=generator), 1


class Batches:
    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return (batch for batch in self.batches)


@pytest.mark.parametrize("how", ["list", "generator", "dict", "stream"])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_other_kinds_of_loaders(how: str, scale: float) -> None:
    program = HEALTHY["mlp"]()
    change(program, lambda x: x * scale)
    train, held = list(program.train), list(program.val)
    if how == "dict":
        train, held = ([{"x": x, "label": y} for x, y in part] for part in (train, held))
    program.train, program.val = (Batches(train), Batches(held)) if how == "generator" else (train, held)
    if how == "stream":
        program.train, program.val = DataLoader(Stream(1.0), 16), DataLoader(Stream(2 * scale), 16)
        program.val.dataset.scale = scale
    outcome = program.outcome(NAME)
    assert outcome.passed if scale == 1 else outcome.diagnosis == "train-validation-mismatch", outcome.text


def test_chance_alone_is_no_difference() -> None:
    """Of many healthy comparisons of wide, heavy-tailed and skewed data none may be told."""
    rng = np.random.default_rng(0)
    for trial in range(150):
        width = (2, 30, 200)[trial % 3]
        draw = (rng.standard_normal, lambda n: rng.standard_t(3, n), lambda n: rng.exponential(1, n))[trial // 3 % 3]
        data = torch.from_numpy(draw((120, width)))
        distance = compare(take_moments([data[:100]]), take_moments([data[100:]]))
        assert distance is not None and distance.middle == 0 and distance.few == 0


def test_labels_by_chance() -> None:
    rng = np.random.default_rng(0)
    told = 0
    for _ in range(300):
        labels = rng.choice(6, 400, p=[0.5, 0.3, 0.1, 0.05, 0.04, 0.01]).astype(float)
        told += differ_in_kinds(labels[:300], labels[300:])[1]
    assert told == 0
    assert differ_in_kinds(np.zeros(100), np.ones(50)) == (1.0, True)
