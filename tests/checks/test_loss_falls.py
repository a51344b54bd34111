from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from checks.programs import HEALTHY, Program
from torchdoctor.findings import Severity

NAME = "loss-falls"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    outcome = HEALTHY[kind]().outcome(NAME)
    assert outcome.passed and outcome.figures["after"] < outcome.figures["loss"]


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, 3e-3, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3),
    "lbfgs": lambda p: torch.optim.LBFGS(p, 1.0),
    "tiny": lambda p: torch.optim.SGD(p, 1e-7),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "decoder"])
def test_quiet_with_any_optimizer(kind: str, optimizer: str) -> None:
    program = HEALTHY[kind]()
    program.optimizer = OPTIMIZERS[optimizer](program.model.parameters())
    assert program.outcome(NAME).passed


def test_no_optimizer() -> None:
    program = HEALTHY["mlp"]()
    program.optimizer = None
    outcome = program.outcome(NAME)
    assert outcome.passed and "negative gradient" in outcome.text


RATES = {"mlp": 1e3, "cnn": 1e3, "regression": 10.0, "multilabel": 1e3, "autoencoder": 1e2, "rnn": 1e3, "decoder": 1e2}


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_rate_that_is_too_high(kind: str) -> None:
    program = HEALTHY[kind]()
    program.optimizer = torch.optim.SGD(program.model.parameters(), RATES[kind])
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "learning-rate-too-high"
    assert outcome.figures["fraction"] < 1 and "times shorter" in outcome.text


@pytest.mark.parametrize("kind", HEALTHY)
@pytest.mark.parametrize("how", ["maximize", "negative rate", "minus", "factor"])
def test_climbing(kind: str, how: str) -> None:
    program = HEALTHY[kind]()
    criterion = program.loss_fn
    if how == "maximize":
        program.optimizer = torch.optim.SGD(program.model.parameters(), 1e-3, maximize=True)
    elif how == "negative rate":
        program.optimizer.param_groups[0]["lr"] = -1e-3
    elif how == "minus":
        program.loss_fn = lambda out, y: -criterion(out, y)
    else:
        program.loss_fn = lambda out, y: criterion(out, y) * -0.5
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "loss-sign-flipped"
    assert outcome.severity is Severity.ERROR


def test_two_flips_are_none() -> None:
    program = HEALTHY["mlp"]()
    program.optimizer = torch.optim.Adam(program.model.parameters(), 1e-3, maximize=True)
    program.loss_fn = lambda out, y: -F.cross_entropy(out, y)
    assert program.outcome(NAME).passed


class _Wrong(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        return -grad


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_backward_with_the_wrong_sign(kind: str) -> None:
    program = HEALTHY[kind]()
    criterion = program.loss_fn
    program.loss_fn = lambda out, y: criterion(_Wrong.apply(out), y)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "loss-sign-flipped" and "gradient points" in outcome.text
    program.optimizer = None
    assert program.outcome(NAME).passed is False


@pytest.mark.parametrize("kind", HEALTHY)
def test_no_update(kind: str) -> None:
    program = HEALTHY[kind]()
    program.optimizer = torch.optim.SGD(program.model.parameters(), 0.0)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "no-parameter-update"


def test_an_optimizer_of_another_model() -> None:
    program = HEALTHY["mlp"]()
    program.optimizer = torch.optim.SGD(HEALTHY["mlp"]().model.parameters(), 0.1)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "parameters-not-optimized"


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "decoder"])
def test_a_loss_that_is_detached(kind: str) -> None:
    program = HEALTHY[kind]()
    criterion = program.loss_fn
    program.loss_fn = lambda out, y: criterion(out.detach(), y)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "disconnected-parameters"


@pytest.mark.parametrize("rate", [0.05, 1e3])
def test_warm_up_from_zero(rate: float) -> None:
    """Its first rate is zero, and what it comes to may be too high for a first update."""
    program = HEALTHY["mlp"]()
    program.optimizer = torch.optim.SGD(program.model.parameters(), rate)
    scheduler = torch.optim.lr_scheduler.LambdaLR(program.optimizer, lambda step: min(1.0, step / 100))
    assert program.optimizer.param_groups[0]["lr"] == 0
    outcome = program.outcome(NAME, scheduler=scheduler)
    assert outcome.passed and "warm-up" in outcome.text
    assert program.optimizer.param_groups[0]["lr"] == 0


def test_a_bold_rate_that_settles_is_no_failure() -> None:
    program = HEALTHY["regression"]()
    program.optimizer = torch.optim.Adam(program.model.parameters(), 0.3)
    assert program.outcome(NAME).passed


def test_everything_is_put_back() -> None:
    program = HEALTHY["decoder"]()
    program.optimizer = torch.optim.SGD(program.model.parameters(), 100.0, momentum=0.9)
    before = {name: value.clone() for name, value in program.model.state_dict().items()}
    state = torch.random.get_rng_state()
    program.outcome(NAME)
    assert all(torch.equal(value, before[name]) for name, value in program.model.state_dict().items())
    assert not program.optimizer.state and torch.equal(torch.random.get_rng_state(), state)
    assert all(p.grad is None for p in program.model.parameters())


def test_several_optimizers_are_not_judged() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizers = [torch.optim.SGD(model[0].parameters(), 1e4), torch.optim.SGD(model[1].parameters(), 1e4)]
    batches = [(torch.randn(16, 4), torch.randn(16, 1))]
    assert Program(model, batches, nn.MSELoss(), optimizer=optimizers).outcome(NAME).passed is None
