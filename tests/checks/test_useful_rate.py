from __future__ import annotations

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

from checks.programs import HEALTHY
from torchdoctor.findings import Severity

NAME = "useful-rate"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed is not False


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "multilabel", "autoencoder", "decoder"])
def test_a_rate_at_which_the_loss_diverges(kind: str) -> None:
    program = HEALTHY[kind]()
    program.optimizer = torch.optim.Adam(program.model.parameters(), 10.0)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "learning-rate-too-high"
    assert outcome.severity is Severity.ERROR and outcome.figures["divergence"] < 10
    assert outcome.fix is not None and "torch.optim.Adam" in (outcome.fix.listing or "")


@pytest.mark.parametrize("kind", ["mlp", "cnn", "regression", "multilabel", "autoencoder", "rnn"])
def test_a_rate_at_which_nothing_moves(kind: str) -> None:
    program = HEALTHY[kind]()
    program.optimizer = torch.optim.Adam(program.model.parameters(), 1e-8)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "learning-rate-too-low"
    assert outcome.severity is Severity.WARNING


def test_a_small_rate_for_a_long_run() -> None:
    program = HEALTHY["rnn"]()
    program.optimizer = torch.optim.Adam(program.model.parameters(), 2e-5)
    assert program.outcome(NAME, epochs=5000).passed


def test_a_warm_up_begins_at_nothing() -> None:
    program = HEALTHY["mlp"]()
    warm = LambdaLR(program.optimizer, lambda step: min(1.0, step / 50))
    outcome = program.outcome(NAME, scheduler=warm, epochs=20)
    assert outcome.passed and outcome.figures["rate"] == pytest.approx(1e-3)
    assert program.optimizer.param_groups[0]["lr"] == 0


def test_the_peak_of_a_cycle_counts() -> None:
    program = HEALTHY["mlp"]()
    program.optimizer = torch.optim.SGD(program.model.parameters(), 0.01, momentum=0.9)
    cycle = OneCycleLR(program.optimizer, max_lr=100.0, total_steps=320)
    outcome = program.outcome(NAME, scheduler=cycle, epochs=20)
    assert outcome.passed is False and outcome.diagnosis == "learning-rate-too-high"
    assert outcome.figures["rate"] == pytest.approx(100.0, rel=0.05) and outcome.severity is Severity.WARNING


def test_what_it_is_not_made_for() -> None:
    program = HEALTHY["mlp"]()
    first = list(program.model.parameters())
    program.optimizer = [torch.optim.SGD(first[:2], 0.1), torch.optim.SGD(first[2:], 0.1)]
    assert program.outcome(NAME).passed is None
