from __future__ import annotations

import numpy as np

from building import RunBuilder, findings
from torchdoctor.facts import BirthFact, HealthFact, NonfiniteFact, OrderFact, RemedyFact
from torchdoctor.findings import Proof, Severity
from torchdoctor.signals import LOSS_TRAIN, WEIGHT

NAME = "nonfinite-parameters"
COUNTS = WEIGHT["nonfinite"]


def clean(steps: int = 100) -> RunBuilder:
    return RunBuilder(steps).matrix(COUNTS, {"head.weight": 0.0, "body.weight": 0.0}).scalar(LOSS_TRAIN, 1.0)


def test_loaded_or_initialised_so() -> None:
    run = (
        RunBuilder(50).matrix(COUNTS, {"head.weight": 64.0, "body.weight": 0.0}).scalar(LOSS_TRAIN, np.full(50, np.nan))
    )
    (found,) = findings(run.fact(NonfiniteFact("weight", "head.weight", "train", 64, 64), step=0).build(), NAME)
    assert found.severity is Severity.ERROR and found.proof is Proof.STRUCTURE
    assert "before the first update" in found.title and "head.weight" in found.title
    assert found.where[0].parameter == "head.weight" and found.where[0].module == "head"
    assert found.symptoms == ("nan-at-first-step",)


def test_later_it_names_the_chain() -> None:
    run = (
        clean()
        .fact(NonfiniteFact("loss", "train.py:3", "train", 1, 1), step=40)
        .fact(NonfiniteFact("weight", "head.weight", "train", 64, 64), step=41)
        .build()
    )
    (found,) = findings(run, NAME)
    assert found.first_step == 41
    assert any("loss at step 40, then weight at step 41" in e.text for e in found.evidence)


def test_nan_brought_by_the_first_batch_was_not_there_before() -> None:
    run = clean().fact(NonfiniteFact("input", "input", "train", 3, 3), step=0)
    (found,) = findings(run.fact(NonfiniteFact("weight", "head.weight", "train", 64, 64), step=0).build(), NAME)
    assert "before the first update" not in found.title


def test_with_a_closure_the_first_look_comes_after_the_update() -> None:
    run = clean().fact(OrderFact("0", ["step"], closure=True)).fact(NonfiniteFact("weight", "a", "train", 4, 4), step=0)
    assert "before the first update" not in findings(run.build(), NAME)[0].title


def test_finite_parameters_are_silent() -> None:
    assert findings(clean().build(), NAME) == []


def test_masks_of_minus_infinity_are_silent_and_nan_in_buffers_is_not() -> None:
    mask = NonfiniteFact("buffer", "block.mask", "train", 496, 0)
    assert findings(clean().fact(mask, step=0).build(), NAME) == []
    assert findings(clean().fact(mask, step=70).build(), NAME) == []
    assert findings(clean().fact(NonfiniteFact("buffer", "bn.running_var", "train", 4, 4), step=7).build(), NAME)


def test_what_was_kept_from_the_weights_is_told_where_nothing_else_explains_it() -> None:
    broke = clean().fact(NonfiniteFact("gradient", "head.weight", "train", 4, 4), step=25)
    (found,) = findings(broke.fact(RemedyFact("skip", skips=1, skipped=[25]), step=25).build(), NAME)
    assert found.severity is Severity.WARNING
    assert "the gradient of head.weight was not finite at step 25" in found.title
    (found,) = findings(broke.fact(RemedyFact("halt", halted=25), step=25).build(), NAME)
    assert found.severity is Severity.ERROR


def test_a_bad_loss_that_a_scaler_left_out_is_told_where_it_came_too_late_to_be_looked_into() -> None:
    broke = clean().scalar(LOSS_TRAIN, np.where(np.arange(100) == 40, np.nan, 1.0))
    assert not findings(broke.build(), NAME)
    late = HealthFact(0.0, 0.01, unsupported={"birth": "known late; torchdoctor replay runs it again"})
    (found,) = findings(broke.fact(late, step=99).build(), NAME)
    assert (found.severity, found.first_step) == (Severity.WARNING, 40)
    assert found.fix.code == "torchdoctor replay"
    assert not findings(broke.fact(BirthFact("log", False, "nan"), step=40).build(), NAME)


def test_a_mode_that_had_nothing_to_do_says_nothing() -> None:
    assert not findings(clean().fact(RemedyFact("skip"), step=99).build(), NAME)
