from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from checks.programs import HEALTHY, Program, loader
from torchdoctor.findings import Severity

NAME = "activation-health"
WITH_RELU = ("mlp", "cnn", "multilabel", "autoencoder")


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed


@pytest.mark.parametrize("kind", WITH_RELU)
def test_units_that_never_fire(kind: str) -> None:
    program = HEALTHY[kind]()
    with torch.no_grad():
        for module in program.model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                module.bias.fill_(-20.0)  # type: ignore[union-attr]
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "dead-relu" and outcome.severity is Severity.ERROR
    assert outcome.fix is not None and "zeros_" in (outcome.fix.listing or "")


def test_units_of_a_transformer_that_never_fire() -> None:
    program = HEALTHY["decoder"]()
    with torch.no_grad():
        program.model.body.layers[1].linear1.bias.fill_(-20.0)  # type: ignore[union-attr]
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "dead-relu" and "layers.1" in outcome.text


def _squashing(kind: str) -> Program:
    program = HEALTHY[kind]()
    parts = [nn.Tanh() if isinstance(m, nn.ReLU) else m for m in program.model]  # type: ignore[union-attr]
    program.model = nn.Sequential(*parts)
    return program


@pytest.mark.parametrize("kind", ["mlp", "cnn", "multilabel", "regression"])
def test_sums_too_large_for_a_tanh(kind: str) -> None:
    program = _squashing(kind)
    assert program.outcome(NAME).passed
    with torch.no_grad():
        for module in program.model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                module.weight.mul_(40.0)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "saturated-activations"


def test_inputs_too_large_for_gates() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.GRU(4, 16, batch_first=True), nn.Linear(16, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(x)[0][:, -1])

    torch.manual_seed(0)
    x, y = torch.randn(96, 10, 4), torch.randint(0, 2, (96,))
    assert Program(Reader(), loader(x, y), nn.CrossEntropyLoss()).outcome(NAME).passed
    outcome = Program(Reader(), loader(100 * x, y), nn.CrossEntropyLoss()).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "saturated-activations" and "body" in outcome.text


def test_an_output_that_is_meant_to_be_sure() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8), nn.Sigmoid())
    with torch.no_grad():
        model[2].weight.mul_(100.0)
    x = torch.rand(96, 8)
    assert Program(model, loader(x), nn.BCELoss()).outcome(NAME).passed


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(width, width), nn.Linear(width, width)
        for layer in (self.inner, self.outer):
            nn.init.kaiming_normal_(layer.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.outer(torch.relu(self.inner(x)))


def test_a_signal_that_grows_over_the_depth() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), *(Residual(32) for _ in range(16)), nn.Linear(32, 1))
    x = torch.randn(96, 8)
    outcome = Program(
        model, loader(x, x[:, :1]), nn.MSELoss(), optimizer=torch.optim.SGD(model.parameters(), 0.01)
    ).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "exploding-gradients"
    assert outcome.severity is Severity.WARNING


def test_a_module_that_gives_nan() -> None:
    program = HEALTHY["mlp"]()
    with torch.no_grad():
        program.model[2].bias[0] = float("nan")  # type: ignore[index,operator]
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.text.startswith("2 (Linear)")


def test_everything_is_put_back() -> None:
    program = HEALTHY["cnn"]()
    before = {name: value.clone() for name, value in program.model.state_dict().items()}
    state = torch.random.get_rng_state()
    program.outcome(NAME)
    assert all(torch.equal(before[name], value) for name, value in program.model.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(p.grad is None for p in program.model.parameters())
