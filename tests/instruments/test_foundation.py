"""What instruments stand on: any kind of batch, and no trace left behind."""

from __future__ import annotations

import random
from collections import namedtuple
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from torchdoctor.errors import UsageError
from torchdoctor.instruments.batches import endless, first_batches
from torchdoctor.instruments.one_batch import samples_in
from torchdoctor.instruments.result import plain
from torchdoctor.instruments.state import untouched
from torchdoctor.instruments.subject import Subject, to_device

X, Y = torch.randn(12, 5), torch.randint(0, 3, (12,))


@dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor


class Named(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 3)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.inner(inputs)
        return {"logits": logits} | ({} if labels is None else {"loss": nn.functional.cross_entropy(logits, labels)})


@pytest.mark.parametrize("batch", [(X, Y), [X, Y], {"x": X, "labels": Y}, Batch(X, Y), namedtuple("Pair", "x y")(X, Y)])
def test_batches_of_any_kind(batch: object) -> None:
    model = nn.Linear(5, 3)
    expected = nn.functional.cross_entropy(model(X), Y)
    subject = Subject(model, nn.CrossEntropyLoss())
    assert torch.equal(subject.loss(batch), expected)
    assert torch.equal(subject.outputs(batch), model(X))


def test_models_that_give_their_own_loss() -> None:
    model = Named()
    subject, batch = Subject(model), {"inputs": X, "labels": Y}
    assert torch.equal(subject.loss(batch), model(X, Y)["loss"])
    assert torch.equal(subject.outputs(batch)["logits"], model.inner(X))
    own = Subject(model, nn.CrossEntropyLoss())
    assert torch.equal(own.loss(batch), subject.loss(batch))


@dataclass(frozen=True)
class NamedBatch:
    inputs: torch.Tensor
    labels: torch.Tensor
    size: int = field(init=False)
    unset: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.inputs))


class Sized(Named):
    def forward(self, inputs: torch.Tensor, labels: torch.Tensor | None = None, size: int = 0):  # type: ignore[no-untyped-def]
        return super().forward(inputs, labels)


def test_a_dataclass_goes_by_name_into_a_model_that_gives_its_own_loss() -> None:
    model, batch = Sized(), NamedBatch(X, Y)
    assert torch.equal(Subject(model).loss(batch), model(X, Y)["loss"])
    with pytest.raises(UsageError, match="does not take size of the batch"):
        Subject(Named()).loss(batch)


def test_one_tensor_may_be_input_and_target() -> None:
    class Copying(nn.Module):
        def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": (ids - labels).square().mean() + 1}

    assert Subject(Copying()).loss((X, X)).item() == 1


def test_a_model_with_its_own_loss_names_its_target_as_it_likes() -> None:
    class Answering(Named):
        def forward(self, inputs: torch.Tensor, answers: torch.Tensor):  # type: ignore[no-untyped-def]
            return super().forward(inputs, answers)

    subject, batch = Subject(Answering()), {"inputs": X, "answers": Y}
    assert subject.loss(batch).item() > 0 and subject.target(batch) is None


