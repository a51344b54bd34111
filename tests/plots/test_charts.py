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
from torchdoctor.findings import Finding, Fix, Severity, Verdict
from torchdoctor.plots.chart import Chart, pack, percent
from torchdoctor.plots.evidence import picture_of
from torchdoctor.plots.losses import draw_loss, find_spikes
from torchdoctor.plots.pairs import draw_pairs
from torchdoctor.report.record import describe_figures
from torchdoctor.report.vitals import take
from torchdoctor.run import HISTORY_ROWS, Run
from torchdoctor.summary import summary

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
    run.matrix(signals.UPDATE_RATIO, dict.fromkeys(LAYERS, 1e-3)).matrix(signals.WEIGHT_L2, dict.fromkeys(LAYERS, 2.0))
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
        (np.geomspace(1e-6, 1, 6), "The gradient's norm is 1.0e6 times smaller in {} than in {}"),
        (np.geomspace(1, 1e-6, 6), "The gradient's norm is 1.0e6 times larger in {} than in {}"),
        (np.ones(6), "reach all 6 layers"),
        ([0, 0, 1, 1, 1, 1], "No gradient reaches 2 of 6"),
    ],
)
def test_how_gradients_flow(levels: Any, said: str) -> None:
    run = builder(gradients={n: float(v) for n, v in zip(LAYERS, levels, strict=True)}).build()
    assert said.format(min(LAYERS), max(LAYERS)) in titles(run)["gradient-flow"]


def test_what_was_never_finite_has_no_empty_chart() -> None:
    broken = builder(gradients=dict.fromkeys(LAYERS, np.nan)).scalar(signals.GRADIENT_GLOBAL_L2, np.nan).build()
    assert not {"gradient-flow", "gradient-norms", "gradient-norm"} & set(titles(broken))
    late = np.where(np.arange(STEPS) < 100, 1.0, np.nan)
    assert "not finite" in titles(builder(gradients=dict.fromkeys(LAYERS, late)).build())["gradient-flow"]


def test_waiting_that_is_longer_than_the_step_is_no_split() -> None:
    """A loader within a loader is waited for twice."""
    run = builder().scalar(signals.TIME_STEP, 0.01).scalar(signals.TIME_FORWARD, 0.001)
    run = run.scalar(signals.TIME_DATA, np.where(np.arange(STEPS) % 3, 0.018, 0.001)).build()
    assert "time" not in titles(run) and take(run).shares == ()


def split_run(steps: int = STEPS, forward_known: bool = True) -> Run:
    """As a loop of short steps is recorded. A quiet one takes 10 ms: 1 of waiting, 2 forward, 5 backward, 1 update, and
    1 of ours; every fourth waits 4 ms, the others not. Every tenth is looked at closely, the one after it is slow, too,
    and parts are known on those and on few others."""
    at = np.arange(steps)
    close, after = at % 10 == 0, at % 10 == 1
    slow = np.select([close, after], [30.0, 5.0], 1.0)
    data = np.where(at % 4 == 0, 4e-3, 0.0)
    run = builder(steps).scalar(signals.TIME_STEP, 9e-3 * slow + data).scalar(signals.TIME_DATA, data + 1e-9)
    looks = np.flatnonzero(close | after | (at % 20 == 5))
    for signal, part in ((signals.TIME_FORWARD, 2e-3), (signals.TIME_BACKWARD, 5e-3), (signals.TIME_OPTIMIZER, 1e-3)):
        known = forward_known or signal is not signals.TIME_FORWARD
        run.scalar(signal, part * slow[looks] * (known | close[looks]), steps=looks)
    run.scalar(signals.TIME_OWN, 1e-3 * slow**1.2)
    return run.build()


def test_parts_of_a_step_are_those_of_usual_steps() -> None:
    (chart,) = [c for c in plots.charts(split_run()) if c.name == "time"]
    parts = {trace["name"]: float(np.mean(trace["y"])) for trace in chart.data}
    assert parts == pytest.approx(
        {"waiting for data": 1, "forward": 2, "backward": 5, "update": 1, "torchdoctor": 1, "everything else": 0},
        abs=0.05,
    )
    assert "the largest part backward (50%)" in chart.title or "most of it backward" in chart.title


