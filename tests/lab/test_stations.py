"""Whatever is chosen, a station answers with sentences and figures that can be drawn; its presets keep their word."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lab.conftest import Try, computed
from torchdoctor.lab.station import Pick, Scale, Shown, Station, Switch, Value
from torchdoctor.lab.stations import STATIONS
from torchdoctor.plots.chart import Chart
from torchdoctor.rules import find
from torchdoctor.ui.lab import describe_shown

SEVERITIES = ("healthy", "info", "warning", "error")
MOST_BYTES = 400_000
RANDOM = 25
DEAR = {"depth": 12.0, "width": 64.0, "steps": 60.0}
"""What random choices are held to: the dearest ones cost seconds and are one case of the extremes."""
KEPT = {
    ("gradient-health", "ReLU, He"): ("healthy", ""),
    ("gradient-health", "ReLU, all zero"): ("error", "symmetric-initialization"),
    ("gradient-health", "Sigmoid, ten layers"): ("warning", "vanishing-gradients"),
    ("gradient-health", "Tanh, weights too large"): ("warning", "saturated-activations"),
    ("gradient-health", "ReLU, weights too small"): ("warning", "vanishing-gradients"),
    ("gradient-health", "One constant"): ("error", "symmetric-initialization"),
    ("gradient-health", "Thirty layers, plain"): ("warning", "vanishing-gradients"),
    ("gradient-health", "The same, with residual connections and layer norm"): ("healthy", ""),
    ("activation-flow", "A good rate"): ("healthy", ""),
    ("activation-flow", "Rate too high"): ("error", "learning-rate-too-high"),
    ("activation-flow", "The same, leaky ReLU"): ("healthy", ""),
    ("activation-flow", "The same, GELU"): ("healthy", ""),
    ("activation-flow", "Biases start below zero"): ("error", "dead-relu"),
    ("activation-flow", "One odd batch"): ("info", "dead-relu"),
    ("activation-flow", "Adam, first steps too long"): ("error", "learning-rate-too-high"),
    ("weight-shapes", "Fresh"): ("healthy", ""),
    ("weight-shapes", "Trained"): ("healthy", ""),
    ("weight-shapes", "Decay too strong"): ("warning", "over-regularized"),
    ("weight-shapes", "Sparse"): ("info", ""),
    ("weight-shapes", "Heavy tails from the start"): ("warning", "abnormal-distribution"),
    ("weight-shapes", "Heavy tails from one broken value"): ("warning", "abnormal-distribution"),
    ("weight-shapes", "Pressed against a limit"): ("warning", "abnormal-distribution"),
    ("weight-shapes", "Two heaps"): ("info", ""),
    ("weight-shapes", "All equal"): ("error", "symmetric-initialization"),
    ("weight-shapes", "All zero"): ("error", "symmetric-initialization"),
    ("weight-shapes", "Growing without end"): ("warning", "weight-norm-growth"),
    ("learning-rates", "A good rate"): ("healthy", ""),
    ("learning-rates", "Too low"): ("warning", "learning-rate-too-low"),
    ("learning-rates", "At the edge"): ("warning", "learning-rate-oscillation"),
    ("learning-rates", "Too high"): ("error", "learning-rate-too-high"),
    ("learning-rates", "Momentum goes farther"): ("healthy", ""),
    ("learning-rates", "Noise and no decay"): ("warning", "learning-rate-oscillation"),
    ("learning-rates", "The same, decayed"): ("healthy", ""),
    ("learning-rates", "Stuck at a saddle"): ("warning", "plateau-or-saddle"),
    ("learning-rates", "Past the saddle"): ("healthy", ""),
    ("learning-rates", "The banana"): ("healthy", ""),
    ("learning-rates", "A network, good rate"): ("healthy", ""),
    ("learning-rates", "A network, too high"): ("error", "learning-rate-too-high"),
    ("learning-rates", "No warm-up"): ("error", "missing-warmup"),
    ("learning-rates", "The same, warmed up"): ("healthy", ""),
}
"""What the words of each preset promise."""


def test_every_preset_is_promised_something() -> None:
    assert set(KEPT) == {(s.name, p.label) for s in STATIONS.values() for p in s.presets}


@pytest.mark.parametrize("name", STATIONS)
def test_presets_show_what_their_words_promise(try_station: Try, name: str) -> None:
    for preset in STATIONS[name].presets:
        shown = try_station(name, **preset.choices)
        assert (shown.severity, shown.diagnosis) == KEPT[name, preset.label], (preset.label, shown.title)
        assert preset.text
        for chart in shown.charts:
            chart.figure()  # Plotly refuses words that it does not know


@pytest.mark.parametrize("name", STATIONS)
def test_any_choice_gives_sound_sentences_and_figures(try_station: Try, name: str) -> None:
    station = STATIONS[name]
    for choices in (*_extremes(station), *_random(station)):
        shown = try_station(name, **choices)
        assert problems(shown) == [], choices


@pytest.mark.parametrize("name", STATIONS)
def test_the_same_choices_give_the_same_answer(name: str) -> None:
    chosen = STATIONS[name].defaults() | ({"batch": "16"} if name == "learning-rates" else {})
    once, twice = (json.dumps(computed(name, chosen)) for _ in range(2))
    assert once == twice
    assert json.dumps(computed(name, {**chosen, "seed": 1})) != once


def test_a_layer_too_small_to_judge_is_left_out_of_the_count(try_station: Try) -> None:
    small, large = (try_station("weight-shapes", width=width, steps=0) for width in (16, 64))
    assert "too small to judge" in small.charts[2].title and large.title.endswith("usual shape in all 3 layers")
    assert small.title == "Weights of the usual shape in 2 of 3 layers (the head is too small to judge)"


def test_usual_shapes_do_not_make_a_training_healthy_that_does_not_learn(try_station: Try) -> None:
    shown = try_station("weight-shapes", optimizer="sgd", rate=-4.0, steps=20)
    assert shown.charts[-1].title.startswith("It does not learn") and shown.severity == "info"
    assert "usual shape" in shown.title and "the loss is not" in shown.text


def problems(shown: Shown) -> list[str]:
    """What is wrong with an answer, in words."""
    found = []
    texts = [shown.title, shown.text, shown.advice, *(chart.title for chart in shown.charts)]
    texts += [t for titles in (shown.frames.titles if shown.frames else {}).values() for t in titles]
    if shown.severity not in SEVERITIES:
        found.append(f"severity {shown.severity}")
    if shown.diagnosis and find(shown.diagnosis) is None:
        found.append(f"there is no rule {shown.diagnosis}")
    if shown.diagnosis and shown.severity == "healthy":
        found.append("a diagnosis of something healthy")
    found += [f"odd words: {t}" for t in texts if re.search(r"\b(nan|inf|None)\b|  |^[a-z]{30}", t)]
    found += [f"too long: {t}" for t in texts if len(t) > 320]
    if not shown.title or any(not chart.title or not chart.data for chart in shown.charts):
        found.append("a title or a chart is empty")
    if len({chart.name for chart in shown.charts}) < len(shown.charts):
        found.append("two charts have one name")
    sent = json.dumps(describe_shown(shown), allow_nan=False)
    if len(sent) > MOST_BYTES:
        found.append(f"{len(sent)} bytes")
    return [*found, *_frame_problems(shown)]


def _frame_problems(shown: Shown) -> list[str]:
    if shown.frames is None:
        return []
    count, charts = len(shown.frames.at), {chart.name: chart for chart in shown.charts}
    found = [] if sorted(set(shown.frames.at)) == list(shown.frames.at) else ["frames are out of order"]
    found += [f"titles of {n}" for n, titles in shown.frames.titles.items() if n not in charts or len(titles) != count]
    found += [f"moving {m.chart}" for m in shown.frames.moving if len(m.frames) != count or not _fits(m, charts)]
    if not any(chart.layout["xaxis"]["title"]["text"] == shown.frames.axis for chart in shown.charts):
        found.append("no chart has the axis of the frames")
    return found


def _fits(moving: Any, charts: dict[str, Chart]) -> bool:
    return moving.chart in charts and moving.trace < len(charts[moving.chart].data)


def _extremes(station: Station) -> Iterator[dict[str, Value]]:
    """Every option and both ends of every scale by itself, then all ends together."""
    for control in station.controls:
        yield from ({control.name: value} for value in _values(control))
    for end in (0, -1):
        ends = {control.name: _values(control)[end] for control in station.controls}
        yield {k: v if end == 0 or not isinstance(v, float) else min(v, DEAR.get(k, v)) for k, v in ends.items()}


def _values(control: Pick | Scale | Switch) -> list[Value]:
    if isinstance(control, Pick):
        return list(control.options)
    if isinstance(control, Scale):
        return [control.read(str(control.low)), control.read(str(control.high))]
    return [False, True]


def _random(station: Station) -> Iterator[dict[str, Value]]:
    draw = random.Random(station.name)
    for _ in range(RANDOM):
        chosen: dict[str, Value] = {}
        for control in station.controls:
            if isinstance(control, Scale):
                high = min(control.high, DEAR.get(control.name, control.high))
                steps = round((high - control.low) / control.step)
                chosen[control.name] = control.read(str(control.low + control.step * draw.randint(0, steps)))
            else:
                chosen[control.name] = draw.choice(_values(control))
        yield chosen


def test_a_histogram_and_the_measure_of_its_tails_say_the_same(try_station: Try) -> None:
    shown = try_station("weight-shapes", optimizer="sgd", rate=-1.0, odd=True)
    titles = {chart.name: chart.title for chart in shown.charts}
    assert "a few giants" in titles["lab-first"]
    assert (
        "usual shape" not in titles["lab-second"] and "longer tails than usual, but no giants" in titles["lab-second"]
    )
    assert titles["lab-peakedness"].endswith("heavy tails in the first layer")
