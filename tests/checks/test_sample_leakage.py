from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from checks.programs import HEALTHY, Decoder, Program, loader
from torchdoctor.findings import Severity

NAME = "sample-leakage"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed


def test_batch_norm_is_said() -> None:
    outcome = HEALTHY["cnn"]().outcome(NAME)
    assert outcome.passed and "batch norm" in outcome.text


def test_batch_norm_that_stays_in_eval_mode_shares_nothing() -> None:
    program = HEALTHY["cnn"]()
    program.model[1].eval()  # type: ignore[index]
    outcome = program.outcome(NAME)
    assert outcome.passed and "share" not in outcome.text


def _sequences() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randint(0, 20, (96, 9))
    return x, x[:, -1] % 3


class Reader(nn.Module):
    """Reads token ids with a layer that was built for (time, batch, features), and is not given that."""

    def __init__(self, kind: str, first: bool) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 16), nn.Linear(16, 3)
        self.body = {
            "lstm": lambda: nn.LSTM(16, 16, batch_first=first),
            "gru": lambda: nn.GRU(16, 16, batch_first=first),
            "attention": lambda: nn.MultiheadAttention(16, 2, batch_first=first),
            "transformer": lambda: nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=first),
        }[kind]()

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        x = self.body(x, x, x) if isinstance(self.body, nn.MultiheadAttention) else self.body(x)
        return self.head((x[0] if isinstance(x, tuple) else x)[:, -1])


@pytest.mark.parametrize("kind", ["lstm", "gru", "attention", "transformer"])
def test_batch_first_wrong(kind: str) -> None:
    outcome = Program(Reader(kind, False), loader(*_sequences()), nn.CrossEntropyLoss()).outcome(NAME)
    assert outcome.passed is False and "body" in outcome.text
    assert outcome.fix is not None and "batch_first=True" in (outcome.fix.listing or "")
    assert Program(Reader(kind, True), loader(*_sequences()), nn.CrossEntropyLoss()).outcome(NAME).passed


class Then(nn.Module):
    """A model, and something done to what it gives."""

    def __init__(self, model: nn.Module, change: str) -> None:
        super().__init__()
        self.model, self.change = model, change

    def forward(self, x: Tensor) -> Tensor:
        y = self.model(x)
        if self.change == "softmax":
            return y.softmax(0)
        if self.change == "mean":
            return y.mean(0, keepdim=True).expand_as(y)
        if self.change == "reshape":
            return y.movedim(0, -1).reshape(y.shape)
        return y - y.mean(0)


KINDS = ["mlp", "cnn", "rnn", "multilabel", "autoencoder", "decoder"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "diagnosis"),
    [
        ("softmax", "misplaced-activation"),
        ("mean", "representation-collapse"),
        ("reshape", None),
    ],
)
def test_mixing_outputs(kind: str, change: str, diagnosis: str | None) -> None:
    program = HEALTHY[kind]()
    program.model = Then(program.model, change)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == diagnosis
    assert "of the other 15 samples" in outcome.text


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_of_the_batch_are_a_note(kind: str) -> None:
    program = HEALTHY[kind]()
    program.model = Then(program.model, "centre")
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.INFO and "mean over the batch" in outcome.text


def test_the_first_module_is_named() -> None:
    class Mixing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.t().reshape(x.shape)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), Mixing(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    program = HEALTHY["mlp"]()
    program.model = model
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.where[0].module == "2" and "Mixing" in outcome.text


def test_time_first_batches() -> None:
    """The loader tells how many samples there are; they lie in dimension 1."""
    torch.manual_seed(0)

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.body, self.head = nn.Embedding(20, 16), nn.LSTM(16, 16), nn.Linear(16, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.body(self.words(ids))[0])

    def turn(samples: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        x, y = zip(*samples, strict=True)
        return torch.stack(x, 1), torch.stack(y, 1)

    ids = torch.randint(0, 20, (96, 9))
    for batch in (16, 9):  # where both are equal either may be meant
        train = loader(ids, ids % 3, batch=batch, collate_fn=turn)
        loss = lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten())  # noqa: E731
        assert Program(Tagger(), train, loss).outcome(NAME).passed


def test_similarities_of_all_pairs_are_meant() -> None:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = nn.Linear(6, 8), nn.Linear(5, 8)

        def forward(self, a: Tensor, b: Tensor) -> Tensor:
            return F.normalize(self.left(a), dim=1) @ F.normalize(self.right(b), dim=1).T

    def step(model: nn.Module, batch: list[Tensor]) -> Tensor:
        scores = model(batch[0], batch[1])
        return F.cross_entropy(10 * scores, torch.arange(len(scores)))

    program = Program(Towers(), loader(torch.randn(64, 6), torch.randn(64, 5)), more={"step_fn": step})
    assert program.outcome(NAME).passed


def test_graphs_are_meant() -> None:
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 3)

        def forward(self, x: Tensor, edges: Tensor) -> Tensor:
            return torch.zeros(len(x), 3).index_add(0, edges[1], self.inner(x)[edges[0]])

    batches = [(torch.randn(30, 6), torch.randint(0, 30, (2, 90)), torch.randint(0, 3, (30,))) for _ in range(3)]
    outcome = Program(Graph(), batches, nn.CrossEntropyLoss()).outcome(NAME)
    assert outcome.passed is None and "graph" in outcome.text


