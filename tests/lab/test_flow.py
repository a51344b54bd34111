"""What the films show: units that die and come back, and the frames that tell of them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from lab.conftest import Try
from torchdoctor.lab.figures import diverged, learned, tell_stuck
from torchdoctor.lab.stations.activation_flow import Deaths, tell


def _deaths(*rows: str) -> Deaths:
    """A row a step; x is a dead unit. One layer."""
    return Deaths(np.array([[[letter == "x" for letter in row]] for row in rows]))


def test_deaths_are_told_by_number_place_and_time() -> None:
    said = tell(_deaths("....", "x...", "xx..", "xxx."), None, 3)
    assert said == "3 units of 4 die, half of them by step 2; most in layer 1 (75% of it); none came back"
    assert tell(_deaths("xx..", "xx..", ".x.."), None, 2).endswith(
        "and 1 at the end, most in layer 1 (25% of it); 1 came back"
    )
    assert tell(_deaths("....", "x...", "...."), None, 2) == "All 4 units live after 2 steps; 1 came back"
    assert "from step 7 on; 1 of 4 units were dead by then" in tell(_deaths("....", "x..."), 7, 9)


def test_the_last_frame_is_what_the_chart_shows_and_its_title_counts_the_red_cells(try_station: Try) -> None:
    shown = try_station("activation-flow", rate=-1.0)
    assert shown.frames is not None
    cells = shown.frames.moving[0].frames
    assert shown.charts[0].data[0]["z"] == cells[-1]["z"]
    for cell, title in zip(cells, shown.frames.titles["lab-cells"], strict=True):
        dead = sum(value == 0 for row in cell["z"] for value in row)
        assert re.search(rf": {dead or 'none'} of 128 units dead", title)


def test_the_film_ends_where_nothing_is_finite_any_more_and_says_so(try_station: Try) -> None:
    shown = try_station("activation-flow", rate=1.0)
    assert shown.severity == "error" and shown.frames is not None
    broken = int(re.findall(r"nothing is finite from step (\d+) on", shown.title)[0])
    assert 0 < broken < 60 and shown.frames.at[-1] == broken - 1
    assert f"nothing is finite from step {broken} on" in shown.charts[0].title


def test_leaky_units_stay_alive_where_relu_dies(try_station: Try) -> None:
    dead = {a: try_station("activation-flow", bias=-1.5, activation=a).figures[1][1] for a in ("relu", "leaky-relu")}
    assert dead["leaky-relu"].startswith("0 of") and int(dead["relu"].split()[0]) > 64


@pytest.mark.parametrize(
    "choices",
    [
        {"activation": "silu", "optimizer": "momentum", "rate": -4.0, "bias": -3.0, "depth": 8, "seed": 90},
        {"activation": "gelu", "optimizer": "adam", "bias": -3.0, "targets": 2.0, "depth": 1, "outlier": "targets"},
    ],
)
def test_no_training_is_healthy_whose_loss_does_not_fall(try_station: Try, choices: dict[str, Any]) -> None:
    shown = try_station("activation-flow", **{"width": 8, "steps": 10, **choices})
    assert shown.charts[-1].title.startswith("It does not learn") and shown.severity == "info"
    assert "the loss is not" in shown.text


def test_a_loss_that_runs_off_is_an_error_whatever_the_rules_say(try_station: Try) -> None:
    shown = try_station(
        "activation-flow", activation="silu", optimizer="adam", rate=1.0, bias=1.0, depth=8, width=8, steps=10
    )
    assert shown.severity == "error" and re.match(r"The loss runs off, from 2\.42 to \d\.\de24; 31 units", shown.title)
    assert shown.advice and "no alarm" not in shown.text


def test_what_has_learned_is_below_its_start_and_below_a_guess() -> None:
    assert learned(np.linspace(2.0, 0.5, 20), 1.0) and not learned(np.linspace(2.0, 0.5, 20), 0.5)
    assert not learned(np.linspace(0.6, 0.58, 20), 1.0)
    assert "hardly fallen" in tell_stuck(np.full(20, 0.6), 1.0) and "constant guess" in tell_stuck(
        np.full(20, 1.0), 1.0
    )
    assert not learned(np.array([1.0, np.nan]), 1.0) and diverged(np.array([1.0, np.inf]), 1.0)
    assert diverged(np.array([1.0, 500.0]), 2.0) and not diverged(np.array([1.0, 50.0]), 2.0)
