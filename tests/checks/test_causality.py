from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from checks.programs import HEALTHY, Decoder, Program, loader, token_loss

NAME = "causality"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    outcome = HEALTHY[kind]().outcome(NAME)
    assert outcome.passed if kind == "decoder" else outcome.passed is None and outcome.text


class Language(nn.Module):
    """Predicts the next of its tokens, or may look ahead at it."""

    def __init__(self, kind: str, ahead: bool, time_first: bool = False) -> None:
        super().__init__()
        self.kind, self.ahead, self.words = kind, ahead, nn.Embedding(16, 16)
        self.body = {
            "lstm": lambda: nn.LSTM(16, 16, batch_first=not time_first, bidirectional=ahead),
            "gru": lambda: nn.GRU(16, 16, batch_first=not time_first, bidirectional=ahead),
            "convolution": lambda: nn.Conv1d(16, 16, 3, padding=1 if ahead else 0),
            "attention": lambda: nn.MultiheadAttention(16, 2, batch_first=True),
            "mask off by one": lambda: nn.MultiheadAttention(16, 2, batch_first=True),
        }[kind]()
        self.head = nn.Linear(32 if ahead and kind in ("lstm", "gru") else 16, 16)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        if self.kind == "convolution":
            x = x.transpose(1, 2)
            return self.head(self.body(x if self.ahead else F.pad(x, (2, 0))).transpose(1, 2))
        if isinstance(self.body, nn.MultiheadAttention):
            places = torch.arange(ids.shape[1])
            reach = places[:, None] + (1 if self.ahead else 0)
            mask = None if self.ahead and self.kind == "attention" else places > reach
            return self.head(self.body(x, x, x, attn_mask=mask, need_weights=False)[0])
        return self.head(self.body(x)[0])


def _ids(rows: int = 96, length: int = 13) -> Tensor:
    torch.manual_seed(0)
    return torch.randint(0, 16, (rows, length))


KINDS = ["lstm", "gru", "convolution", "attention", "mask off by one"]


@pytest.mark.parametrize("kind", KINDS)
def test_looking_ahead(kind: str) -> None:
    ids = _ids()
    train = loader(ids[:, :-1], ids[:, 1:].clone())
    outcome = Program(Language(kind, True), train, token_loss).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "missing-target-shift"
    assert "body" in outcome.text and outcome.fix is not None and outcome.fix.listing
    assert outcome.figures["changed"] == (6 if kind in ("lstm", "gru", "attention") else 1)
    assert Program(Language(kind, False), train, token_loss).outcome(NAME).passed


def test_a_transformer_without_its_mask() -> None:
    program = HEALTHY["decoder"]()
    program.model = Decoder(causal=False)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "missing-target-shift"
    assert outcome.fix is not None and "is_causal" in (outcome.fix.listing or "")


@pytest.mark.parametrize("kind", [*KINDS, "decoder"])
def test_targets_that_are_not_shifted(kind: str) -> None:
    ids = _ids()
    model = Decoder() if kind == "decoder" else Language(kind, False)
    outcome = Program(model, loader(ids, ids.clone()), token_loss).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "missing-target-shift"
    assert outcome.fix is not None and "ids[:, :-1], ids[:, 1:]" in (outcome.fix.listing or "")


@pytest.mark.parametrize("ahead", [False, True])
def test_time_first(ahead: bool) -> None:
    batches = [(ids[:-1], ids[1:].clone()) for ids in torch.randint(0, 16, (4, 13, 8))]
    outcome = Program(Language("lstm", ahead, time_first=True), batches, token_loss).outcome(NAME)
    assert outcome.passed is not ahead and outcome.passed is not None


@pytest.mark.parametrize("ahead", [False, True])
def test_a_model_that_shifts_by_itself(ahead: bool) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Language("attention", ahead)

        def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            logits = self.inner(input_ids)
            loss = {} if labels is None else {"loss": token_loss(logits[:, :-1], labels[:, 1:])}
            return {"logits": logits, **loss}

    batches = [{"input_ids": ids, "labels": ids.clone()} for ids in torch.randint(0, 16, (4, 8, 12))]
    outcome = Program(Own(), batches).outcome(NAME)
    assert outcome.passed is not ahead and outcome.passed is not None
    step = lambda model, batch: model(**batch)["loss"]  # noqa: E731
    assert Program(Own(), batches, more={"step_fn": step}).outcome(NAME).passed is outcome.passed