def test_a_part_that_is_seen_in_close_looks_alone_is_not_told() -> None:
    (chart,) = [c for c in plots.charts(split_run(forward_known=False)) if c.name == "time"]
    parts = {trace["name"]: float(np.mean(trace["y"])) for trace in chart.data}
    assert "forward" not in parts and parts["forward and everything else"] == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("steps", [40, STEPS, 50_000])
def test_the_live_view_and_the_chart_tell_the_same_split(steps: int) -> None:
    run = split_run(steps)
    shares = dict(take(run).shares)
    assert sum(shares.values()) == pytest.approx(1)
    assert shares == pytest.approx(
        {"data": 0.1, "forward": 0.2, "backward": 0.5, "update": 0.1, "torchdoctor": 0.1, "other": 0}, abs=0.02
    )
    told = next(c for c in plots.charts(run) if c.name == "time")
    assert f"backward ({percent(shares['backward'])})" in told.title
    notes = [note["text"] for note in told.layout["annotations"]]
    assert notes == (["not known in parts here"] if steps > HISTORY_ROWS else [])


def test_our_own_time_inside_the_parts_is_not_counted_twice() -> None:
    run = builder().scalar(signals.TIME_STEP, 4e-3).scalar(signals.TIME_OWN, 3e-3)
    run.scalar(signals.TIME_FORWARD, 2e-3).scalar(signals.TIME_BACKWARD, 1e-3)
    shares = dict(take(run.build()).shares)
    assert shares == pytest.approx({"forward": 1 / 6, "backward": 1 / 12, "torchdoctor": 0.75, "other": 0.0})


def test_gradients_that_are_exactly_zero_have_a_colour_of_their_own() -> None:
    run = builder(gradients={n: float(v) for n, v in zip(LAYERS, [0, 0, 1, 1, 1, 1], strict=True)}).build()
    heat, none = next(c for c in plots.charts(run) if c.name == "gradient-flow").data
    assert np.isnan(heat["z"][:2]).all() and np.isfinite(heat["z"][2:]).all()
    assert (none["z"][:2] == 1).all() and np.isnan(none["z"][2:]).all()
    dead = builder(gradients=dict.fromkeys(LAYERS, 0.0)).build()
    assert "gradient-norms" not in titles(dead) and "No gradient reaches 6 of 6" in titles(dead)["gradient-flow"]


def validated(training: Any, validation: list[float]) -> RunBuilder:
    steps = np.linspace(0, STEPS - 1, len(validation)).astype(int)
    return (
        RunBuilder(STEPS).scalar(signals.LOSS_TRAIN, training).scalar(signals.LOSS_VALIDATION, validation, steps=steps)
    )


FAR_DOWN = np.geomspace(2.3, 0.01, STEPS)


@pytest.mark.parametrize(
    ("training", "validation", "named", "axis"),
    [
        (FAR_DOWN, [2.2, 1.9, 2.1, 2.42], False, "linear"),
        (FAR_DOWN, [2.2, 1.9, 1.6, 1.3], False, "log"),
        (FAR_DOWN, [2.2, 1.9, 1.95, 2.0], False, "log"),
        (FAR_DOWN, [2.2, 1.9, 1.95, 2.0], True, "linear"),
        (np.geomspace(9000, 0.01, STEPS), [2.2, 1.9, 2.1, 2.42], False, "log"),
        (np.linspace(2.3, 0.5, STEPS), [2.2, 1.9, 2.1, 2.42], False, "linear"),
    ],
    ids=["risen", "falls", "hardly risen", "but a finding says so", "a linear axis would hide it", "narrow"],
)
def test_a_validation_loss_that_rises_is_seen_to(
    training: Any, validation: list[float], named: bool, axis: str
) -> None:
    found = [finding("overfitting", symptoms=("train-down-validation-up",))] if named else []
    chart = draw_loss(validated(training, validation).build(), found)
    assert chart is not None and chart.layout["yaxis"].get("type", "linear") == axis


