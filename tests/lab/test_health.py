"""What the gradient-health monitor measures and says of networks, all combinations of its words among them."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import pytest
import torch

from lab.conftest import Try, computed
from lab.test_stations import problems
from torchdoctor.lab.computing.gradient_health import look
from torchdoctor.lab.computing.networks import build, make_data
from torchdoctor.lab.health import judge
from torchdoctor.lab.station import Pick, Value
from torchdoctor.lab.stations import STATIONS
from torchdoctor.lab.stations.gradient_health import draw_signal

STATION = STATIONS["gradient-health"]
SOUND = {"gradient": [1.0, 1.0], "between_units": [1.0], "saturated": [0.0], "dead": [0.0], "size": [1.0]}
SOUND |= {"spread": [1.0], "loss": 1.0}


@pytest.mark.parametrize(("depth", "steps"), [(1, 0), (3, 2)])
def test_every_combination_of_words_is_answered(depth: int, steps: int) -> None:
    words = {c.name: list(c.options) for c in STATION.controls if isinstance(c, Pick)}
    for *picked, residual in itertools.product(*words.values(), (False, True)):
        chosen: dict[str, Value] = {**STATION.defaults(), "width": 8, "depth": depth, "steps": steps}
        chosen |= {**dict(zip(words, picked, strict=True)), "residual": residual}
        assert problems(STATION.draw(chosen, computed(STATION.name, chosen))) == [], chosen


def test_a_head_that_gets_nothing_is_told_and_so_is_one_that_has_learned_everything(try_station: Try) -> None:
    shown = try_station("gradient-health", init="constant", norm="layer", activation="leaky-relu", depth=1)
    assert (shown.severity, shown.diagnosis) == ("error", "symmetric-initialization")
    assert "No gradient reaches the last layer" in shown.title
    fitted = judge(SOUND, {**SOUND, "gradient": [0.0, 0.0], "loss": 0.0}, STATION.defaults(), True)
    assert fitted.severity == "info" and "fitted exactly" in fitted.title
    died = judge(SOUND, {**SOUND, "gradient": [0.0, 0.0]}, STATION.defaults(), False)
    assert died.diagnosis == "dead-relu"


def _look(activation: str, spoil: Any = None) -> dict[str, Any]:
    torch.manual_seed(0)
    blocks, head = build(activation, "default", 4, 16, "layer", True, 16, 8)
    if spoil is not None:
        with torch.no_grad():
            spoil(blocks[2])
    return look(blocks, head, *make_data(64, 16, 8, torch.Generator().manual_seed(0)), activation)


def test_a_shortcut_neither_saturates_an_activation_nor_hides_a_dead_one(try_station: Try) -> None:
    shown = try_station("gradient-health", activation="tanh", init="default", norm="layer", residual=True, depth=30)
    assert shown.diagnosis != "saturated-activations"
    assert max(_look("tanh")["saturated"]) < 0.2
    dead = _look("relu", lambda block: block.norm.bias.fill_(-100))["dead"]
    assert dead[2] == 1.0 and max(dead[:2]) < 0.5


def test_gradients_that_are_well_do_not_make_a_training_healthy_that_does_not_learn(try_station: Try) -> None:
    shown = try_station("gradient-health", activation="tanh", init="large", depth=1, width=8, norm="rms", steps=20)
    assert shown.charts[-1].title.startswith("It does not learn") and shown.severity == "info"
    assert "the loss is not" in shown.text


def test_zeros_are_drawn_and_called_zero(try_station: Try) -> None:
    shown = try_station("gradient-health", init="zeros", steps=10)
    gradients, signal, units = shown.charts[:3]
    assert gradients.title == "The gradient is zero in every layer"
    assert signal.title == "The signal is zero in every layer"
    assert units.title == "Every unit of every layer is zero for every sample"
    for chart, layers in ((gradients, 11), (signal, 10)):
        zeros = next(trace for trace in chart.data if trace["name"] == "exactly zero")
        low, high = chart.layout["yaxis"]["range"]
        assert len(zeros["x"]) == layers and all(10**low < y < 10**high for y in zeros["y"])
    assert shown.advice == "Try random weights of the right scale, as He's."


def test_a_signal_that_dies_on_the_way_is_zero_from_there_on() -> None:
    chart = draw_signal({"size": [1.0, 0.5, 0.0], "spread": [0.5, 0.2, 0.0]})
    assert chart.title == "The signal is zero from layer 3 on" and chart.data[-1]["x"] == ["3"]
    assert chart.data[-1]["y"][0] < 0.1, "below all that is not zero, and below the usual band"
    healthy = draw_signal({"size": [1.0, 0.5], "spread": [0.5, 0.2]})
    assert [trace["name"] for trace in healthy.data] == ["size (root mean square)", "change from sample to sample"]


def test_small_gradients_are_no_fault_of_a_network_that_has_learned(try_station: Try) -> None:
    deep = {"activation": "sigmoid", "depth": 50, "norm": "batch"}
    fresh, trained = (try_station("gradient-health", **deep, steps=steps) for steps in (0, 100))
    assert trained.charts[-1].title.startswith("It learns")
    assert (trained.severity, trained.diagnosis) == ("info", "") and trained.title.startswith("It learns, though")
    assert fresh.severity == "healthy"


@pytest.mark.parametrize("seed", range(30))
def test_advice_leaves_out_what_is_chosen(try_station: Try, seed: int) -> None:
    draw = random.Random(seed)
    chosen: dict[str, Value] = {c.name: draw.choice(list(c.options)) for c in STATION.controls if isinstance(c, Pick)}
    chosen |= {"residual": draw.random() < 0.5, "depth": draw.choice([1, 10, 30]), "width": 16, "steps": 10}
    advice = try_station("gradient-health", **chosen).advice
    assert "normalisation" not in advice or chosen["norm"] == "none"
    assert "residual" not in advice or not chosen["residual"]
    assert "He's" not in advice or chosen["init"] != "he"
    assert not re.search(r"Try ReLU|, ReLU|or ReLU", advice) or chosen["activation"] in ("sigmoid", "tanh", "none")
    assert "fewer layers" not in advice or int(chosen["depth"]) > 1
