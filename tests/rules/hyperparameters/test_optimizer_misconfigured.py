from __future__ import annotations

from typing import Any

import pytest

from building import RunBuilder, findings
from torchdoctor.findings import Severity
from torchdoctor.signals import GRADIENT, LEARNING_RATE, UPDATE_RATIO

NAME = "optimizer-misconfigured"


def made(kind: str, moves: float = 1e-3, **settings: Any) -> RunBuilder:
    return (
        RunBuilder(100)
        .parameters({"a.weight": (32, 32)})
        .optimizer(kind, lr=1e-3, **settings)
        .scalar(LEARNING_RATE, 1e-3, key="0.0")
        .matrix(GRADIENT["absmean"], {"a.weight": 1e-3}, steps=range(0, 100, 10))
        .matrix(UPDATE_RATIO, {"a.weight": moves}, steps=range(0, 100, 10))
    )


@pytest.mark.parametrize(
    ("builder", "severity"),
    [
        (made("SGD", momentum=1.0), Severity.ERROR),
        (made("SGD", momentum=0.999), Severity.WARNING),
        (made("SGD", momentum=0.9, dampening=1), Severity.ERROR),
        (made("Adam", betas=[0.999, 0.9]), Severity.WARNING),
        (made("AdamW", betas=[0.9, 0.1]), Severity.WARNING),
        (made("Adam", betas=[0.9, 0.999], eps=0), Severity.WARNING),
        (made("Adam", moves=1e-6, betas=[0.9, 0.999], eps=1.0), Severity.WARNING),
        (made("RMSprop", alpha=1.0), Severity.ERROR),
        (made("SGD", weight_decay=2000.0), Severity.ERROR),
    ],
)
def test_settings_that_cannot_work(builder: RunBuilder, severity: Severity) -> None:
    (found,) = findings(builder.build(), NAME)
    assert found.severity is severity
    assert found.fix.code is not None
    assert "torch.optim" in found.fix.code


@pytest.mark.parametrize(
    "builder",
    [
        made("SGD", momentum=0.99, dampening=0),
        made("Adam", betas=[0.9, 0.999], eps=1e-8),
        made("Adam", betas=[0.5, 0.9], eps=1e-8),
        made("Adam", betas=[0.0, 0.99], eps=1e-8),
        made("Adam", betas=[0.0, 0.0], eps=1e-8),
        made("AdamW", betas=[0.9, 0.95], eps=1e-5),
        made("Adam", moves=1e-3, betas=[0.9, 0.999], eps=1.0),
        made("Prodigy", betas=[0.999, 0.9]),
        made("LBFGS", max_iter=20),
    ],
)
def test_sound_settings_are_silent(builder: RunBuilder) -> None:
    assert findings(builder.build(), NAME) == []


def test_several_groups_are_changed_in_place() -> None:
    run = made("SGD", momentum=1.0).build()
    run.optimizers["0"].groups.append({"lr": 1e-3, "momentum": 0.9})
    (found,) = findings(run, NAME)
    assert found.fix.code == "for group in optimizer.param_groups: group['momentum'] = 0.9"
