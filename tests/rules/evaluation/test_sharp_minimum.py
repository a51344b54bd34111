from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import TRAIN, LossCallFact, SharpnessFact
from torchdoctor.findings import Severity
from torchdoctor.signals import LOSS_TRAIN, LOSS_VALIDATION, TARGET_MEAN, TARGET_STD

NAME = "sharp-minimum"


def fit(
    rise: float, validation: float = 0.6, train: float = 0.01, at: int = 299, scale: float = 1.0, draws: int = 10
) -> RunBuilder:
    """A regression on targets of variance `scale`; `rise` by the larger noise, everything else over that variance."""
    losses = np.maximum(np.geomspace(1.0, train * train, 300), train)
    fact = SharpnessFact(
        loss=scale * train,
        sizes=[0.05, 0.2],
        losses=[[scale * (train + rise / 10)] * draws, [scale * (train + rise)] * draws],
        function="mse_loss",
        samples=32,
        weights=100,
    )
    return (
        RunBuilder(300)
        .scalar(LOSS_TRAIN, scale * losses)
        .scalar(LOSS_VALIDATION, scale * np.array([1.0, *[validation] * 5]), steps=[49, 99, 149, 199, 249, 299])
        .scalar(TARGET_MEAN, 0.0, TRAIN)
        .scalar(TARGET_STD, float(np.sqrt(scale)), TRAIN)
        .fact(LossCallFact("mse_loss", TRAIN, [32], "float32", [32], "float32", reduction="mean"))
        .fact(fact, at)
    )


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_a_sharp_place_where_validation_suffers_is_a_warning(scale: float) -> None:
    (found,) = findings(fit(2.0, scale=scale).build(), NAME)
    assert found.severity is Severity.WARNING
    assert found.first_step == 299


def test_a_sharp_place_that_costs_little_is_an_info() -> None:
    assert [f.severity for f in findings(fit(2.0, validation=0.2).build(), NAME)] == [Severity.INFO]


@pytest.mark.parametrize(
    "run",
    [fit(0.4), fit(2.0, validation=0.05), fit(2.0, train=0.7), fit(2.0, at=40), fit(2.0, draws=3)],
    ids=["flat", "validation as good", "nothing learned", "measured early", "few draws"],
)
def test_it_is_silent_otherwise(run: RunBuilder) -> None:
    assert findings(run.build(), NAME) == []


def test_it_is_a_consequence_of_overfitting() -> None:
    turned = np.concatenate([np.geomspace(1.0, 0.3, 4), np.linspace(0.35, 1.1, 8)])
    losses = np.geomspace(1.0, 0.01, 300)
    run = fit(2.0).scalar(LOSS_TRAIN, losses).scalar(LOSS_VALIDATION, turned, steps=range(24, 300, 25)[:12])
    ranked = [f.name for f in run.examine().findings]
    assert ranked.index("overfitting") < ranked.index(NAME)
