"""What the rules of the training procedure read: kept graphs, schedulers' calls, token targets, the loss as called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torchdoctor
from torchdoctor import signals
from torchdoctor.facts import SchedulerFact, TokenTargetsFact
from torchdoctor.run import Run


def record(folder: Path, train: Callable[[], Any]) -> Run:
    torch.manual_seed(0)
    with torchdoctor.watch(out=folder, quiet=True) as doctor:
        train()
    run = doctor.run()
    assert run is not None
    return run


def descend(loss_of: Callable[[nn.Module, Tensor], Tensor], keep: Callable[[Tensor], object], steps: int = 25) -> None:
    model = nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(steps):
        loss = loss_of(model, torch.randn(8, 6))
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        keep(loss)


def squares(model: nn.Module, x: Tensor) -> Tensor:
    return F.mse_loss(model(x), x[:, :1])


def test_graphs_that_are_held_are_counted(tmp_path: Path) -> None:
    total = [torch.zeros(())]
    held = record(tmp_path / "a", lambda: descend(squares, lambda loss: total.append(total.pop() + loss)))
    freed = record(tmp_path / "b", lambda: descend(squares, lambda loss: loss.item()))
    assert held.scalar(signals.GRAPHS_KEPT).values[-1] >= 5
    assert not freed.scalar(signals.GRAPHS_KEPT).values.any()
    assert freed.scalar(signals.GRAPH_REACH).values.max() == 0


def test_a_state_that_is_carried_reaches_back(tmp_path: Path) -> None:
    state = [torch.zeros(8, 1)]

    def smoothed(model: nn.Module, x: Tensor) -> Tensor:
        state.append(0.9 * state.pop() + 0.1 * model(x))
        return state[0].square().mean()

    run = record(tmp_path, lambda: descend(smoothed, lambda loss: None))
    assert run.scalar(signals.GRAPH_REACH).values[-1] == run.scalar(signals.GRAPH_REACH).steps[-1]
    assert run.scalar(signals.GRAPH_NODES).values[-1] > 3 * run.scalar(signals.GRAPH_NODES).values[0]


def test_the_loss_as_called_stands_beside_what_backward_got(tmp_path: Path) -> None:
    run = record(tmp_path, lambda: descend(lambda m, x: -3 * squares(m, x), lambda loss: None))
    called, trained = run.scalar(signals.LOSS_CALLED), run.scalar(signals.LOSS_TRAIN)
    first = trained.values[trained.steps == called.steps[0]][0]
    assert first == pytest.approx(-3 * called.values[0], rel=1e-5)


def test_schedulers_are_counted_from_their_first_call(tmp_path: Path) -> None:
    def train() -> None:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        warm = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=3)
        then = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)
        scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, then], milestones=[3])
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(3, 4)).square().mean().backward()
            optimizer.step()
            scheduler.step()

    facts = {f.type: f for f in record(tmp_path, train).facts(SchedulerFact)}
    assert facts["SequentialLR"].calls == 6 and facts["SequentialLR"].called_at[:3] == [1, 2, 3]
    assert facts["StepLR"].nested and facts["StepLR"].settings["step_size"] == 5 and not facts["SequentialLR"].nested


class Language(nn.Module):
    """Ids in, and the loss of the next token out, as Hugging Face's models do it."""

    def __init__(self, causal: bool, shift: bool = True) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.causal, self.shift = causal, shift

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        x = self.embed(input_ids)
        length = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length) if self.causal else None
        logits = self.head(x + self.attention(x, x, x, attn_mask=mask)[0])
        if self.shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        return F.cross_entropy(logits.transpose(1, 2), labels)


