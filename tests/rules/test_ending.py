"""How a run ended, and what of its loss was understood: no bill is clean without both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import signals
from torchdoctor.facts import LossCallFact, PhaseFact
from torchdoctor.rules.ending import judge_ending

CALL = LossCallFact("cross_entropy", "train", [8, 10], "float32", [8], "int64", "mean", classes=10)
GUESS = float(np.log(10))


def run_of(loss: Any, call: LossCallFact | None = CALL, called: float = 1.0) -> RunBuilder:
    run = RunBuilder(len(np.atleast_1d(loss))).scalar(signals.LOSS_TRAIN, loss)
    return run.scalar(signals.LOSS_CALLED, called * np.asarray(loss)).fact(call) if call is not None else run


@pytest.mark.parametrize(
    ("loss", "symptom"),
    [
        (np.full(100, GUESS), "stuck-at-chance"),
        (np.linspace(GUESS, 0.8 * GUESS, 100), "underfitting"),
        (np.concatenate([np.linspace(GUESS, 0.1, 99), [np.nan]]), "nan-later"),
        (np.linspace(GUESS, 0.1, 100), ""),
        (np.full(10, GUESS), ""),
    ],
)
def test_a_bad_end_is_named_with_its_symptom(loss: Any, symptom: str) -> None:
    ending = judge_ending(run_of(loss).build())
    assert ending.symptom == symptom and bool(ending.fault) == bool(symptom) and not ending.unseen


def test_a_loss_without_a_known_guess_is_bad_where_it_never_fell() -> None:
    call = LossCallFact("smooth_l1_loss", "train", [8, 1], "float32", [8, 1], "float32", "mean")
    assert judge_ending(run_of(np.full(100, 0.5), call).build()).fault
    assert judge_ending(run_of(np.linspace(0.5, 0.1, 100), call).build()).is_sound


def test_what_was_not_understood_is_named() -> None:
    assert len(judge_ending(run_of(np.linspace(3, 1, 100), None).build()).unseen) == 2
    assert judge_ending(RunBuilder(100).build()).unseen
    assert "20%" in judge_ending(run_of(np.linspace(3, 0.1, 100), called=0.2).build()).unseen[0]


def test_validation_is_told_as_far_as_it_is_known() -> None:
    run = run_of(np.linspace(GUESS, 0.1, 100)).scalar(signals.ACCURACY_VALIDATION, 0.953, "")
    assert judge_ending(run.build()).validation == "accuracy 95.3%"


def validated(share: float, read_at: str = "vae.py:20") -> RunBuilder:
    """A run whose training loss holds a term that torch's function gave, and others."""
    run = run_of(np.linspace(3.0, 1.0, 100), called=share).scalar(signals.LOSS_VALIDATION, 0.355, "")
    run.fact(replace(CALL, phase="validation", file="/home/me/vae.py", line=20), step=50)
    return run.fact(PhaseFact(100, 100, 100, 10, 0, 1, 50.0, [], [read_at]), step=99)


APART = " as cross_entropy gave it, not on the scale of the training loss"


@pytest.mark.parametrize(("share", "told"), [(1.0, ""), (0.001, APART), (0.8, APART)])
def test_a_validation_loss_on_another_scale_is_told_as_such(share: float, told: str) -> None:
    assert judge_ending(validated(share).build()).validation == f"loss 0.355{told}"


def test_a_validation_loss_that_the_script_put_together_is_whole() -> None:
    assert judge_ending(validated(0.001, "vae.py:31").build()).validation == "loss 0.355"
    logged = validated(0.001).scalar(signals.USER, 0.355, "val_loss")
    assert judge_ending(logged.build()).validation == "loss 0.355"
