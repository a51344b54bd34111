from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from checks.programs import HEALTHY, Program
from torchdoctor.findings import Severity

NAME = "head-and-loss"
CLASSIFIERS = ["mlp", "cnn", "rnn", "decoder"]


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed


def _ended(kind: str, end: nn.Module, loss: Callable[..., Tensor] | None = None) -> Program:
    """With one more module at its end, and another loss."""
    program = HEALTHY[kind]()
    program.model = nn.Sequential(program.model, end)
    if loss is not None and kind == "decoder":
        program.loss_fn = lambda out, y: loss(out.flatten(0, 1), y.flatten())
    elif loss is not None:
        program.loss_fn = loss
    return program


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_softmax_before_cross_entropy(kind: str) -> None:
    outcome = _ended(kind, nn.Softmax(-1)).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "softmax-before-cross-entropy"
    assert outcome.severity is Severity.ERROR and outcome.fix is not None


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_raw_scores_into_nll(kind: str) -> None:
    outcome = _ended(kind, nn.Identity(), F.nll_loss).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "wrong-loss-for-task"
    assert _ended(kind, nn.LogSoftmax(-1), F.nll_loss).outcome(NAME).passed


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_probabilities_into_nll(kind: str) -> None:
    outcome = _ended(kind, nn.Softmax(-1), F.nll_loss).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "wrong-loss-for-task"


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_log_softmax_over_the_batch(kind: str) -> None:
    outcome = _ended(kind, nn.LogSoftmax(0), F.nll_loss).outcome(NAME)
    assert outcome.passed is False
    assert outcome.diagnosis == "misplaced-activation" if kind != "decoder" else outcome.diagnosis is not None
    assert "sum to" in outcome.text


def test_a_harmless_second_log_softmax_is_a_note() -> None:
    outcome = _ended("mlp", nn.LogSoftmax(-1)).outcome(NAME)
    assert outcome.passed is False and outcome.severity is Severity.INFO


def _binary(kind: str, loss: Callable[..., Tensor], *ends: nn.Module) -> Program:
    """Yes or no instead of the classes, by one more layer."""
    program = HEALTHY[kind]()
    width = {"mlp": 4, "cnn": 2, "rnn": 3, "multilabel": 3}[kind]
    program.model = nn.Sequential(program.model, nn.Linear(width, 1 if kind != "multilabel" else 3), *ends)
    program.loss_fn = lambda out, y: loss(out, (y > 0).float().reshape(out.shape))
    return program


BINARIES = ["mlp", "cnn", "rnn", "multilabel"]


@pytest.mark.parametrize("kind", BINARIES)
def test_sigmoid_before_bce_with_logits(kind: str) -> None:
    outcome = _binary(kind, F.binary_cross_entropy_with_logits, nn.Sigmoid()).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "sigmoid-before-bce-with-logits"
    assert _binary(kind, F.binary_cross_entropy_with_logits).outcome(NAME).passed


@pytest.mark.parametrize("kind", BINARIES)
def test_sigmoid_missing_before_bce(kind: str) -> None:
    outcome = _binary(kind, F.binary_cross_entropy).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "wrong-loss-for-task"
    assert outcome.severity is Severity.ERROR and "raw scores" in outcome.text


@pytest.mark.parametrize("kind", BINARIES)
def test_bce_on_probabilities_is_a_note(kind: str) -> None:
    outcome = _binary(kind, F.binary_cross_entropy, nn.Sigmoid()).outcome(NAME)
    assert outcome.severity is Severity.INFO or outcome.passed


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn"])
def test_softmax_over_one_unit(kind: str) -> None:
    outcome = _binary(kind, F.binary_cross_entropy, nn.Softmax(-1)).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "misplaced-activation" and "always one" in outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_cross_entropy_over_one_unit(kind: str) -> None:
    program = _binary(kind, F.cross_entropy)
    program.loss_fn = lambda out, y: F.cross_entropy(out, torch.zeros_like(y))
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis in ("misplaced-activation", "wrong-loss-for-task")


LOSSES: dict[str, Callable[..., Tensor]] = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth": F.smooth_l1_loss,
    "squared by hand": lambda out, y: (out - y).square().mean(),
    "absolute by hand": lambda out, y: (y - out).abs().mean(),
}
ENDS: dict[str, nn.Module] = {"sigmoid": nn.Sigmoid(), "tanh": nn.Tanh(), "relu": nn.ReLU()}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["regression", "autoencoder"])
def test_a_bounded_head_on_unbounded_targets(kind: str, end: str, loss: str) -> None:
    outcome = _ended(kind, ENDS[end], LOSSES[loss]).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "misplaced-activation"
    assert "targets" in outcome.text and outcome.severity is Severity.ERROR


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("kind", ["regression", "autoencoder"])
def test_a_bounded_head_on_targets_in_its_range(kind: str, loss: str) -> None:
    bounded = LOSSES[loss]
    program = _ended(kind, nn.Sigmoid(), lambda out, y: bounded(out, y.sigmoid()))
    assert program.outcome(NAME).passed


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_relu_on_scores(kind: str) -> None:
    outcome = _ended(kind, nn.ReLU()).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "misplaced-activation"


def test_the_loop_of_the_user() -> None:
    """With a step_fn there is no loss function to look at; the graph tells."""
    program = HEALTHY["mlp"]()
    program.loss_fn = None

    def step(model: nn.Module, batch: list[Tensor]) -> Tensor:
        scores = model(batch[0]).softmax(1)
        return -torch.log_softmax(scores, 1).gather(1, batch[1][:, None]).mean()

    program.more = {"step_fn": step}
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "softmax-before-cross-entropy"
    assert any(place.line for place in outcome.where)


def test_soft_labels_and_smoothing_are_meant() -> None:
    program = HEALTHY["decoder"]()
    program.loss_fn = lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten(), label_smoothing=0.1)
    assert program.outcome(NAME).passed
    program = HEALTHY["mlp"]()
    program.loss_fn = lambda out, y: F.kl_div(out.log_softmax(1), F.one_hot(y, 4) * 0.9 + 0.025, reduction="batchmean")
    assert program.outcome(NAME).passed
