from __future__ import annotations

from typing import Any

import numpy as np

from building import RunBuilder, findings
from torchdoctor import signals
from torchdoctor.facts import TRAIN, LoaderFact, ResumeFact
from torchdoctor.findings import Severity

NAME = "resume-without-state"


def resumed(kind: str = "Adam", step: int = 100, **changes: Any) -> RunBuilder:
    fields = {
        "optimizer": "1",
        "share": 1.0,
        "empty": True,
        "loaded": False,
        "start": False,
        "saved_optimizer": True,
        "saved_scheduler": False,
        "saved_progress": "epoch = 4",
        "file_written": False,
        "saved_rates": [1e-3],
        "rates": [1e-3],
        "earlier": "0",
    }
    settings = {"betas": [0.9, 0.999]} if kind == "Adam" else {"momentum": 0.0}
    return (
        RunBuilder(200)
        .scalar(signals.LOSS_TRAIN, np.linspace(2.0, 0.5, 200))
        .scalar(signals.LEARNING_RATE, changes.pop("before", 1e-3), key="0.0", steps=range(100))
        .optimizer(kind, key="0", lr=1e-3, **settings)
        .optimizer(kind, key="1", lr=1e-3, **settings)
        .fact(ResumeFact(**{**fields, **changes}), step)
    )


def test_a_saved_optimizer_that_nobody_loads() -> None:
    (found,) = findings(resumed().build(), NAME)
    assert found.severity is Severity.WARNING and found.first_step == 100
    assert "epoch = 4" in found.evidence[2].text


def test_a_schedule_that_begins_anew() -> None:
    (found,) = findings(resumed("SGD", before=1e-4, saved_rates=[], saved_initial_rates=[1e-3]).build(), NAME)
    assert "schedule" in found.title


def test_a_loaded_state_is_fine() -> None:
    assert not findings(resumed(empty=False, loaded=True).build(), NAME)


def test_fine_tuning_is_fine() -> None:
    assert not findings(resumed(saved_optimizer=False, earlier=None).build(), NAME)
    assert not findings(resumed(share=0.9).build(), NAME)
    assert not findings(resumed(rates=[1e-5]).build(), NAME)
    loaders = resumed()
    for samples in (1000, 300):
        loaders.fact(LoaderFact(f"loader{samples}", TRAIN, 10, samples, 32, 0, True, "TensorDataset"))
    assert not findings(loaders.build(), NAME)


def test_starting_again_and_rounds_are_fine() -> None:
    assert not findings(resumed(start=True).build(), NAME)
    rounds = resumed()
    for step in (120, 140, 160):
        rounds.fact(rounds.build().facts(ResumeFact)[0], step)
    assert not findings(rounds.build(), NAME)


def test_plain_sgd_has_nothing_to_lose() -> None:
    assert not findings(resumed("SGD").build(), NAME)
