from __future__ import annotations

import pytest
import torch
from torch import nn

from checks.programs import HEALTHY
from torchdoctor.checks.check import Outcome
from torchdoctor.findings import Severity

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


def _over_a_backbone(pretrained: bool, normed: bool) -> Outcome:
    """A head alone in the optimizer, and nothing frozen."""
    program = HEALTHY["mlp"]()
    norm = nn.LayerNorm(32) if normed else nn.Identity()
    program.model = nn.Sequential(nn.Linear(12, 32), norm, nn.ReLU(), nn.Linear(32, 4))
    if pretrained:
        with torch.no_grad():
            for parameter in program.model[:2].parameters():
                parameter.add_(0.5 * torch.randn_like(parameter))
    program.optimizer = torch.optim.SGD(program.model[-1].parameters(), 0.1)
    outcome = program.outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "parameters-not-optimized"
    return outcome


def test_how_grave_it_is_depends_on_where_the_layers_come_from() -> None:
    """As the rule of that name has it."""
    assert _over_a_backbone(pretrained=False, normed=True).severity is Severity.ERROR
    assert _over_a_backbone(pretrained=True, normed=False).severity is Severity.WARNING
    meant = _over_a_backbone(pretrained=True, normed=True)
    assert meant.severity is Severity.INFO and meant.fix is not None and "Freeze" in meant.fix.text


def test_a_model_without_anything_to_train_is_not_covered() -> None:
    program = HEALTHY["mlp"]()
    program.model.requires_grad_(False)
    assert program.outcome(NAME).passed is None
