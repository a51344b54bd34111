from __future__ import annotations

import pytest
import torch

from checks.programs import HEALTHY

NAME = "optimizer-coverage"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed


@pytest.mark.parametrize("kind", HEALTHY)
def test_a_layer_that_is_left_out(kind: str) -> None:
    program = HEALTHY[kind]()
    names = list(dict(program.model.named_parameters()))
    program.optimizer = torch.optim.SGD(list(program.model.parameters())[:-1], 0.1)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "parameters-not-optimized"
    assert names[-1] in outcome.text


@pytest.mark.filterwarnings("ignore:optimizer contains")
def test_a_parameter_twice() -> None:
    program = HEALTHY["mlp"]()
    first = torch.optim.SGD(program.model.parameters(), 0.1)
    program.optimizer = [first, torch.optim.SGD(list(program.model.parameters())[:1], 0.1)]
    outcome = program.outcome(NAME)
    assert outcome.passed is False and "0.weight" in outcome.text


def test_frozen_parameters_are_meant() -> None:
    program = HEALTHY["mlp"]()
    program.model[0].requires_grad_(False)  # type: ignore[index]
    program.optimizer = torch.optim.SGD([p for p in program.model.parameters() if p.requires_grad], 0.1)
    assert program.outcome(NAME).passed
