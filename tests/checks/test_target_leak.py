from __future__ import annotations

import pytest
import torch
from torch import nn

from checks.programs import HEALTHY, Program, loader
from torchdoctor.findings import Severity

NAME = "target-leak"


@pytest.mark.parametrize("kind", HEALTHY)
def test_quiet(kind: str) -> None:
    assert HEALTHY[kind]().outcome(NAME).passed is not False


def leaky(kind: str, scale: float = 1.0) -> Program:
    """The target stands in the last column of the inputs."""
    torch.manual_seed(0)
    x = torch.randn(160, 11)
    if kind == "classes":
        y, model, loss = torch.randint(0, 4, (160,)), nn.Linear(12, 4), nn.CrossEntropyLoss()
    elif kind == "yes-or-no":
        y, model, loss = torch.randint(0, 2, (160, 1)).float(), nn.Linear(12, 1), nn.BCEWithLogitsLoss()
    else:
        y, model, loss = torch.randn(160, 1), nn.Linear(12, 1), nn.MSELoss()
    x = torch.cat([x, scale * y.reshape(160, 1).float()], 1)
    if kind == "pictures":
        model, x = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(8, 1)), x.reshape(160, 1, 3, 4)
    return Program(model, loader(x, y), loss)


@pytest.mark.parametrize("scale", [1.0, -3.0])
@pytest.mark.parametrize("kind", ["numbers", "classes", "yes-or-no", "pictures"])
def test_the_target_among_the_inputs(kind: str, scale: float) -> None:
    outcome = leaky(kind, scale).outcome(NAME)
    assert outcome.passed is False and outcome.diagnosis == "label-leakage"
    assert outcome.severity is Severity.ERROR and outcome.figures["column"] == 11
    assert ("but for its scale" in outcome.text) == (scale != 1.0)


def test_a_column_that_is_close_is_no_leak() -> None:
    torch.manual_seed(0)
    x = torch.randn(160, 3)
    y = x[:, :1] + 0.01 * torch.randn(160, 1)
    assert Program(nn.Linear(3, 1), loader(x, y), nn.MSELoss()).outcome(NAME).passed


def test_what_rebuilds_its_input_and_single_columns_are_left_alone() -> None:
    x = torch.randn(160, 1)
    assert Program(nn.Linear(1, 1), loader(x, 2 * x), nn.MSELoss()).outcome(NAME).passed is None
    assert HEALTHY["autoencoder"]().outcome(NAME).passed is None


def test_a_rare_label_that_a_sparse_column_meets_by_chance() -> None:
    torch.manual_seed(0)
    x = (torch.rand(160, 400) < 0.01).float()
    y = torch.zeros(160, 1)
    y[7] = 1.0
    x[:, 5] = 3 * y[:, 0]  # one word that one text has, and that text has the label
    assert Program(nn.Linear(400, 1), loader(x, y, shuffle=False), nn.BCEWithLogitsLoss()).outcome(NAME).passed is None
