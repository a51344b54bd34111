from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, Subset, SubsetRandomSampler, TensorDataset

from checks.programs import HEALTHY, Program, loader
from torchdoctor.checks.data.near_duplicates import measure_nearness
from torchdoctor.findings import Severity

NAME = "split-overlap"
CONTINUOUS = ("mlp", "cnn", "regression", "multilabel", "autoencoder", "rnn")


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    outcome = HEALTHY[kind]().outcome(NAME)
    assert outcome.passed, outcome.text


def leak(program: Program, count: int) -> None:
    """Training samples in place of validation samples."""
    train, held = program.train.dataset.tensors, program.val.dataset.tensors
    mixed = [torch.cat([t[:count], v[count:]]) for t, v in zip(train, held, strict=True)]
    program.val = loader(*mixed, shuffle=False)


@pytest.mark.parametrize("kind", CONTINUOUS)
def test_copies_of_training_samples(kind: str) -> None:
    program = HEALTHY[kind]()
    leak(program, 16)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "train-validation-overlap" and outcome.severity is Severity.ERROR, outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "decoder"])
def test_indices_in_both(kind: str) -> None:
    program = HEALTHY[kind]()
    data = program.train.dataset
    program.train = DataLoader(Subset(data, range(100)), 16, shuffle=True)
    program.val = DataLoader(Subset(data, range(90, 120)), 16)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "train-validation-overlap" and "10 of the 30" in outcome.text


def test_the_same_loader_twice() -> None:
    program = HEALTHY["mlp"]()
    program.val = program.train
    assert program.outcome(NAME).severity is Severity.ERROR


class Listed(Sampler[int]):
    def __init__(self, places: list[int]) -> None:
        self.places = places

    def __iter__(self) -> Iterator[int]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


@pytest.mark.parametrize("own", [True, False])
def test_samplers_over_one_dataset(own: bool) -> None:
    program = HEALTHY["mlp"]()
    data = program.train.dataset
    program.train = DataLoader(data, 16, sampler=SubsetRandomSampler(range(200)))
    for places, good in ((range(200, 256), True), (range(180, 256), False)):
        sampler: Any = Listed(list(places)) if own else SubsetRandomSampler(places)
        program.val = DataLoader(data, 16, sampler=sampler)
        outcome = program.outcome(NAME)
        assert outcome.passed if good else outcome.diagnosis == "train-validation-overlap", outcome.text


class Noisy(Dataset[Any]):
    """Augments at random what a tensor or a list holds."""

    def __init__(self, data: Any, transform: Any, labels: Tensor) -> None:
        self.data, self.transform, self.labels = data, transform, labels

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> Any:
        x = torch.as_tensor(self.data[index])
        return (self.transform(x) if self.transform is not None else x), self.labels[index]


def jitter(x: Tensor) -> Tensor:
    return x + 0.3 * torch.randn_like(x)


@pytest.mark.parametrize("stored", ["tensor", "rows", "files"])
@pytest.mark.parametrize("shared", [0, 40])
def test_augmented_samples_by_what_is_behind_them(stored: str, shared: int) -> None:
    program = HEALTHY["mlp"]()
    torch.manual_seed(3)
    x, y = torch.randn(320, 12), torch.randint(0, 4, (320,))
    split = slice(0, 256), slice(256 - shared, 320 - shared)
    made = []
    for part, transform in zip(split, (jitter, None), strict=True):
        data: Any = x[part] if stored == "tensor" else [row.tolist() for row in x[part]]
        made.append(Noisy(data, transform, y[part]))
        if stored == "files":
            made[-1].names = [f"images/{i}.png" for i in range(320)][part]  # type: ignore[attr-defined]
    program.train, program.val = DataLoader(made[0], 16, shuffle=True), DataLoader(made[1], 16)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "train-validation-overlap" if shared else outcome.passed, outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "autoencoder"])
def test_near_copies(kind: str) -> None:
    program = HEALTHY[kind]()
    train, held = program.train.dataset.tensors, program.val.dataset.tensors
    count = len(held[0]) // 2
    near = train[0][:count] + 0.01 * torch.randn_like(train[0][:count])
    program.val = loader(torch.cat([near, held[0][count:]]), *(h for h in held[1:]), shuffle=False)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "train-validation-overlap" and outcome.severity is Severity.WARNING, outcome.text


