"""Charts of runs made by hand: what their titles say, what they mark, and that Plotly takes them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import plots, signals
from torchdoctor.errors import UsageError
from torchdoctor.facts import ModuleFact, PredictionsFact, SamplesFact
from torchdoctor.findings import Finding, Fix, Severity
from torchdoctor.plots.chart import Chart, pack
from torchdoctor.plots.evidence import picture_of
from torchdoctor.plots.losses import find_spikes
from torchdoctor.plots.pairs import draw_pairs
from torchdoctor.rules.curves import smooth
from torchdoctor.run import HISTORY_ROWS, Run

STEPS = 300
LAYERS = {f"{i}.weight": (16, 16) for i in range(6)}


def finding(name: str = "dead-relu", step: int | None = 40, **more: Any) -> Finding:
    settings = {"code": "A003", "family": "architecture", "severity": Severity.ERROR, "confidence": 0.9}
    return Finding(name, **{**settings, **more}, title="t", summary="s", fix=Fix("f"), first_step=step)


def builder(steps: int = STEPS, gradients: dict[str, Any] | None = None) -> RunBuilder:
    falling = np.geomspace(2.3, 0.1, steps) * (1 + 0.02 * np.random.default_rng(0).normal(size=steps))
    run = RunBuilder(steps).parameters({**LAYERS, "0.bias": (16,)})
    run.scalar(signals.LOSS_TRAIN, falling)
    run.matrix(signals.GRADIENT_L2, gradients or {name: 1.0 + 0.1 * i for i, name in enumerate(LAYERS)})
    return run


def whole() -> Run:
    """With something for every chart."""
    run = builder()
    run.scalar(signals.LOSS_VALIDATION, [1.0, 0.5, 0.8], steps=[99, 199, 299])
    run.matrix(signals.UPDATE_RATIO, dict.fromkeys(LAYERS, 1e-3))
    for name in ("act", "out"):
        run.fact(ModuleFact(name, "ReLU", "relu", order=0))
    run.matrix(signals.ACTIVATION["dead"], {"act": np.linspace(0, 0.9, STEPS), "out": 0.0})
    run.matrix(signals.ACTIVATION["saturated"], {"act": np.nan, "out": 0.1})
    run.matrix(signals.ACTIVATION["std"], {"act": 1.0, "out": 0.5})
    run.scalar(signals.LEARNING_RATE, np.linspace(0, 0.1, STEPS), "0.0")
    run.scalar(signals.CLIP_NORM, np.linspace(0.5, 1.5, STEPS)).scalar(signals.CLIP_THRESHOLD, 1.0)
    run.scalar(signals.TIME_STEP, 0.1).scalar(signals.TIME_DATA, 0.06).scalar(signals.TIME_FORWARD, 0.02)
    run.scalar(signals.MEMORY_HOST, np.linspace(1e9, 2e9, STEPS))
    run.fact(PredictionsFact("validation", 3, 60, [20, 20, 20], [18, 19, 2], [30, 25, 5]))
    bins = [[10.0, 0.65, 0.4], [50.0, 0.95, 0.7]]
    worst = [{"index": 7, "loss": 4.0, "label": 2, "predicted": 0, "confidence": 0.98}]
    run.fact(SamplesFact("validation", "classes", 60, 1.0, 3, bins=bins, ece=0.25, confused=[[2, 0, 15]], worst=worst))
    return run.build()


def titles(run: Run) -> dict[str, str]:
    return {chart.name: chart.title for chart in plots.charts(run)}


def test_every_figure_is_drawn_and_plotly_takes_it() -> None:
    run = whole()
    drawn = [name for name in plots.DRAWN if not name.endswith("_distribution")]  # these are read from files
    for name in drawn:
        for theme in ("light", "dark"):
            figure = getattr(plots, name)(run, [finding()], theme=theme)
            assert figure.layout.title.text and figure.data, name
    assert len(plots.charts(run)) == len(drawn)
    json.dumps([chart.to_json() for chart in plots.charts(run, [finding()])], allow_nan=False)


def test_titles_say_what_is_to_be_seen() -> None:
    said = titles(whole())
    assert "validation best at step 199" in said["loss"] and "falling" in said["loss"]
    assert "act" in said["activations"] and "dead" in said["activations"]
    assert "acts in 50%" in said["gradient-norm"]
    assert "waits for data 60%" in said["time"]
    assert "grows by 753 MB" in said["memory"]
    assert "Class 2 is found in 10%" in said["classes"]
    assert "class 2 is taken for class 0" in said["confusion"]
    assert "more sure than it is right, by 25%" in said["calibration"]
    assert "as usual" in said["update-ratio"]


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        (np.geomspace(1e-6, 1, 6), "shrink 1.0e6-fold"),
        (np.geomspace(1, 1e-6, 6), "grow 1.0e6-fold"),
        (np.ones(6), "reach all 6 layers"),
        ([0, 0, 1, 1, 1, 1], "No gradient reaches 2 of 6"),
    ],
)
def test_how_gradients_flow(levels: Any, said: str) -> None:
    run = builder(gradients={n: float(v) for n, v in zip(LAYERS, levels, strict=True)}).build()
    assert said in titles(run)["gradient-flow"]


def test_what_was_never_finite_has_no_empty_chart() -> None:
    broken = builder(gradients=dict.fromkeys(LAYERS, np.nan)).scalar(signals.GRADIENT_GLOBAL_L2, np.nan).build()
    assert not {"gradient-flow", "gradient-norms", "gradient-norm"} & set(titles(broken))
    late = np.where(np.arange(STEPS) < 100, 1.0, np.nan)
    assert "not finite" in titles(builder(gradients=dict.fromkeys(LAYERS, late)).build())["gradient-flow"]


def test_parts_of_a_step_are_those_of_usual_steps() -> None:
    """Every tenth step is looked at closely, which takes long; only on those is it known where forward begins."""
    close = np.arange(STEPS) % 10 == 0
    run = builder().scalar(signals.TIME_STEP, np.where(close, 0.5, 0.1))
    looks = np.flatnonzero(close | (np.arange(STEPS) % 10 == 1))
    run.scalar(signals.TIME_BACKWARD, np.where(looks % 10 == 0, 0.3, 0.06), steps=looks)
    run.scalar(signals.TIME_FORWARD, np.where(np.arange(len(looks)) % 3 == 0, 0.1, 0.0), steps=looks)
    (chart,) = [c for c in plots.charts(run.build()) if c.name == "time"]
    parts = {trace["name"]: np.asarray(trace["y"]) for trace in chart.data}
    assert set(parts) == {"backward", "forward and everything else"}
    assert parts["backward"] == pytest.approx(np.full(len(parts["backward"]), 60.0))
    assert "100 ms" in chart.title


def test_gradients_that_are_exactly_zero_have_a_colour_of_their_own() -> None:
    run = builder(gradients={n: float(v) for n, v in zip(LAYERS, [0, 0, 1, 1, 1, 1], strict=True)}).build()
    heat, none = next(c for c in plots.charts(run) if c.name == "gradient-flow").data
    assert np.isnan(heat["z"][:2]).all() and np.isfinite(heat["z"][2:]).all()
    assert (none["z"][:2] == 1).all() and np.isnan(none["z"][2:]).all()
    dead = builder(gradients=dict.fromkeys(LAYERS, 0.0)).build()
    assert "gradient-norms" not in titles(dead) and "No gradient reaches 6 of 6" in titles(dead)["gradient-flow"]


def test_it_is_said_whose_samples_were_judged() -> None:
    run = builder().fact(PredictionsFact("train", 3, 60, [20, 20, 20], [18, 19, 2], [30, 25, 5])).build()
    assert "of training batches" in titles(run)["classes"] and "training" not in titles(whole())["classes"]


def test_weights_that_stop_changing_are_told() -> None:
    ratio = np.where(np.arange(STEPS) < 100, 1e-3, 0.0)
    run = builder().matrix(signals.UPDATE_RATIO, dict.fromkeys(LAYERS, ratio)).build()
    assert titles(run)["update-ratio"].startswith("No step after step 99 changes the weights")


def test_swings_of_a_loss_that_falls_by_decades_are_no_spikes() -> None:
    steps = np.arange(STEPS)
    loss = np.exp(-steps / 12) * (1.5 + np.sin(steps / 2)) + 4e-4 * np.random.default_rng(0).uniform(0.9, 1.1, STEPS)
    run = RunBuilder(STEPS).scalar(signals.LOSS_TRAIN, loss).build()
    (chart,) = [c for c in plots.charts(run) if c.name == "loss"]
    assert "spike" not in [trace["name"] for trace in chart.data]


def test_confusions_are_counts() -> None:
    (chart,) = [c for c in plots.charts(whole()) if c.name == "confusion"]
    assert chart.data[0]["z"][2, 0] == 15


def test_the_norms_title_says_where_it_goes() -> None:
    run = builder().scalar(signals.GRADIENT_GLOBAL_L2, np.geomspace(0.1, 50, STEPS)).build()
    assert "grows from 0.1" in titles(run)["gradient-norm"]


def test_layers_stand_in_the_order_of_the_forward_pass_without_biases() -> None:
    columns = dict.fromkeys(["5.weight", "0.bias", "0.weight", "3.weight"], 1.0)
    (chart,) = [c for c in plots.charts(builder(gradients=columns).build()) if c.name == "gradient-flow"]
    assert chart.data[0]["y"] == ["0.weight", "3.weight", "5.weight"]


def test_causes_are_marked_where_they_begin_and_what_follows_from_them_is_not() -> None:
    findings = [finding(), finding("overfitting", 90, consequence_of="dead-relu"), finding("unplaced", None)]
    chart = plots.charts(whole(), findings)[0]
    assert [note["text"] for note in chart.layout["annotations"]] == ["dead-relu"]
    assert chart.layout["shapes"][0]["x0"] == 40


def test_the_scatter_of_the_first_steps_is_no_spike() -> None:
    """Noise in proportion to the loss, which falls: nothing stands out of what is around it."""
    loss = np.exp(-np.arange(240) / 45) * (1 + 0.05 * np.random.default_rng(0).standard_normal(240))
    assert not len(find_spikes(loss, smooth(loss, 7)))
    loss[30] *= 2
    assert find_spikes(loss, smooth(loss, 7)).tolist() == [30]


def test_a_loss_that_breaks_and_a_spike_are_shown() -> None:
    values = np.full(STEPS, 1.0) + 0.01 * np.random.default_rng(0).normal(size=STEPS)
    values[150] = 9.0
    values[200:] = np.nan
    chart = plots.charts(RunBuilder(STEPS).scalar(signals.LOSS_TRAIN, values).build())[0]
    assert "breaks at step 200" in chart.title
    shown = {trace["name"]: trace for trace in chart.data}
    assert 150 in shown["spike"]["x"] and shown["NaN or Inf from here"]["x"][0] == 200


def test_a_long_run_keeps_its_extremes_and_stays_small() -> None:
    steps = 20 * HISTORY_ROWS
    values = np.ones(steps)
    values[steps // 2] = 50.0
    norms = dict.fromkeys(LAYERS, values)
    run = builder(steps, norms).scalar(signals.LOSS_TRAIN, values).build()
    drawn = {chart.name: chart for chart in plots.charts(run)}
    assert max(np.nanmax(trace["y"]) for trace in drawn["loss"].data) == 50.0
    assert np.nanmax(drawn["gradient-flow"].data[0]["z"]) == pytest.approx(np.log10(50), rel=1e-4)
    assert len(json.dumps([c.to_json() for c in drawn.values()])) < 400_000


def test_a_run_without_signals_has_no_figure_and_says_so() -> None:
    empty = RunBuilder(3).build()
    assert plots.charts(empty) == []
    with pytest.raises(UsageError, match="no signals for loss"):
        plots.loss(empty)


def test_the_picture_of_a_finding_is_the_nearest_there_is() -> None:
    charts = {c.name: c for c in plots.charts(whole())}
    assert picture_of(finding(), charts).name == "dead-units"  # type: ignore[union-attr]
    assert picture_of(finding("unheard-of"), charts).name == "loss"  # type: ignore[union-attr]
    assert picture_of(finding(), {}) is None


def test_two_runs_in_one_picture() -> None:
    pairs = draw_pairs(whole(), builder().build(), ("a", "b"))
    assert [c.name for c in pairs] == ["pair-loss"]
    assert [trace["name"] for trace in pairs[0].data] == ["a", "b"] and "a 0." in pairs[0].title


def test_numbers_are_packed_and_what_is_not_finite_is_null() -> None:
    packed = pack({"y": np.array([1.5, 2.5]), "n": [float("nan"), np.float32(2.0)], "z": np.ones((2, 3))})
    assert packed["y"]["dtype"] == "f4" and packed["n"] == [None, 2.0] and packed["z"]["shape"] == "2, 3"
    assert Chart("a", "b").to_json()["data"] == []
