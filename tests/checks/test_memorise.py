from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from checks.programs import HEALTHY, Program, loader
from torchdoctor.findings import Severity

NAME = "memorise"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    outcome = HEALTHY[kind]().outcome(NAME)
    assert outcome.passed and outcome.figures["memorised"]


class Cut(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.detach()


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "multilabel", "autoencoder"])
def test_a_loss_without_a_graph(kind: str) -> None:
    program = HEALTHY[kind]()
    program.model = nn.Sequential(program.model, Cut())
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "disconnected-parameters"
    assert outcome.severity is Severity.ERROR


@pytest.mark.parametrize("kind", ["mlp", "cnn", "rnn", "multilabel"])
def test_the_same_input_with_different_labels(kind: str) -> None:
    program = HEALTHY[kind]()
    x, y = next(iter(program.train))
    program.train = loader(x[:1].expand_as(x).clone(), y)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis in ("inputs-and-labels-unrelated", "constant-inputs")


@pytest.mark.parametrize("kind", ["regression", "autoencoder"])
def test_an_output_that_cannot_be_negative(kind: str) -> None:
    program = HEALTHY[kind]()
    program.model = nn.Sequential(program.model, nn.ReLU())
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "misplaced-activation"


@pytest.mark.parametrize("kind", ["mlp", "cnn"])
def test_a_softmax_before_the_loss(kind: str) -> None:
    program = HEALTHY[kind]()
    program.model = nn.Sequential(program.model, nn.Softmax(-1))
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "softmax-before-cross-entropy"


def test_a_linear_probe_is_meant() -> None:
    program = HEALTHY["mlp"]()
    for part in list(program.model)[:-1]:  # type: ignore[call-overload]
        part.requires_grad_(False)
    outcome = program.outcome(NAME)
    assert outcome.passed is not False or outcome.severity is Severity.INFO


def test_a_model_that_is_too_small_is_worth_a_note() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    model = nn.Linear(4, 1)
    program = Program(model, loader(x, torch.randn(64, 1)), nn.MSELoss(), optimizer=torch.optim.SGD(model.parameters()))
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "capacity-too-low" and outcome.severity is Severity.INFO


def test_a_loss_whose_floor_nobody_knows() -> None:
    program = HEALTHY["autoencoder"]()
    program.loss_fn = lambda outputs, target: (outputs - target).abs().pow(1.5).mean() + 0.01
    outcome = program.outcome(NAME)
    assert outcome.passed and "not known" in outcome.text


def test_the_finding_before_is_named() -> None:
    from torchdoctor.checks.preflight import check

    program = HEALTHY["mlp"]()
    program.model = nn.Sequential(program.model, Cut())
    made = check(program.model, program.train, F.cross_entropy, only=["gradients-reach", NAME], progress=False)
    assert "as gradients-reach says" in made.checked[-1].outcome.text


def test_scores_that_are_bounded_hold_the_loss_up() -> None:
    """Cosines: the loss of the right answers is far from zero, and no cause is to be named."""

    class Cosines(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.centres = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 8)), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return 3 * F.linear(F.normalize(self.body(x), dim=1), F.normalize(self.centres.weight, dim=1))

    torch.manual_seed(0)
    program = Program(Cosines(), loader(torch.randn(160, 12), torch.arange(160) % 3), nn.CrossEntropyLoss())
    outcome = program.outcome(NAME)
    assert outcome.passed is not False, outcome.text