@pytest.mark.parametrize("how", ["line", "plane", "blobs", "heavy", "waves"])
def test_no_alarm_for_data_that_is_dense_by_nature(how: str) -> None:
    torch.manual_seed(0)
    t = torch.rand(1000, 2)
    rows = {
        "line": torch.stack([t[:, 0], t[:, 0] ** 2, t[:, 0].sin()], 1),
        "plane": torch.cat([t, t[:, :1] * t[:, 1:]], 1),
        "blobs": torch.randn(40, 20).repeat_interleave(25, 0)[torch.randperm(1000)] * 3 + torch.randn(1000, 20),
        "heavy": torch.randn(1000, 12) / torch.rand(1000, 1).clamp_min(0.01),
        "waves": torch.sin(torch.arange(32) * 0.1 + 6.28 * t[:, :1]),
    }[how]
    near = measure_nearness(rows[:800], rows[800:])
    assert near is None or near.near < max(4, 5 * near.chance)


def test_few_validation_samples() -> None:
    program = HEALTHY["mlp"]()
    x, y = program.val.dataset.tensors
    program.val = loader(x[:8], y[:8], shuffle=False)
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "noisy-validation" and "45%" in outcome.text


def test_no_validation() -> None:
    program = HEALTHY["mlp"]()
    program.val = None
    assert program.outcome(NAME).passed is None


class Batches:
    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return (batch for batch in self.batches)


@pytest.mark.parametrize("how", ["list", "generator", "dict"])
@pytest.mark.parametrize("leaks", [True, False])
def test_other_kinds_of_loaders(how: str, leaks: bool) -> None:
    program = HEALTHY["mlp"]()
    if leaks:
        leak(program, 16)
    train, held = (
        [{"x": x, "label": y} if how == "dict" else (x, y) for x, y in part] for part in (program.train, program.val)
    )
    program.train = Batches(train) if how == "generator" else train
    program.val = Batches(held) if how == "generator" else held
    outcome = program.outcome(NAME)
    assert outcome.diagnosis == "train-validation-overlap" if leaks else outcome.passed, outcome.text


def test_lists_of_pairs_as_datasets() -> None:
    program = HEALTHY["mlp"]()
    for start in (256, 200):
        x, y = torch.randn(320, 12), torch.randint(0, 4, (320,))
        pairs = list(zip(x, y.tolist(), strict=True))
        program.train = DataLoader(pairs[:256], 16, shuffle=True)  # type: ignore[arg-type]
        program.val = DataLoader(pairs[start : start + 64], 16)  # type: ignore[arg-type]
        assert program.outcome(NAME).passed is (start == 256)


class Made(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            x = torch.randn(12)
            yield x, int(x[:4].argmax())


class Drawn(Dataset[Any]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        return torch.randn(12), index % 4


@pytest.mark.parametrize("data", [Made(), Drawn()])
def test_samples_that_are_made_at_random(data: Any) -> None:
    """Both splits are read from the same random state: what comes of it is equal, and no leak."""
    program = HEALTHY["mlp"]()
    program.train, program.val = DataLoader(data, 16), DataLoader(data, 16)
    outcome = program.outcome(NAME)
    assert outcome.passed is None and "at random" in outcome.text


def test_one_graph_with_masks() -> None:
    def step(model: Any, batch: Any) -> Tensor:
        return torch.nn.functional.cross_entropy(model(batch["x"])[batch["mask"]], batch["labels"][batch["mask"]])

    program = HEALTHY["mlp"]()
    graph = {"x": torch.randn(90, 12), "labels": torch.randint(0, 4, (90,)), "mask": torch.arange(90) < 60}
    program.train = program.val = [graph]
    program.loss_fn, program.more = None, {"step_fn": step}
    assert program.outcome(NAME).passed is None


def test_random_states_stay() -> None:
    program = HEALTHY["mlp"]()
    program.train = DataLoader(Noisy(torch.randn(200, 12), jitter, torch.zeros(200).long()), 16, shuffle=True)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    program.outcome(NAME)
    assert torch.equal(torch.rand(1), expected)
    assert isinstance(program.val.dataset, TensorDataset)
