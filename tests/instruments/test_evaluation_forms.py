"""What outputs and targets are is found from many samples, held against every batch, and the same however they are
batched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import DataLoader, TensorDataset

from torchdoctor.errors import UsageError
from torchdoctor.instruments.evaluating.evaluation import Evaluation, evaluate, evaluate_predictions


def judge(outputs: Tensor, target: Tensor, batch: int = 8, **options: Any) -> Evaluation:
    return evaluate(nn.Identity(), DataLoader(TensorDataset(outputs, target), batch), progress=False, **options)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("batch", [1, 7, 200])
def test_logits_of_a_small_batch_are_no_probabilities(batch: int) -> None:
    logits = torch.cat([torch.tensor([0.3]), 3 * torch.randn(199)])[:, None]
    yes = (logits.sigmoid() > torch.rand(200, 1)).float()
    found, whole = judge(logits, yes, batch), evaluate_predictions(logits, yes)
    assert found.scores == "logits"
    assert found.metrics["log_loss"].value == pytest.approx(whole.metrics["log_loss"].value)
    assert [w.index for w in found.worst] == [w.index for w in whole.worst]


def test_labels_whose_first_rows_hold_a_single_one() -> None:
    labels = (torch.rand(200, 5) < 0.4).float()
    labels[:8] = torch.eye(5)[torch.arange(8) % 5]
    for outputs, scores in ((torch.randn(200, 5), "logits"), (torch.rand(200, 5), "probabilities")):
        found = judge(outputs, labels)
        assert (found.task, found.scores, found.notes) == ("multilabel", scores, [])


def test_numbers_that_begin_with_zeros_and_ones() -> None:
    target = torch.cat([torch.ones(20), torch.randn(100)])
    assert judge(target + 0.1, target).task == "regression"


@pytest.mark.parametrize(
    ("outputs", "target", "said"),
    [
        (torch.linspace(0.1, 0.9, 400), torch.ones(400).index_fill(0, torch.arange(50), 0), None),
        (
            torch.linspace(0.1, 0.9, 400).index_fill(0, torch.tensor([390]), 4.0),
            torch.arange(400) % 2,
            r"batch 49 .* read as binary with probabilities: its outputs look like logits; say scores=",
        ),
        (
            torch.linspace(-4, 4, 400),
            (torch.arange(400) % 2).index_fill(0, torch.tensor([390]), 7),
            r"batch 49 .* read as binary with logits: with targets such as 0, 1, 7 it looks like regression; say task=",
        ),
        (
            torch.linspace(-4, 4, 1200).reshape(400, 3),
            torch.eye(3)[torch.arange(400) % 3].index_fill(0, torch.tensor([390]), 1),
            r"batch 49 .* read as multiclass with logits: .* looks like multilabel; say task=",
        ),
    ],
)
def test_a_later_batch_that_does_not_fit_is_told(outputs: Tensor, target: Tensor, said: str | None) -> None:
    if said is None:
        assert judge(outputs, target).scores == "probabilities"
        return
    with pytest.raises(UsageError, match=said):
        judge(outputs, target)


def test_what_was_told_holds_for_all() -> None:
    low = torch.linspace(0.1, 0.9, 400).index_fill(0, torch.tensor([390]), 4.0)
    assert judge(low, torch.arange(400) % 2, scores="logits").scores == "logits"
    labels = torch.eye(3)[torch.arange(400) % 3]
    assert judge(torch.randn(400, 3), labels.index_fill(0, torch.tensor([390]), 1), task="multilabel").samples == 400
    whole = judge(torch.randn(400, 3), labels.long(), task="multiclass")
    assert whole.task == "multiclass" and whole.elements == 400


def test_outputs_that_are_nan_do_not_tell() -> None:
    for outputs in (torch.rand(400), torch.randn(400, 3).softmax(1), torch.randn(400, 3).log_softmax(1)):
        scores = evaluate_predictions(outputs, torch.arange(400) % 2).scores
        outputs[:8] = outputs[380:] = float("nan")
        found = judge(outputs, torch.arange(400) % 2)
        assert found.scores == scores != "logits" and found.samples == 372


def test_targets_that_are_left_out_do_not_tell() -> None:
    target = torch.arange(400) % 2
    target[5] = target[390] = -100
    found = judge(torch.randn(400), target)
    assert found.task == "binary" and found.samples == 398
    assert judge(torch.randn(400, 1), target.masked_fill(target < 0, 9), ignore_index=9).task == "binary"


def test_texts_of_any_length_where_one_is_as_long_as_there_are_classes() -> None:
    def batch(length: int) -> tuple[Tensor, Tensor]:
        label = torch.randint(0, 4, (3, length))
        return 5.0 * one_hot(label, 4).transpose(1, 2).float(), label

    for lengths in ((4, 9, 1), (1, 4, 6), (9, 4, 200, 4, 1)):
        found = evaluate(nn.Identity(), [batch(n) for n in lengths], progress=False)
        assert found.task == "tokens" and found.metrics["accuracy"].value == 1.0, lengths


def test_classes_may_not_become_more() -> None:
    batches = [(torch.randn(300, 3), torch.arange(300) % 3), (torch.randn(8, 4), torch.arange(8) % 4)]
    with pytest.raises(UsageError, match=r"batch 2 .* shape \(8, 4\)"):
        evaluate(nn.Identity(), batches, progress=False)
    with pytest.raises(UsageError, match="do not look alike"):
        evaluate(nn.Identity(), [(o[:8], t[:8]) for o, t in batches], progress=False)


def test_memory_that_a_loader_fills_again_and_batches_of_nothing() -> None:
    logits, label = torch.randn(64, 3), torch.randint(0, 3, (64,))

    class Reusing:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            x, y = torch.empty(8, 3), torch.empty(8).long()
            for i in range(0, 64, 8):
                x.copy_(logits[i : i + 8])
                y.copy_(label[i : i + 8])
                yield x, y
                yield x[:0], y[:0]

    found = evaluate(nn.Identity(), Reusing(), progress=False)
    assert found.metrics == evaluate_predictions(logits, label).metrics


@dataclass
class Tokens:
    input_ids: Tensor
    labels: Tensor


class Language(nn.Module):
    """Says the token `ahead` of each, and gives its loss where asked to."""

    def __init__(self, ahead: int, loss_ahead: int | None = None) -> None:
        super().__init__()
        self.ahead, self.loss_ahead = ahead, loss_ahead

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = 4.0 * one_hot((input_ids + self.ahead) % 7, 7).float()
        if labels is None or self.loss_ahead is None:
            return {"logits": logits}
        kept = logits[:, : logits.shape[1] - self.loss_ahead]
        return {"logits": logits, "loss": cross_entropy(kept.flatten(0, 1), labels[:, self.loss_ahead :].flatten())}


IDS = (torch.arange(12) + torch.arange(16)[:, None]) % 7


@pytest.mark.parametrize(
    ("model", "accuracy", "said"),
    [
        (Language(1), 1.0, "compared with the next token; shift=False"),
        (Language(0), 1.0, r"own place, which they name more often \(100%\) than the next one \(0%\); shift=True"),
        (Language(3), 0.0, "compared with the next token"),
        # tied embeddings name their own token before they are trained: the loss says what is meant
        (Language(0, loss_ahead=1), 0.0, "compared with the next token"),
        (Language(1, loss_ahead=0), 0.0, "own place, and so does the model's own loss"),
    ],
)
@pytest.mark.parametrize("kind", [dict, Tokens])
def test_which_token_outputs_belong_to(kind: Any, model: nn.Module, accuracy: float, said: str) -> None:
    batches = [kind(input_ids=part, labels=part.clone()) for part in IDS.split(2)]
    found = evaluate(model, batches, progress=False)
    assert found.metrics["accuracy"].value == accuracy
    (note,) = found.notes
    assert re.search(said, note), note


def test_labels_of_some_tokens_alone_are_told_apart_from_input_ids() -> None:
    """Some of the tokens that a masked language model is asked for stand unmasked in its input."""
    masked = IDS.clone()
    masked[1:, 3] = 6 - masked[1:, 3]
    labels = torch.full_like(IDS, -100)
    labels[:, 3] = IDS[:, 3]
    batches = [{"input_ids": i, "labels": y} for i, y in zip(masked.split(1), labels.split(1), strict=True)]
    assert evaluate(Language(0), batches, progress=False).notes == ["176 targets are -100 and left out"]
    copied = [{"input_ids": IDS.repeat(4, 1), "labels": IDS.repeat(4, 1)}, {"input_ids": masked, "labels": IDS}]
    with pytest.raises(UsageError, match=r"batch 2 .* labels are not its input ids; say with shift=True"):
        evaluate(Language(1), copied, progress=False)
    assert evaluate(Language(1), copied, progress=False, shift=True).task == "tokens"