@pytest.mark.parametrize(
    ("model", "said"), [(nn.Linear(5, 3, device="meta"), "device meta"), (nn.LazyLinear(3), "without a shape yet")]
)
def test_weights_without_numbers_are_told(model: nn.Module, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Subject(model, nn.CrossEntropyLoss())


def test_a_batch_holds_as_many_samples_as_most_of_its_tensors() -> None:
    assert samples_in({"weights": torch.ones(3), "x": X, "y": Y}) == 12
    assert samples_in((torch.ones(7, 12), Y)) == 7 and samples_in("words") is None


def test_a_batch_of_inputs_alone_is_its_own_target() -> None:
    model = nn.Linear(5, 5)
    assert torch.equal(Subject(model, nn.MSELoss()).loss((X,)), nn.functional.mse_loss(model(X), X))


def test_anything_else_by_a_step_of_ones_own() -> None:
    model = nn.Linear(5, 3)
    subject = Subject(model, step_fn=lambda m, b: m(b.data).square().mean())
    assert subject.loss(SimpleNamespace(data=X)).item() > 0
    assert torch.equal(subject.outputs(SimpleNamespace(data=X)), model(X))


@pytest.mark.parametrize(
    ("subject", "batch", "said"),
    [
        (lambda: Subject(nn.Linear(5, 3), nn.CrossEntropyLoss(reduction="none")), (X, Y), r"shape \(12,\)"),
        (lambda: Subject(nn.Linear(5, 3), lambda out, target: 3.0), (X, Y), "float, not a tensor"),
        (lambda: Subject(nn.Linear(5, 3)), (X,), "gives no loss by itself"),
        (lambda: Subject(nn.Linear(5, 3)), (X, Y), "takes no target"),
        (lambda: Subject(nn.Linear(5, 3), nn.MSELoss()), {"a": X, "b": X}, "none of these is known"),
        (lambda: Subject("model"), (X, Y), "not a torch.nn.Module"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_said(subject, batch, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=said):
        subject().loss(batch)


def test_nothing_is_left_behind() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    model[0].eval()
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X), Y).backward()
        optimizer.step()
    step = next(iter(optimizer.state.values()))["step"]
    before = [t.clone() for t in model.state_dict().values()], [p.grad.clone() for p in model.parameters()]
    drawn = torch.random.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    with untouched(model, optimizer, schedule):
        model.train()
        for _ in range(3):
            nn.functional.cross_entropy(model(X), Y).backward()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        random.random(), np.random.rand()
    assert all(torch.equal(a, b) for a, b in zip(before[0], model.state_dict().values(), strict=True))
    assert all(torch.equal(a, p.grad) for a, p in zip(before[1], model.parameters(), strict=True))
    assert next(iter(optimizer.state.values()))["step"] is step and int(step) == 2
    assert optimizer.param_groups[0]["lr"] == 0.1 and schedule.last_epoch == 0
    assert not model[0].training and model[1].training
    assert torch.equal(drawn[0], torch.random.get_rng_state())
    assert (drawn[1] == np.random.get_state()[1]).all() and drawn[2] == random.getstate()


class Counting(nn.Module):
    """Puts new tensors in the place of its buffers, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 3)
        self.register_buffer("mean", torch.zeros(5))
        self.calls, self.last = 0, None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.calls, self.last = self.calls + 1, x
        self.register_buffer("seen", x[0])
        return self.inner(x - self.mean)


def test_buffers_and_attributes_that_a_forward_replaces_come_back() -> None:
    model = Counting()
    mean = model.mean
    with untouched(model):
        model(X)
        assert model.calls == 1 and model.mean is not mean
    assert model.mean is mean and not mean.any()
    assert model.calls == 0 and model.last is None and list(model.state_dict()) == list(Counting().state_dict())


def test_a_rate_that_is_a_tensor_stays_the_same_tensor() -> None:
    model, rate = nn.Linear(5, 3), torch.tensor(0.1)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    held = optimizer.param_groups[0]["lr"]
    with untouched(model, optimizer):
        held.fill_(3.0)
        optimizer.param_groups[0]["lr"] = torch.tensor(5.0)
    assert optimizer.param_groups[0]["lr"] is held and float(held) == pytest.approx(0.1)


class Augmented(Dataset):
    """Draws from generators of its own."""

    def __init__(self) -> None:
        self.own, self.transforms = np.random.default_rng(0), [SimpleNamespace(random=random.Random(0))]

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return X[index] + self.own.normal() + self.transforms[0].random.random() + torch.randn(()), Y[index]


def test_generators_of_the_dataset_are_put_back() -> None:
    loader = DataLoader(Augmented(), 4)
    torch.manual_seed(0)
    taken = first_batches(loader, 3)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(taken, loader, strict=True))


def test_an_epoch_under_way_and_kept_workers_stay_as_they_are() -> None:
    def walk(look: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        loader = DataLoader(Augmented(), 4, num_workers=1, persistent_workers=True, multiprocessing_context="fork")
        if look:
            first_batches(loader, 1)
        found = []
        for batch in loader:
            found.append(batch[0])
            if look:
                first_batches(loader, 1)
        return found

    assert torch.equal(torch.cat(walk(False)), torch.cat(walk(True)))


def test_a_loader_stays_where_it_was() -> None:
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(X, Y), 4, shuffle=True, generator=generator)
    taken = first_batches(loader, 2)
    again = first_batches(loader, 5)
    assert len(again) == 3
    assert torch.equal(taken[0][0], again[0][0])
    assert torch.equal(next(iter(loader))[0], taken[0][0])


def test_loaders_that_cannot_be_used_are_told() -> None:
    with pytest.raises(UsageError, match="gives no batch"):
        first_batches(DataLoader(TensorDataset(X, Y), 100, drop_last=True), 1)
    with pytest.raises(UsageError, match="is an iterator"):
        first_batches(iter([1, 2]), 1)
    with pytest.raises(UsageError, match="gives no batch"):
        next(endless([]))


PAIRS = [(X[:6], Y[:6]), (X[6:], Y[6:])]


class Samples(IterableDataset):
    def __init__(self, items: list[object]) -> None:
        self.items, self.walks = items, 0

    def __iter__(self):  # type: ignore[no-untyped-def]
        self.walks += 1
        return iter(self.items)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (TensorDataset(X, Y), r"is a dataset \(TensorDataset\).*DataLoader\(dataset, batch_size"),
        (Samples([(X[0], 3)]), r"DataLoader\(dataset, batch_size"),
        (Samples(list(zip(X, Y, strict=True))), r"DataLoader\(dataset, batch_size"),
        (X, "is a Tensor: this is one batch"),
        ((X, Y), r"put it in a list: \[batch\]"),
        ([X, Y], r"put it in a list: \[batch\]"),
        ((X, [1, 2]), "this is one batch"),
        ({"x": X, "y": Y}, "is a dict: this is one batch"),
        ({"train": PAIRS, "test": PAIRS}, "a dict of train, test; hand over what gives batches"),
    ],
)
def test_what_is_no_loader_is_not_taken_for_one(given: object, said: str) -> None:
    for take in (lambda: first_batches(given, 1), lambda: next(endless(given))):  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=said):
            take()


def test_lists_of_batches_and_streams_of_them_are_loaders() -> None:
    stream = Samples(PAIRS)
    assert len(first_batches(stream, 3)) == 2 and stream.walks == 0
    for batches in (PAIRS, tuple(PAIRS), [X[:6], X[6:]], [X[:6, :2], X[6:]], [{"x": X}], DataLoader(stream, None)):
        assert len(first_batches(batches, 9)) == len(list(batches))


def test_a_stream_without_length() -> None:
    class Stream(IterableDataset):
        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter(zip(X, Y, strict=True))

    loader = DataLoader(Stream(), 5)
    assert [len(b[1]) for b in first_batches(loader, 9)] == [5, 5, 2]
    assert [len(b[1]) for b, _ in zip(endless(loader), range(4), strict=False)] == [5, 5, 2, 5]


def test_results_become_plain() -> None:
    assert plain({"a": np.float32(1.5), "b": [float("nan"), torch.tensor(2)], 3: Batch(1, None)}) == {
        "a": 1.5,
        "b": [None, 2],
        "3": {"x": 1, "y": None},
    }


def test_types_survive_the_move() -> None:
    moved = to_device(Batch(X, Y), torch.device("cpu"))
    assert isinstance(moved, Batch) and moved.x is X
    moved = to_device(NamedBatch(X, Y), torch.device("meta"))
    assert moved.inputs.is_meta and moved.size == 12
