from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from checks.programs import HEALTHY, Program, loader
from torchdoctor.findings import Severity

NAME = "input-values"
FLOATS = ("mlp", "cnn", "regression", "multilabel")


def tensors(program: Program) -> tuple[Tensor, Tensor]:
    x, y = program.train.dataset.tensors
    return x.clone(), y.clone()


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    outcome = HEALTHY[kind]().outcome(NAME)
    assert outcome.passed, outcome.text


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite(kind: str, value: float) -> None:
    program = HEALTHY[kind]()
    x, y = tensors(program)
    x.view(len(x), -1)[::9, 2] = value
    program.train = loader(x, y)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "nan-in-inputs" and outcome.severity is Severity.ERROR
    assert ("NaN" if math.isnan(value) else "non-finite") in outcome.text


def test_a_single_bad_row_that_no_look_came_upon() -> None:
    program = HEALTHY["mlp"]()
    x, y = torch.randn(4000, 12), torch.randint(0, 4, (4000,))
    x[3777, 5] = math.nan
    program.train = loader(x, y, shuffle=False)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "nan-in-inputs" and "3777" in outcome.text


class Filling(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(torch.nan_to_num(x))


def test_missing_values_that_the_model_fills_in_are_told_only() -> None:
    program = HEALTHY["mlp"]()
    x, y = tensors(program)
    x[::9, 2] = math.nan
    program.model, program.train = Filling(program.model), loader(x, y)
    assert program.outcome(NAME).severity is Severity.INFO


@pytest.mark.parametrize("kind", FLOATS)
def test_raw_scale(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = tensors(program)
    if kind == "cnn":
        program.model[1] = nn.Identity()  # type: ignore[operator]
    program.train = loader((x - x.min()) / (x.max() - x.min()) * 255 if kind == "cnn" else 300 * x, y)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "unnormalized-inputs" and outcome.severity is Severity.WARNING


def test_a_model_that_scales_its_input_itself() -> None:
    class Scaling(Filling):
        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x / 300)

    program = HEALTHY["mlp"]()
    x, y = tensors(program)
    program.model, program.train = Scaling(program.model), loader(300 * x, y)
    assert program.outcome(NAME).passed


@pytest.mark.parametrize("scaled", [True, False])
def test_bytes_that_the_model_converts(scaled: bool) -> None:
    class Converting(Filling):
        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.float() / (255 if scaled else 1))

    program = HEALTHY["cnn"]()
    y = program.train.dataset.tensors[1]
    program.model = Converting(program.model[4:])  # type: ignore[index]
    program.train = loader(torch.randint(0, 256, (len(y), 8, 4, 4), dtype=torch.uint8), y)
    outcome = program.outcome(NAME)
    assert outcome.passed if scaled else outcome.diagnosis == "unnormalized-inputs"


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("mlp", torch.float64), ("cnn", torch.uint8), ("regression", torch.float64), ("mlp", torch.int64)],
)
def test_a_type_that_the_model_does_not_take(kind: str, dtype: torch.dtype) -> None:
    program = HEALTHY[kind]()
    x, y = tensors(program)
    program.train = loader(x.to(dtype), y)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and str(dtype).removeprefix("torch.") in outcome.text
    assert outcome.fix is not None and "float()" in (outcome.fix.listing or "")


@pytest.mark.parametrize("kind", FLOATS)
def test_equal_samples(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = tensors(program)
    program.train = loader(torch.zeros_like(x), y)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "constant-inputs" and "every value is 0" in outcome.text


def test_features_that_never_change() -> None:
    program = HEALTHY["mlp"]()
    x, y = tensors(program)
    x[:, 3:] = 1.5
    program.train = loader(x, y)
    assert program.outcome(NAME).diagnosis == "constant-inputs"
    x[:, 3:] = torch.randn(len(x), 9)
    x[:, 3] = 1.5
    program.train = loader(x, y)
    outcome = program.outcome(NAME)
    assert outcome.passed and "feature 3 never changes" in outcome.text


@pytest.mark.parametrize("kind", ["rnn", "decoder"])
@pytest.mark.parametrize("bad", [-1, 20])
def test_ids_beyond_the_embedding(kind: str, bad: int) -> None:
    program = HEALTHY[kind]()
    x, y = tensors(program)
    x[::5, 0] = bad
    program.train = loader(x, y)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and f"id {bad}" in outcome.text and "words" in outcome.text


def test_an_id_that_no_look_came_upon() -> None:
    program = HEALTHY["rnn"]()
    x = torch.randint(0, 20, (3000, 9))
    x[2500, 3] = 20
    program.train = loader(x, x[:, -1] % 3, shuffle=False)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and "sample 2500" in outcome.text


class Batches:
    """Anything that gives batches."""

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return (batch for batch in self.batches)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            x = torch.randn(12)
            yield x, int(x[:4].argmax())


@pytest.mark.parametrize("how", ["list", "generator", "stream", "dict"])
def test_other_kinds_of_loaders(how: str) -> None:
    program = HEALTHY["mlp"]()
    batches: list[Any] = list(program.train)
    if how == "dict":
        batches = [{"x": x, "label": y} for x, y in batches]
    bad = [({**b, "x": b["x"] * math.nan} if isinstance(b, dict) else (b[0] * math.nan, b[1])) for b in batches]
    if how == "stream":
        program.train = torch.utils.data.DataLoader(Stream(), 16)
        assert program.outcome(NAME).passed
        return
    program.train = Batches(batches) if how == "generator" else batches
    assert program.outcome(NAME).passed
    program.train = Batches(bad) if how == "generator" else bad
    assert program.outcome(NAME).diagnosis == "nan-in-inputs"
