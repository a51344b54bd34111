"""Floors and guesses of losses, against closed forms and against the losses themselves."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchdoctor.instruments.overfitting.dropout import without_dropout
from torchdoctor.instruments.overfitting.loss_floor import floor_of, guess_of, least
from torchdoctor.instruments.overfitting.loss_reading import (
    floor_of_loss,
    groups_of_equal_beginnings,
    groups_of_equal_inputs,
    read_loss,
)
from torchdoctor.instruments.subject import Subject
from torchdoctor.probes.loss_calls import LossCall

torch.manual_seed(0)
SCORES, LABELS = torch.randn(8, 5), torch.tensor([0, 1, 2, 3, 4, 0, 0, 1])
SOFT = torch.softmax(torch.randn(8, 5), 1)


def call_of(loss: nn.Module, scores: torch.Tensor, target: torch.Tensor) -> LossCall:
    model = nn.Identity()
    reading = read_loss(Subject(model, lambda out, _: loss(out, target)), (scores.requires_grad_(False), target))
    assert reading.call is not None
    return reading.call


@pytest.mark.parametrize(
    ("loss", "target", "scores"),
    [
        (nn.CrossEntropyLoss(label_smoothing=0.2), LABELS, SCORES),
        (nn.CrossEntropyLoss(label_smoothing=0.2, weight=torch.tensor([1.0, 2, 3, 4, 5])), LABELS, SCORES),
        (nn.CrossEntropyLoss(label_smoothing=0.1, reduction="sum"), LABELS, SCORES),
        (nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=0), LABELS, SCORES),
        (nn.CrossEntropyLoss(), SOFT, SCORES),
        (nn.CrossEntropyLoss(label_smoothing=0.3), SOFT, SCORES),
        (nn.CrossEntropyLoss(label_smoothing=0.2), LABELS.reshape(4, 2), torch.randn(4, 5, 2)),
        (nn.BCEWithLogitsLoss(), torch.rand(8, 5), SCORES),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2, 3, 4, 5])), torch.rand(8, 5), SCORES),
        (nn.BCEWithLogitsLoss(weight=torch.tensor([1.0, 2, 3, 4, 5]), reduction="sum"), torch.rand(8, 5), SCORES),
        (nn.PoissonNLLLoss(), torch.rand(8, 5) * 4, SCORES),
        (nn.PoissonNLLLoss(full=True), torch.rand(8, 5) * 4, SCORES),
    ],
)
def test_the_floor_is_where_descent_ends(loss: nn.Module, target: torch.Tensor, scores: torch.Tensor) -> None:
    floor = floor_of(call_of(loss, scores, target))
    free = scores.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([free], max_iter=300, line_search_fn="strong_wolfe", tolerance_grad=1e-9)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss(free, target)
        value.backward()
        return value

    optimizer.step(closure)
    assert floor == pytest.approx(float(loss(free, target).detach()), rel=1e-3, abs=1e-4)


def test_closed_forms() -> None:
    smoothed = floor_of(call_of(nn.CrossEntropyLoss(label_smoothing=0.1), SCORES, LABELS))
    high, low = 0.92, 0.02
    assert smoothed == pytest.approx(-(high * math.log(high) + 4 * low * math.log(low)), rel=1e-5)
    assert floor_of(call_of(nn.CrossEntropyLoss(), SCORES, LABELS)) == 0.0
    divergence = call_of(nn.KLDivLoss(reduction="batchmean"), SCORES.log_softmax(1), SOFT)
    assert floor_of(divergence) == pytest.approx(0, abs=1e-5)
    assert floor_of(call_of(nn.MSELoss(), SCORES, SOFT)) == 0.0
    assert floor_of(call_of(nn.NLLLoss(), SCORES, LABELS)) is None


def test_guesses_are_the_loss_of_the_best_constant() -> None:
    shares = torch.bincount(LABELS) / len(LABELS)
    entropy = float(-(shares * shares.log()).sum())
    assert guess_of(call_of(nn.CrossEntropyLoss(), SCORES, LABELS)) == pytest.approx(entropy, rel=1e-5)
    numbers = torch.randn(8, 3)
    spread = float(F.mse_loss(numbers.mean(0).expand(8, 3), numbers))
    assert guess_of(call_of(nn.MSELoss(), torch.zeros(8, 3), numbers)) == pytest.approx(spread, rel=1e-5)
    flags = (torch.rand(8, 3) > 0.5).float()
    mean = flags.mean(0).expand(8, 3)
    assert guess_of(call_of(nn.BCEWithLogitsLoss(), torch.zeros(8, 3), flags)) == pytest.approx(
        float(F.binary_cross_entropy(mean, flags)), rel=1e-4
    )


def test_groups_of_samples() -> None:
    call = call_of(nn.CrossEntropyLoss(), torch.zeros(4, 2), torch.tensor([0, 1, 1, 1]))
    assert least(call, torch.tensor([0, 0, 1, 1])) == pytest.approx(math.log(2) / 2)
    places = call_of(nn.CrossEntropyLoss(), torch.zeros(4, 2), torch.tensor([0, 1, 1, 1]))
    assert least(places, torch.tensor([[0, 1], [2, 1]]), by_place=True) == pytest.approx(0.0)
    assert least(places, torch.tensor([[0, 1], [0, 1]]), by_place=True) == pytest.approx(math.log(2) / 2)


@pytest.mark.parametrize("change", [lambda v: v / 4, lambda v: v + 3, lambda v: -v])
def test_a_loss_that_was_scaled_or_shifted(change) -> None:  # type: ignore[no-untyped-def]
    model = nn.Linear(5, 5)
    subject = Subject(model, lambda out, y: change(F.cross_entropy(out, y, label_smoothing=0.1)))
    first = read_loss(subject, (SCORES, LABELS))
    assert not floor_of_loss(first).known
    with torch.no_grad():
        model.weight.mul_(0.5)
    found = floor_of_loss(first, read_loss(subject, (SCORES, LABELS)))
    plain = floor_of_loss(read_loss(Subject(model, nn.CrossEntropyLoss(label_smoothing=0.1)), (SCORES, LABELS)))
    assert found.known and found.value == pytest.approx(float(change(torch.tensor(plain.value))), rel=1e-3)
    assert (found.factor < 0) == (change(1.0) < 0)


def test_equal_inputs_and_beginnings() -> None:
    x = torch.tensor([[1.0, 2], [1, 2], [3, 4]])
    reading = read_loss(Subject(nn.Linear(2, 2), nn.CrossEntropyLoss()), (x, torch.tensor([0, 1, 0])))
    assert groups_of_equal_inputs(reading).tolist() == [0, 0, 1]  # type: ignore[union-attr]
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(8, 3))
    tokens = read_loss(
        Subject(model, nn.CrossEntropyLoss()), (torch.tensor([[1, 2], [1, 3], [1, 2]]), torch.zeros(3).long())
    )
    assert groups_of_equal_beginnings(tokens).tolist() == [[0, 1], [0, 2], [0, 1]]  # type: ignore[union-attr]


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Dropout(0.5)
        self.attention = nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True)
        self.recurrent = nn.LSTM(4, 4, 2, dropout=0.5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inside(self.attention(x, x, x)[0])
        return F.dropout(self.recurrent(x)[0], 0.5, training=self.training)


def test_dropout_is_off_for_a_while() -> None:
    model, x = Dropping(), torch.randn(2, 3, 4)
    with without_dropout(model, functions=True) as any_:
        assert any_ and torch.equal(model(x), model(x))
    assert model.inside.p == model.attention.dropout == model.recurrent.dropout == 0.5
    assert not torch.equal(model(x), model(x))