@pytest.mark.parametrize(("causal", "shift"), [(True, True), (False, True), (True, False)])
def test_token_targets_and_what_attention_sees(tmp_path: Path, causal: bool, shift: bool) -> None:
    def train() -> None:
        model = Language(causal, shift)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            ids = torch.randint(0, 20, (6, 12))
            optimizer.zero_grad()
            model(input_ids=ids, labels=ids).backward()
            optimizer.step()

    fact = record(tmp_path, train).facts(TokenTargetsFact)[-1]
    assert (fact.following, fact.same) == ((1.0, 0.0) if shift else (0.0, 1.0))
    assert (fact.causal, fact.ahead) == ((1, 0) if causal else (0, 1))
    assert fact.by_position and fact.single


def test_masked_tokens_are_no_targets_of_the_same_kind(tmp_path: Path) -> None:
    def train() -> None:
        model = Language(causal=False, shift=False)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            ids = torch.randint(1, 20, (6, 12))
            hidden = torch.rand(6, 12) < 0.3
            optimizer.zero_grad()
            model(ids.masked_fill(hidden, 0), ids).backward()
            optimizer.step()

    assert not record(tmp_path, train).facts(TokenTargetsFact)


@pytest.mark.parametrize("masked", [True, False])
def test_attention_with_dropout_is_seen_as_it_is(masked: bool, tmp_path: Path) -> None:
    """With dropout torch falls back to plain operations on a CPU, whose softmax has a name of its own."""

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
            self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

        def forward(self, ids: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1]) if masked else None
            return self.head(self.encoder(self.embedding(ids), src_mask=mask))

    def train() -> None:
        model = Layer()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(4):
            ids = torch.randint(20, (6, 13))
            optimizer.zero_grad()
            F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
            optimizer.step()

    fact = record(tmp_path, train).facts(TokenTargetsFact)[-1]
    assert (fact.causal, fact.ahead) == ((1, 0) if masked else (0, 1))


class Translator(nn.Module):
    """Both sequences pass an embedding; what is decoded sees the source through one code."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.write = nn.Embedding(20, 16), nn.Embedding(20, 16)
        self.encoder, self.decoder = nn.GRU(16, 16, batch_first=True), nn.GRU(16, 16, batch_first=True)
        self.out = nn.Linear(16, 20)

    def forward(self, source: Tensor, given: Tensor) -> Tensor:
        _, code = self.encoder(self.read(source))
        return self.out(self.decoder(self.write(given), code)[0])


def translate(given: Callable[[Tensor], Tensor], copies: bool) -> None:
    model = Translator()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for _ in range(6):
        source = torch.randint(3, 20, (8, 7))
        target = source if copies else source.flip(1)
        loss = F.cross_entropy(model(source, given(target)).reshape(-1, 20), target.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def started(target: Tensor) -> Tensor:
    return torch.cat([torch.ones(len(target), 1, dtype=torch.long), target[:, :-1]], dim=1)


@pytest.mark.parametrize("copies", [False, True], ids=["reversed", "copied"])
def test_what_a_decoder_is_given(tmp_path: Path, copies: bool) -> None:
    right = record(tmp_path / "right", lambda: translate(started, copies)).facts(TokenTargetsFact)
    assert right and all(f.decoder and f.following > 0.9 for f in right)
    wrong = record(tmp_path / "wrong", lambda: translate(lambda target: target, copies)).facts(TokenTargetsFact)
    assert wrong and all(f.same > 0.9 and f.following < 0.3 for f in wrong)


def test_positions_that_are_embedded_are_no_second_sequence(tmp_path: Path) -> None:
    class Coded(Translator):
        def forward(self, source: Tensor, given: Tensor) -> Tensor:
            places = torch.arange(source.shape[1]).unsqueeze(0)
            _, code = self.encoder(self.read(source) + self.write(places))
            return self.out(self.decoder(code.transpose(0, 1).expand(-1, source.shape[1], -1))[0])

    def train() -> None:
        model = Coded()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        for _ in range(6):
            source = torch.randint(3, 20, (8, 7))
            loss = F.cross_entropy(model(source, source).reshape(-1, 20), source.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    assert not [f for f in record(tmp_path, train).facts(TokenTargetsFact) if f.decoder]
