"""What is said of a learning rate holds for all rates that were tried, and advises nothing that is chosen already."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
import torch

from lab.conftest import Try, computed
from torchdoctor.lab.computing.learning_rates import SWEEP, turning
from torchdoctor.lab.rates import RATE, STEPS, best_of, tried
from torchdoctor.lab.station import Scale, Value
from torchdoctor.lab.stations import STATIONS
from torchdoctor.rules.curves import figure

STATION = STATIONS["learning-rates"]


def drawn(seed: int) -> dict[str, Value]:
    """Any choice, at the scales' ends as often as between."""
    draw, chosen = random.Random(seed), {}
    for control in STATION.controls:
        if isinstance(control, Scale):
            places = round((control.high - control.low) / control.step)
            at = draw.choice([0, places, draw.randint(0, places), draw.randint(0, places)])
            chosen[control.name] = control.read(str(round(control.low + control.step * at, 6)))
        else:
            chosen[control.name] = draw.choice(list(control.options))  # type: ignore[union-attr]
    return chosen


@pytest.mark.parametrize("seed", range(40))
def test_words_hold_for_all_rates_tried_and_propose_what_can_be_chosen(seed: int) -> None:
    choices = drawn(seed)
    found = computed(STATION.name, choices)
    shown, rate = STATION.draw(choices, found), 10 ** float(choices["rate"])
    best, lowest = best_of(found, rate)
    ends = [*found["sweep"]["final"], *(found["final"][name] for name in ("third", "chosen", "triple"))]
    assert not any(end < lowest for end in ends), choices
    sweep = next(chart for chart in shown.charts if chart.name == "lab-sweep")
    assert f"Of the rates tried {figure(best)} ends lowest" in sweep.title or "None of the rates tried" in sweep.title
    marked = next(trace for trace in sweep.data if trace["name"] == "chosen, a third and three times")
    assert set(np.round(np.log10(marked["x"]), 6)) >= set(np.round(np.log10([rate / 3, rate, 3 * rate]), 6))
    for proposed in re.findall(
        r"([\d.,e-]+\d) (?:would leave|leaves|did best|or |leads)", f"{shown.title} {shown.advice}"
    ):
        assert 10**RATE.low <= float(proposed.replace(",", "")) <= 10**RATE.high, (choices, shown)
    assert "more steps" not in shown.advice or float(choices["steps"]) < STEPS.high
    assert "omentum" not in shown.advice or choices["optimizer"] == "sgd"
    assert "smaller batches" not in shown.advice or choices["batch"] != "1"
    assert "decay" not in shown.advice or choices["schedule"] == "constant"
    assert "threefold" not in shown.advice or 3 * rate <= 10**RATE.high


def test_the_sweep_ends_where_the_slider_ends() -> None:
    assert (SWEEP[0], SWEEP[-1]) == (RATE.low, RATE.high)


def test_the_chosen_rate_takes_part(try_station: Try) -> None:
    """One between two rates of the sweep that ends below both."""
    choices = {**STATION.defaults(), "rate": -1.3, "narrow": 1.5}
    found = computed(STATION.name, choices)
    found["final"]["chosen"] = min(found["sweep"]["final"]) / 2
    rates, ends = tried(found, 10**-1.3)
    assert list(rates) == sorted(rates) and len(rates) == len(ends) == len(SWEEP) + 3
    assert best_of(found, 10**-1.3) == (10**-1.3, found["final"]["chosen"])


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("seed", range(6))
def test_a_long_way_to_the_saddle_is_a_rate_too_high(try_station: Try, seed: int, schedule: str) -> None:
    chosen = {"task": "saddle", "optimizer": "rmsprop", "rate": 1.0, "batch": "1", "seed": seed, "schedule": schedule}
    shown = try_station(STATION.name, **chosen)
    assert re.search("too high|never settles", shown.title) and "higher" not in shown.advice


def test_a_path_that_hangs_is_led_past_by_what_is_not_chosen(try_station: Try) -> None:
    stuck = try_station(STATION.name, task="saddle", rate=-2.0)
    assert "hangs at the saddle" in stuck.title
    assert "or momentum or the noise of smaller batches leads past it" in stuck.advice


def test_turning_is_a_cosine_however_short_the_moves() -> None:
    path = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    for scale in (1.0, 1e-100, 1e-200):
        assert turning(scale * path) == pytest.approx(-1.0)
    assert turning(0 * path) == 0