@pytest.mark.parametrize("ahead", [False, True])
def test_numbers_instead_of_tokens(ahead: bool) -> None:
    class Forecast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.GRU(3, 8, batch_first=True, bidirectional=ahead)
            self.head = nn.Linear(16 if ahead else 8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x)[0])

    series = torch.randn(64, 11, 3).cumsum(1)
    train = loader(series[:, :-1], series[:, 1:].clone())
    outcome = Program(Forecast(), train, nn.MSELoss()).outcome(NAME)
    assert outcome.passed is not ahead and outcome.passed is not None
    by_hand = Program(Forecast(), train, lambda out, y: (out - y).square().mean())
    assert by_hand.outcome(NAME).passed is outcome.passed


class Translation(nn.Module):
    """Reads all of the source, and predicts the target from what stands before."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal, self.words = causal, nn.Embedding(16, 16)
        self.body = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 16)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1]) if self.causal else None
        return self.head(self.body(self.words(source), self.words(target), tgt_mask=mask))


@pytest.mark.parametrize("causal", [True, False])
def test_an_encoder_may_look_both_ways(causal: bool) -> None:
    source, target = _ids(length=9), _ids(length=11).flip(0)
    train = loader(source, target[:, :-1], target[:, 1:].clone())
    outcome = Program(Translation(causal), train, token_loss).outcome(NAME)
    assert outcome.passed is causal


@pytest.mark.parametrize("causal", [True, False])
def test_the_source_of_a_copy_may_be_seen(causal: bool) -> None:
    """Its next steps are the targets, too."""
    ids = _ids(length=11)
    outcome = Program(Translation(causal), loader(ids, ids[:, :-1], ids[:, 1:].clone()), token_loss).outcome(NAME)
    assert outcome.passed is causal
    assert causal or "decoder" in outcome.text


def test_tagging_and_masking_may_look_both_ways() -> None:
    ids = _ids()
    tags = Program(Language("lstm", True), loader(ids, ids % 5), token_loss).outcome(NAME)
    assert tags.passed is None and "both ways" in tags.text
    masked = torch.where(torch.rand(ids.shape) < 0.3, 0, ids)
    wanted = torch.where(masked == ids, -100, ids)
    assert Program(Language("attention", True), loader(masked, wanted), token_loss).outcome(NAME).passed is None
    assert Program(Language("attention", True), loader(masked, ids), token_loss).outcome(NAME).passed is None


def test_a_prefix_may_see_all_of_itself() -> None:
    class Prefix(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(16, 16), nn.Linear(16, 16)
            self.body = nn.MultiheadAttention(16, 2, batch_first=True)

        def forward(self, ids: Tensor) -> Tensor:
            x, places = self.words(ids), torch.arange(ids.shape[1])
            hidden = (places > places[:, None]) & (places >= 8)
            return self.head(self.body(x, x, x, attn_mask=hidden, need_weights=False)[0])

    ids = _ids()
    wanted = ids[:, 1:].clone()
    wanted[:, :7] = -100  # the token after the prefix is the first that is asked for
    assert Program(Prefix(), loader(ids[:, :-1], wanted), token_loss).outcome(NAME).passed


def test_an_autoencoder_of_tokens_may_see_its_targets() -> None:
    class Code(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.read = nn.Embedding(16, 16), nn.GRU(16, 16, batch_first=True)
            self.write = nn.Linear(16, 12 * 16)

        def forward(self, ids: Tensor) -> Tensor:
            return self.write(self.read(self.words(ids))[1][0]).reshape(len(ids), 12, 16)

    ids = _ids(length=12)
    assert Program(Code(), loader(ids, ids.clone()), token_loss).outcome(NAME).passed is None


def test_a_model_that_gives_its_loss_as_well() -> None:
    """As many do that are called with their targets."""

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Decoder()

        def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
            scores = self.inner(ids)
            return scores, F.cross_entropy(scores.flatten(0, 1), targets.flatten())

    program = HEALTHY["decoder"]()
    program.model, program.loss_fn = WithLoss(), None
    program.more = {"step_fn": lambda model, batch: model(*batch)[1]}
    outcome = program.outcome(NAME)
    assert outcome.passed, outcome.text


@pytest.mark.parametrize("ahead", [False, True])
def test_channels_first(ahead: bool) -> None:
    torch.manual_seed(0)
    waves = torch.randn(200, 2, 33).cumsum(-1)
    look = nn.Conv1d(2, 2, 3, padding=1) if ahead else nn.Sequential(nn.ConstantPad1d((2, 0), 0.0), nn.Conv1d(2, 2, 3))
    outcome = Program(look, loader(waves[:, :, :-1], waves[:, :, 1:].clone()), nn.MSELoss()).outcome(NAME)
    assert outcome.passed is (not ahead), outcome.text
