"""What the films show: units that die and come back, and the frames that tell of them."""

from __future__ import annotations

import re

import numpy as np

from lab.conftest import Try
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
