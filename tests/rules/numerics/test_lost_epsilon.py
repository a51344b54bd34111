"""half-precision-underflow, where the eps of an optimizer rounds to zero."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import BirthFact, NonfiniteFact, ParameterFact
from torchdoctor.findings import Severity
from torchdoctor.signals import GRADIENT, LOSS_TRAIN

UNDERFLOW = "half-precision-underflow"
STEPS = 20


def training(dtype: str = "float16", kind: str = "Adam", eps: float = 1e-8) -> RunBuilder:
    """Finite at step 0, weights spoilt from step 1 on."""
    builder = RunBuilder(STEPS).scalar(LOSS_TRAIN, np.where(np.arange(STEPS) < 1, 2.3, np.nan))
    builder.fact(ParameterFact("0.weight", [8, 8], f"torch.{dtype}", "cpu", "0", "Linear", 0))
    builder.matrix(GRADIENT["absmax"], {"0.weight": np.full(STEPS, 0.01)})
    builder.fact(NonfiniteFact("weight", "0.weight", "train", 60, 60), 1)
    return builder.optimizer(kind, lr=1e-3, eps=eps)


@pytest.mark.parametrize(("kind", "eps"), [("Adam", 1e-8), ("AdamW", 1e-8), ("RMSprop", 1e-8), ("Adagrad", 1e-10)])
def test_an_eps_that_float16_does_not_hold(kind: str, eps: float) -> None:
    (found,) = findings(training(kind=kind, eps=eps).build(), UNDERFLOW)
    assert found.severity is Severity.ERROR
    assert found.title.startswith(f"{kind}'s eps of {eps:g} is zero in float16")
    assert found.first_step == 1
    assert any(place.parameter == "0.weight" for place in found.where)


def test_the_step_that_was_run_again_agrees() -> None:
    run = training().fact(BirthFact("", False, "nan", source="0.weight", noticed="loss"), 1).build()
    assert [f.first_step for f in findings(run, UNDERFLOW)] == [1]


@pytest.mark.parametrize(
    "other",
    [
        training(dtype="bfloat16"),
        training(dtype="float32"),
        training(eps=1e-4),
        training(kind="SGD"),
        training().fact(NonfiniteFact("gradient", "0.weight", "train", 3, 0), 0),
        training().fact(NonfiniteFact("input", "input", "train", 3, 3), 1),
        training().fact(BirthFact("log", False, "inf"), 1),
    ],
    ids=["bfloat16", "float32", "large eps", "sgd", "gradient before", "bad batch", "born elsewhere"],
)
def test_other_causes_are_left_to_others(other: RunBuilder) -> None:
    assert [f for f in findings(other.build(), UNDERFLOW) if "eps" in f.title] == []
