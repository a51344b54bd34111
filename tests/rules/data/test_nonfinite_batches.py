"""D001 nan-in-inputs and D002 nan-in-targets."""

from __future__ import annotations

import numpy as np
import pytest

from building import RunBuilder, findings
from torchdoctor.facts import InputsFact, NonfiniteFact
from torchdoctor.findings import Proof, Severity
from torchdoctor.signals import INPUT_NONFINITE, LOSS_TRAIN, TARGET_NONFINITE

BOTH = [("nan-in-inputs", "input", INPUT_NONFINITE), ("nan-in-targets", "target", TARGET_NONFINITE)]


def losses(broke_at: int | None, steps: int = 100) -> np.ndarray:
    values = np.linspace(2.3, 0.5, steps)
    if broke_at is not None:
        values[broke_at:] = np.nan
    return values


def builder(signal, broke_at: int | None) -> RunBuilder:
    return RunBuilder(100).scalar(LOSS_TRAIN, losses(broke_at)).scalar(signal, 0.0, key="train", steps=[0, 1, 2, 40])


@pytest.mark.parametrize(("name", "role", "signal"), BOTH)
def test_a_batch_that_breaks_the_loss(name: str, role: str, signal) -> None:
    fact = NonfiniteFact(role, role, "train", count=3, nan=3, samples=[5, 9], features=[2])
    run = builder(signal, 40).fact(InputsFact("train", role, [32, 8], "float32")).fact(fact, step=40).build()
    (found,) = findings(run, name)
    assert found.severity is Severity.ERROR and found.proof is Proof.STRUCTURE
    assert found.first_step == 40
    assert "3 NaN" in found.title and "step 40" in found.title
    assert any("samples 5, 9 of 32" in e.text for e in found.evidence)
    assert found.symptoms == ("nan-later",)
    assert found.fix.code is not None and "isfinite" in found.fix.code


@pytest.mark.parametrize(("name", "role", "signal"), BOTH)
def test_at_the_first_step(name: str, role: str, signal) -> None:
    run = builder(signal, 0).fact(NonfiniteFact(role, role, "train", 64, 64), step=0).build()
    assert findings(run, name)[0].symptoms == ("nan-at-first-step",)


@pytest.mark.parametrize(("name", "role", "signal"), BOTH)
def test_counts_alone_are_enough(name: str, role: str, signal) -> None:
    counts = [0, 0, 0, 2, 0]
    run = (
        RunBuilder(100).scalar(LOSS_TRAIN, losses(12)).scalar(signal, counts, "train", steps=[0, 3, 8, 12, 20]).build()
    )
    (found,) = findings(run, name)
    assert found.severity is Severity.ERROR and found.first_step == 12


@pytest.mark.parametrize(("name", "role", "signal"), BOTH)
def test_values_that_are_masked_on_purpose_are_an_info(name: str, role: str, signal) -> None:
    run = builder(signal, None).fact(NonfiniteFact(role, role, "train", 3, 3), step=2).build()
    (found,) = findings(run, name)
    assert found.severity is Severity.INFO


@pytest.mark.parametrize(("name", "role", "signal"), BOTH)
def test_values_that_reached_the_network_are_a_warning(name: str, role: str, signal) -> None:
    run = (
        builder(signal, None)
        .fact(NonfiniteFact(role, role, "train", 3, 3), step=2)
        .fact(NonfiniteFact("activation", "fc1", "train", 3, 3), step=2)
        .build()
    )
    assert findings(run, name)[0].severity is Severity.WARNING


@pytest.mark.parametrize(("name", "role", "signal"), BOTH)
def test_outputs_of_a_broken_model_that_come_back_as_batches_are_no_cause(name: str, role: str, signal) -> None:
    fact = NonfiniteFact(role, role, "train", 256, 256, samples=list(range(16)))
    run = builder(signal, 30).fact(InputsFact("train", role, [16, 16], "float32")).fact(fact, step=40).build()
    assert findings(run, name) == []


@pytest.mark.parametrize(("name", "role", "signal"), BOTH)
def test_clean_batches_are_silent_even_when_the_loss_breaks(name: str, role: str, signal) -> None:
    assert findings(builder(signal, 40).build(), name) == []


def test_a_target_that_came_with_the_batch_is_not_taken_for_an_input() -> None:
    run = (
        RunBuilder(100)
        .scalar(LOSS_TRAIN, losses(40))
        .scalar(INPUT_NONFINITE, 0.0, key="train")
        .scalar(TARGET_NONFINITE, 0.0, key="train")
        .fact(NonfiniteFact("input", "input1", "train", 2, 0, samples=[4, 7]), step=40)
        .fact(NonfiniteFact("target", "target", "train", 2, 0, samples=[4, 7]), step=40)
        .build()
    )
    assert findings(run, "nan-in-inputs") == []
    assert findings(run, "nan-in-targets")


def test_bad_validation_data_is_a_warning() -> None:
    run = builder(INPUT_NONFINITE, None).fact(NonfiniteFact("input", "input", "validation", 3, 3), step=50)
    run = run.fact(NonfiniteFact("loss", "val", "validation", 1, 1), step=50).build()
    (found,) = findings(run, "nan-in-inputs")
    assert found.severity is Severity.WARNING and "validation" in found.title


def test_everything_after_it_stands_under_it() -> None:
    run = (
        RunBuilder(100)
        .scalar(LOSS_TRAIN, losses(40))
        .scalar(INPUT_NONFINITE, 0.0, key="train")
        .fact(NonfiniteFact("input", "input", "train", 3, 3), step=40)
        .fact(NonfiniteFact("weight", "fc1.weight", "train", 64, 64), step=41)
    )
    from torchdoctor.signals import WEIGHT

    verdict = run.matrix(WEIGHT["nonfinite"], {"fc1.weight": [0.0, 64.0]}, steps=[0, 41]).examine()
    assert verdict.findings[0].name == "nan-in-inputs"
    assert {f.name: f.consequence_of for f in verdict.findings}["nonfinite-parameters"] == "nan-in-inputs"
