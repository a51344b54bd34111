from __future__ import annotations

import pytest
import torch
from torch import nn

from checks.programs import HEALTHY, Program, loader
from torchdoctor.checks.preflight import check
from torchdoctor.findings import Severity

NAME = "initialisation"


def _matrices(program: Program) -> list[nn.Parameter]:
    return [p for p in program.model.parameters() if p.dim() > 1]


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed


@pytest.mark.parametrize("value", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "multilabel", "autoencoder"])
def test_units_that_are_all_the_same(kind: str, value: float) -> None:
    program = HEALTHY[kind]()
    for parameter in program.model.parameters():
        nn.init.constant_(parameter, value)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "symmetric-initialization"
    assert "0.weight" in outcome.text
    assert outcome.severity is (Severity.WARNING if kind == "multilabel" else Severity.ERROR)


def test_units_of_a_recurrent_net_that_are_all_the_same() -> None:
    program = HEALTHY["rnn"]()
    for parameter in program.model.body.parameters():  # type: ignore[union-attr]
        nn.init.constant_(parameter, 0.1)
    nn.init.constant_(program.model.head.weight, 0.1)  # type: ignore[union-attr,arg-type]
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "symmetric-initialization" and "body" in outcome.text


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "decoder"])
def test_a_last_layer_of_zeros_is_meant(kind: str) -> None:
    program = HEALTHY[kind]()
    nn.init.zeros_(_matrices(program)[-1])
    assert program.outcome(NAME).passed


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "multilabel", "autoencoder"])
def test_weights_that_are_too_large(kind: str) -> None:
    program = HEALTHY[kind]()
    for parameter in _matrices(program):
        nn.init.normal_(parameter, std=3.0)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "bad-initialization-scale"
    assert "too large" in outcome.text and outcome.severity is Severity.WARNING


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "multilabel", "autoencoder"])
def test_what_the_first_loss_told_is_a_note(kind: str) -> None:
    program = HEALTHY[kind]()
    for parameter in _matrices(program):
        nn.init.normal_(parameter, std=3.0)
    names = ["first-loss", NAME]
    made = check(program.model, program.train, program.loss_fn, only=names, progress=False).checked
    assert [one.outcome.diagnosis for one in made] == ["bad-initialization-scale"] * 2
    assert [one.outcome.severity for one in made] == [Severity.WARNING, Severity.INFO]
    assert "usual starts" in made[1].outcome.text


def test_large_gains_that_a_norm_bears_are_told() -> None:
    program = HEALTHY["cnn"]()
    nn.init.normal_(_matrices(program)[0], std=3.0)
    outcome = program.outcome(NAME)
    assert outcome.passed and "usual starts" in outcome.text


def _deep(outputs: int, activation: type[nn.Module]) -> nn.Sequential:
    body = [part for _ in range(4) for part in (nn.Linear(16, 16), activation())]
    return nn.Sequential(nn.Linear(8, 16), activation(), *body, nn.Linear(16, outputs))


@pytest.mark.parametrize("kind", ["classes", "numbers", "labels", "copy"])
def test_weights_that_are_too_small(kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(96, 8)
    target, loss, outputs = {
        "classes": (x.argmax(1), nn.CrossEntropyLoss(), 8),
        "numbers": (x[:, :1] - x[:, 1:2], nn.MSELoss(), 1),
        "labels": ((x[:, :3] > 0).float(), nn.BCEWithLogitsLoss(), 3),
        "copy": (x.clone(), nn.L1Loss(), 8),
    }[kind]
    model = _deep(outputs, nn.ReLU if kind in ("classes", "labels") else nn.Tanh)
    program = Program(model, loader(x, target), loss, optimizer=torch.optim.SGD(model.parameters(), 0.01))
    assert program.outcome(NAME).passed
    for parameter in _matrices(program):
        nn.init.normal_(parameter, std=0.01)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "bad-initialization-scale"
    assert "fades" in outcome.text and outcome.severity is Severity.WARNING


def test_weights_that_hold_nan() -> None:
    program = HEALTHY["cnn"]()
    with torch.no_grad():
        _matrices(program)[0][0] = float("nan")
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "nonfinite-parameters" and "0.weight" in outcome.text


def test_a_model_without_matrices() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

    x = torch.randn(32, 3)
    assert Program(Scale(), loader(x, 2 * x), nn.MSELoss()).outcome(NAME).passed is None
