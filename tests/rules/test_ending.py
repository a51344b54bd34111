"""How a run ended, and what of its loss was understood: no bill is clean without both."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import signals
from torchdoctor.facts import LossCallFact
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


@pytest.mark.parametrize(("share", "is_apart"), [(1.0, False), (0.001, True), (0.8, True)])
def test_a_validation_loss_on_another_scale_is_told_as_such(share: float, is_apart: bool) -> None:
    """A variational autoencoder trains on two terms, and torch's function gave one of them."""
    run = run_of(np.linspace(3.0, 1.0, 100), called=share).scalar(signals.LOSS_VALIDATION, 0.355, "")
    told = judge_ending(run.build()).validation
    apart = " as cross_entropy gave it, not on the scale of the training loss"
    assert told == "loss 0.355" + (apart if is_apart else "")
