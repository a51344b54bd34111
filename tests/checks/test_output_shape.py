from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from checks.programs import HEALTHY, Program, Recurrent, loader, token_loss

NAME = "output-shape"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed


def _regressors() -> dict[str, tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    rnn = Recurrent()
    rnn.head = nn.Linear(24, 1)
    return {
        "mlp": (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)), torch.randn(64, 6)),
        "cnn": (
            nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1)),
            torch.randn(64, 1, 8, 8),
        ),
        "rnn": (rnn, torch.randint(0, 20, (64, 9))),
        "linear": (nn.Linear(3, 1), torch.randn(64, 3)),
    }


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": nn.MSELoss(),
    "l1": nn.L1Loss(),
    "huber": nn.HuberLoss(),
    "by hand": lambda out, y: ((out - y) ** 2).mean(),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", _regressors())
def test_a_column_against_a_row(kind: str, loss: str) -> None:
    model, x = _regressors()[kind]
    outcome = Program(model, loader(x, torch.randn(64)), LOSSES[loss]).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "shape-broadcast-in-loss"
    assert "(16, 1)" in outcome.text and "256" in outcome.text
    healthy = Program(model, loader(x, torch.randn(64, 1)), LOSSES[loss]).outcome(NAME)
    assert healthy.passed


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn"])
def test_labels_beyond_the_outputs(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = program.train.dataset[:]
    outcome = Program(program.model, loader(x, y + 1), program.loss_fn).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "invalid-labels"
    assert "out of range" in outcome.text


def test_tokens_beyond_the_outputs() -> None:
    program = HEALTHY["decoder"]()
    program.model.head = nn.Linear(32, 15)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "invalid-labels" and "15" in outcome.text


def test_a_label_that_comes_late() -> None:
    """In the validation, too, whose loss no batch of training shows."""
    program = HEALTHY["mlp"]()
    x, y = program.val.dataset[:]
    y = y.clone()
    y[-1] = 7
    program.val = loader(x, y, shuffle=False)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "invalid-labels" and "7" in outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "decoder"])
def test_floats_where_classes_are_needed(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = program.train.dataset[:]
    outcome = Program(program.model, loader(x, y.float()), program.loss_fn).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "invalid-labels"
    assert outcome.fix is not None and ".long()" in (outcome.fix.listing or "")


@pytest.mark.parametrize("kind", _regressors())
def test_classes_where_floats_are_needed(kind: str) -> None:
    model, x = _regressors()[kind]
    y = torch.randint(0, 2, (64, 1))
    outcome = Program(model, loader(x, y), nn.BCEWithLogitsLoss()).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "invalid-labels"
    assert outcome.fix is not None and ".float()" in (outcome.fix.listing or "")
    assert Program(model, loader(x, y.float()), nn.BCEWithLogitsLoss()).outcome(NAME).passed


def test_a_backward_that_fails() -> None:
    program = HEALTHY["regression"]()

    def loss(out: Tensor, y: Tensor) -> Tensor:
        squared = out.sigmoid()
        error = (squared - y).square().mean()
        squared.add_(1)
        return error

    program.loss_fn = loss
    outcome = program.outcome(NAME)
    assert outcome.passed is False and "backward" in outcome.text


@pytest.mark.parametrize("kind", ["mlp", "rnn"])
def test_class_numbers_as_quantities(kind: str) -> None:
    model, x = _regressors()[kind]
    y = torch.arange(64).remainder(8).float().unsqueeze(1)
    outcome = Program(model, loader(x, y), nn.MSELoss()).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "wrong-loss-for-task"


class TimeFirst(nn.Module):
    """Tags each of the tokens; gives (time, batch, classes) whatever is inside."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.words = kind, nn.Embedding(20, 16)
        bodies = {
            "lstm": lambda: nn.LSTM(16, 16),
            "gru": lambda: nn.GRU(16, 16),
            "attention": lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0),
            "convolution": lambda: nn.Conv1d(16, 16, 3, padding=1),
        }
        self.body, self.head = bodies[kind](), nn.Linear(16, 5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids).transpose(0, 1)
        x = self.body(x.permute(1, 2, 0)).permute(2, 0, 1) if self.kind == "convolution" else self.body(x)
        return self.head(x[0] if isinstance(x, tuple) else x)


@pytest.mark.parametrize("kind", ["lstm", "gru", "attention", "convolution"])
def test_time_and_batch_swapped(kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 20, (96, 9))
    train, model = loader(x, x % 5), TimeFirst(kind)
    outcome = Program(model, train, token_loss).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "inputs-and-labels-unrelated"
    assert Program(model, train, lambda out, y: token_loss(out.transpose(0, 1), y)).outcome(NAME).passed


def test_time_first_all_the_way() -> None:
    torch.manual_seed(0)
    batches = [(x, x % 5) for x in torch.randint(0, 20, (4, 9, 16))]
    model = TimeFirst("lstm")
    model.forward = lambda ids: model.head(model.body(model.words(ids))[0])  # type: ignore[method-assign]
    assert Program(model, batches, token_loss).outcome(NAME).passed is not False


def test_a_model_that_cannot_take_the_batch() -> None:
    outcome = Program(
        nn.Linear(5, 2), loader(torch.randn(32, 6), torch.zeros(32).long()), nn.CrossEntropyLoss()
    ).outcome(NAME)
    assert outcome.passed is False and "cannot be called" in outcome.text and "(16, 6)" in outcome.text


def test_a_loss_that_is_a_vector() -> None:
    program = HEALTHY["mlp"]()
    program.loss_fn = nn.CrossEntropyLoss(reduction="none")
    outcome = program.outcome(NAME)
    assert outcome.passed is False and "(16,)" in outcome.text


def test_weights_and_ignored_labels_do_not_look_like_mixing() -> None:
    program = HEALTHY["mlp"]()
    x, y = program.train.dataset[:]
    y = torch.where(torch.rand(len(y)) < 0.6, -100, y)
    program.train, program.loss_fn = loader(x, y), nn.CrossEntropyLoss(torch.tensor([1.0, 50.0, 3.0, 0.1]))
    assert program.outcome(NAME).passed


def test_a_contrastive_loss_weighs_samples_against_one_another() -> None:
    def contrast(model: nn.Module, batch: list[Tensor]) -> Tensor:
        codes = F.normalize(model(batch[0]), dim=1)
        alike = (codes @ codes.T / 0.2).masked_fill(torch.eye(len(codes), dtype=torch.bool), -1e9)
        return F.cross_entropy(alike, batch[1])

    torch.manual_seed(0)
    partners = torch.arange(16).roll(8).repeat(10)
    train = loader(torch.randn(160, 12), partners, shuffle=False)
    model = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8))
    outcome = Program(model, train, more={"step_fn": contrast}).outcome(NAME)
    assert outcome.passed is not False, outcome.text
