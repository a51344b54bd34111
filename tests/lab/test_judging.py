"""The lab asks the same rules as any run: what it calls a fault is what they call one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lab.conftest import Try, computed
from torchdoctor.lab.judging import ask_rules, read_record
from torchdoctor.lab.station import Pick
from torchdoctor.lab.stations import STATIONS
from torchdoctor.signals import LEARNING_RATE, LOSS_TRAIN, WEIGHT_L2


def _record(**choices: Any) -> dict[str, Any]:
    chosen = {**STATIONS["weight-shapes"].defaults(), **choices}
    record: dict[str, Any] = computed("weight-shapes", chosen)["record"]
    return record


def test_a_record_reads_as_a_run() -> None:
    record = _record(steps=60)
    run = read_record(record)
    assert run.steps == 60 and len(run.scalar(LOSS_TRAIN)) == 60
    assert run.scalar(LEARNING_RATE).values[0] == 10**-2.5
    assert list(run.matrix(WEIGHT_L2).columns) == list(record["shapes"]) == list(run.parameters)


def test_only_the_rules_that_are_asked_speak() -> None:
    record = _record(init="heavy")
    found = ask_rules(record, ("abnormal-distribution", "weight-norm-growth"))
    assert found is not None and found.name == "abnormal-distribution" and "0.weight" in str(found.where)
    assert ask_rules(record, ("weight-norm-growth",)) is None


def test_the_lab_tells_what_the_instrument_tells(try_station: Try) -> None:
    """Collapsed shapes are no rule's business, but weight_distribution names them."""
    shown = try_station("weight-shapes", steps=0, init="zeros")
    assert shown.severity == "warning" and "all zero" in shown.title and not shown.diagnosis


@pytest.mark.parametrize("init", ["default", "heavy", "he"])
@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"hold": "heaps"}, "The pull to -0.1 or 0.1 makes the two heaps"),
        ({"hold": "clamp"}, "The clamp presses the weights"),
        ({"l1": "0.03", "optimizer": "momentum", "rate": -1.5}, "The penalty on magnitudes"),
    ],
)
def test_advice_on_a_shape_follows_from_what_makes_it(
    try_station: Try, init: str, chosen: dict[str, Any], words: str
) -> None:
    advice = try_station("weight-shapes", init=init, **chosen).advice
    assert advice.startswith(words) and ("bounded distribution" in advice) <= (init == "heavy")


def test_weights_that_a_wrong_sign_lengthens_are_told_so(try_station: Try) -> None:
    assert "turn its sign around" in try_station("weight-shapes", hold="swell").advice


@pytest.mark.parametrize("seed", range(25))
def test_no_advice_on_what_is_not_chosen(try_station: Try, seed: int) -> None:
    draw = random.Random(seed)
    picks = [c for c in STATIONS["weight-shapes"].controls if isinstance(c, Pick)]
    chosen: dict[str, Any] = {c.name: draw.choice(list(c.options)) for c in picks}
    advice = try_station("weight-shapes", **chosen, width=32, steps=draw.choice([0, 60]), rate=-2.0).advice
    assert "clamp" not in advice or chosen["hold"] == "clamp", chosen
    assert "pull" not in advice or chosen["hold"] == "heaps"
    assert "bounded distribution" not in advice or chosen["init"] == "heavy"