def test_one_sample_a_batch() -> None:
    program = HEALTHY["decoder"]()
    program.train = loader(*program.train.dataset[:], batch=1)
    assert program.outcome(NAME).passed is None


def test_random_models_are_no_leak() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Decoder()

        def forward(self, ids: Tensor) -> Tensor:
            y = self.inner(ids)
            return y + torch.randn_like(y)

    program = HEALTHY["decoder"]()
    program.model = Noisy()
    assert program.outcome(NAME).passed


class Mixed(nn.Module):
    """Gives each sample a part of its neighbour: always, in training mode alone, or of one that it draws."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self.when, self.body = when, nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.body(x))
        if self.when == "drawn":
            return y + 0.5 * y[torch.randperm(len(y))] if self.training else y
        return y + 0.5 * y.roll(1, 0) if self.when == "always" or (self.when == "train" and self.training) else y


def test_samples_that_mix_in_training_mode_alone() -> None:
    program = HEALTHY["mlp"]()
    program.model = Mixed("train")
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.WARNING and "in training mode" in outcome.text


@pytest.mark.parametrize("when", ["never", "drawn"])
def test_dropout_batch_norm_and_mixup_are_meant(when: str) -> None:
    program = HEALTHY["mlp"]()
    program.model = Mixed(when)
    assert program.outcome(NAME).passed


def test_batch_statistics_by_hand_in_training_mode_are_meant() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(12, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.inner(x)
            return y - y.mean(0) if self.training else y

    program = HEALTHY["mlp"]()
    program.model = Centred()
    assert program.outcome(NAME).passed


def _by_step(scores: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), target.flatten())


class Recurrent(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.head = kind, nn.Linear(16, 4)
        self.body = nn.GRUCell(6, 16) if kind == "cell" else nn.LSTM(6, 16, batch_first=kind == "batch first")

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "cell":
            state, states = torch.zeros(x.shape[1], 16), []
            for step in x:
                state = self.body(step, state)
                states.append(state)
            return self.head(torch.stack(states))
        return self.head(self.body(x)[0])


@pytest.mark.parametrize("kind", ["cell", "lstm", "batch first"])
def test_a_list_of_batches_with_or_without_time_first(kind: str) -> None:
    torch.manual_seed(0)
    shape = (16, 10) if kind == "batch first" else (10, 16)
    batches = [(torch.randn(*shape, 6), torch.randint(0, 4, shape)) for _ in range(4)]
    outcome = Program(Recurrent(kind), batches, _by_step).outcome(NAME)
    assert outcome.passed and outcome.figures["samples"] == 16
    mixing = Program(Then(Recurrent(kind), "reshape"), batches, _by_step)
    assert mixing.outcome(NAME).passed is False


def test_time_first_with_a_target_for_each_sequence() -> None:
    class Last(Recurrent):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)[-1]

    torch.manual_seed(0)
    batches = [(torch.randn(10, 16, 6), torch.randint(0, 4, (16,))) for _ in range(4)]
    outcome = Program(Last("lstm"), batches, nn.CrossEntropyLoss()).outcome(NAME)
    assert outcome.passed and outcome.figures["samples"] == 16


class Neighbours(nn.Module):
    """One graph of all samples, which the model holds."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        matrix = (torch.rand(40, 40) < 0.2).float()
        held = {"matrix": matrix, "sparse": matrix.to_sparse(), "edges": matrix.nonzero().T}[kind]
        self.kind, self.inner = kind, nn.Linear(6, 3)
        self.register_buffer("held", held)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        return y.index_add(0, self.held[0], y[self.held[1]]) if self.kind == "edges" else self.held @ y


@pytest.mark.parametrize("kind", ["matrix", "sparse", "edges"])
def test_a_graph_that_the_model_holds_is_meant(kind: str) -> None:
    batch = (torch.randn(40, 6), torch.randint(0, 3, (40,)))
    outcome = Program(Neighbours(kind), [batch], nn.CrossEntropyLoss()).outcome(NAME)
    assert outcome.passed is None and "graph" in outcome.text


def test_a_causal_mask_is_no_graph() -> None:
    program = HEALTHY["mlp"]()
    program.model = Mixed("always")
    program.model.register_buffer("mask", torch.ones(16, 16).tril().bool())
    assert program.outcome(NAME).passed is False


def test_outputs_that_nothing_changes_tell_nothing() -> None:
    program = HEALTHY["mlp"]()
    nn.init.zeros_(program.model[-1].weight)
    assert program.outcome(NAME).passed is None