def test_the_best_validation_is_marked() -> None:
    chart = draw_loss(validated(FAR_DOWN, [2.2, np.nan, 1.9, 2.42]).build())
    assert chart is not None
    (star,) = [trace for trace in chart.data if trace["name"] == "best validation"]
    assert star["marker"]["symbol"] == "star" and list(star["y"]) == [1.9] and list(star["x"]) == [199]
    once = draw_loss(validated(FAR_DOWN, [2.2]).build())
    assert once is not None and "best validation" not in [trace["name"] for trace in once.data]


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
    counted, right = chart.data
    assert counted["z"][2, 0] == 15
    assert np.isnan(np.diag(counted["z"])).all() and (np.diag(right["z"]) == 1).all() and np.nansum(right["z"]) == 3
    assert "grey: right" in chart.layout["xaxis"]["title"]["text"]


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
    assert not len(find_spikes(loss))
    loss[30] *= 2
    assert find_spikes(loss).tolist() == [30]


CURVES = {
    "exponential": lambda s: np.exp(-s / s.max() * 4) + 0.05,
    "steep": lambda s: 2.3 * np.exp(-s / s.max() * 20) + 0.02,
    "power": lambda s: (1 + s) ** -0.5,
    "decades": lambda s: np.log(10 * np.exp(-s / s.max() * 10) + 1e-3),  # as the axis shows it
    "stairs": lambda s: 2 - np.floor(3.99 * s / (s.max() + 1)) / 2,
}
NOISES = {
    "of one size": lambda rng, curve, size: curve + size * rng.standard_normal(len(curve)),
    "in proportion": lambda rng, curve, size: curve * np.exp(size * rng.standard_normal(len(curve))),
    "skewed": lambda rng, curve, size: curve * (1 + size * (rng.gamma(4, 0.25, len(curve)) - 1)),
}


@pytest.mark.parametrize("rows", [40, 60, 250, 900])
def test_spikes_are_told_where_there_are_some_and_nowhere_else(rows: int) -> None:
    told, missed, runs = 0, 0, 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        for curve in CURVES.values():
            smooth_loss = curve(np.arange(rows))
            for noise in NOISES.values():
                for size in (0.0, 0.002, 0.02):
                    loss = noise(rng, smooth_loss, size)
                    at = int(rng.integers(rows // 4, rows - 3))
                    spiked = loss.copy()
                    spiked[at] += 0.6 * np.ptp(loss)
                    told += len(find_spikes(loss))
                    missed += find_spikes(spiked).tolist() != [at]
                    runs += 1
    assert told <= 0.01 * runs and missed <= 0.05 * runs


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


def test_a_smoothed_pair_says_so_and_begins_where_the_runs_began() -> None:
    loss = np.full(800, 13.4)
    loss[:4] = 4.39, 6.0, 8.0, 9.5
    run = RunBuilder(800).scalar(signals.LOSS_TRAIN, loss).build()
    (pair,) = draw_pairs(run, run, ("a", "b"))
    assert pair.data[0]["y"][0] == pytest.approx(4.39) and pair.data[0]["y"][-1] == pytest.approx(13.4)
    assert pair.layout["yaxis"]["title"]["text"] == "training loss, smoothed"


def test_the_card_the_loss_and_the_pair_tell_the_same_numbers() -> None:
    noise = np.random.default_rng(0).lognormal(0, 0.3, 800)
    run = RunBuilder(800).scalar(signals.LOSS_TRAIN, np.geomspace(28_000, 2_000, 800) * noise).build()
    (card,) = [f for f in describe_figures(Verdict({"steps": 800}, ()), summary(run)) if f["name"] == "training loss"]
    title, (pair,) = titles(run)["loss"], draw_pairs(run, run, ("a", "b"))
    assert f"from {card['value']}" in title and f"a {card['value'].split(' to ')[1]}, b" in pair.title


def test_numbers_are_packed_and_what_is_not_finite_is_null() -> None:
    packed = pack({"y": np.array([1.5, 2.5]), "n": [float("nan"), np.float32(2.0)], "z": np.ones((2, 3))})
    assert packed["y"]["dtype"] == "f4" and packed["n"] == [None, 2.0] and packed["z"]["shape"] == "2, 3"
    assert Chart("a", "b").to_json()["data"] == []
