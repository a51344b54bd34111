from __future__ import annotations

import numpy as np

from building import RunBuilder, findings
from torchdoctor.facts import OverwriteFact
from torchdoctor.findings import Severity
from torchdoctor.signals import LEARNING_RATE

NAME = "weights-overwritten"
WHOLE = ["fc1.weight", "fc2.weight"]


def across(steps: list[int], looks: int | None = None, **details: object) -> RunBuilder:
    """Overwrites across epochs at these steps."""
    builder = RunBuilder(400).parameters({"fc1.weight": (64, 32), "fc2.weight": (10, 64), "fc2.bias": (10,)})
    for i, step in enumerate(steps):
        fields = {"parameters": WHOLE, "share": 1.0, "hits": i + 1, "looks": looks or i + 1, **details}
        builder.fact(OverwriteFact("0", **fields), step)
    return builder


def test_weights_thrown_back_to_the_first_ones() -> None:
    (found,) = findings(across([100, 200], restored=WHOLE, restored_step=0, how="load_state_dict").build(), NAME)
    assert found.severity is Severity.ERROR and "step 0" in found.title
    assert (found.first_step, found.last_step) == (100, 200)


def test_rolling_back_to_the_best_now_and_then_is_fine() -> None:
    assert not findings(across([200, 300], restored=WHOLE, restored_step=150).build(), NAME)
    assert not findings(across([300, 330, 360], looks=12, restored=WHOLE, restored_step=250).build(), NAME)


def test_back_to_the_best_with_a_lower_rate_each_time_is_meant() -> None:
    def restored(*rates: float) -> RunBuilder:
        rate = np.repeat(rates, [101, 100, 199])
        return across([100, 200, 300], restored=WHOLE, restored_step=60).scalar(LEARNING_RATE, rate, key="0.0")

    assert findings(restored(0.1, 0.1, 0.1).build(), NAME)
    assert not findings(restored(0.1, 0.05, 0.025).build(), NAME)


def test_initialised_in_the_loop_and_once() -> None:
    (found,) = findings(across([100, 200], how="init", file="train.py", line=7).build(), NAME)
    assert "initialised" in found.title and found.where[0].line == 7
    assert not findings(across([100], how="init").build(), NAME)
    assert not findings(across([100, 200, 300], how="init", share=0.1).build(), NAME)


def test_averaged_weights_that_stay() -> None:
    (found,) = findings(across([100, 200], evaluated=True).build(), NAME)
    assert found.severity is Severity.WARNING
    assert not findings(across([100, 200], evaluated=False).build(), NAME)


def test_clipping_lookahead_and_projections_are_methods() -> None:
    assert not findings(across([1, 2, 3], within=True).build(), NAME)
    assert not findings(across([1, 2, 3], within=True, restored=["fc2.bias"], restored_step=0).build(), NAME)


def test_tied_by_copying() -> None:
    details = {"parameters": ["fc2.weight"], "share": 0.3, "copies": {"fc2.weight": "fc1.weight"}, "within": True}
    (found,) = findings(across([1, 2], **details).build(), NAME)
    assert found.fix.code == "model.fc2.weight = model.fc1.weight"


def test_an_update_undone_each_time() -> None:
    details = {"parameters": ["fc2.weight"], "share": 0.3, "restored": ["fc2.weight"], "restored_step": 0}
    (found,) = findings(across([1, 2], within=True, **details).build(), NAME)
    assert "undone" in found.title


def test_an_average_copied_back_takes_most_of_the_way_back() -> None:
    (found,) = findings(across([40, 80, 120], within=True, kept=0.1).build(), NAME)
    assert found.severity is Severity.WARNING and "taken back" in found.title
    assert not findings(across([40, 80, 120], within=True, kept=0.5).build(), NAME)
    assert not findings(across([40], within=True, kept=0.1).build(), NAME)
    assert not findings(across([40, 80, 120], within=True, kept=0.0).build(), NAME)


def test_a_rollback_by_name_now_and_then_is_a_method() -> None:
    assert not findings(across([270, 330, 360], looks=12, how="load_state_dict", kept=0.0).build(), NAME)
