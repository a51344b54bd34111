"""Distributions of weights, gradients and outputs over a run: what their titles say, and which tensor is shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from torchdoctor import plots, signals
from torchdoctor.errors import UsageError
from torchdoctor.facts import ParameterFact
from torchdoctor.findings import Finding, Fix, Place, Severity
from torchdoctor.plots.spreads import spread_of
from torchdoctor.plots.tensor_values import LAYER, draw_distribution, draw_weights
from torchdoctor.store.reader import open_run, read_histograms
from torchdoctor.store.writer import Recorder

LOOKS = (0, 1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Held:
    steps: np.ndarray
    columns: tuple[str, ...]
    counts: np.ndarray


def counts_of(values: np.ndarray) -> np.ndarray:
    """As the recorder counts."""
    edges = signals.histogram_edges()
    held = [(values == 0) if low == high else (low <= values) & (values < high) & (values > 0) if low >= 0
            else (low < values) & (values <= high) & (values < 0) for low, high in edges]  # fmt: skip
    return np.array([inside.sum() for inside in held], np.float64)


def spread_like(scale: list[float], zeros: float = 0.0, column: str = "fc.weight") -> list[Held]:
    normal = np.random.default_rng(0).normal(size=4000)
    normal[: int(zeros * len(normal))] = 0.0
    return [Held(np.array(LOOKS[: len(scale)]), (column,), np.stack([counts_of(normal * s) for s in scale])[:, None])]


def title(held: list[Held], what: str = "weights") -> str:
    chart = draw_distribution(held, "fc.weight", what)
    assert chart is not None
    return chart.title


def test_the_usual_size_is_that_of_the_values() -> None:
    spread = spread_of(spread_like([1.0]), "fc.weight")
    assert spread is not None
    assert spread.usual[0] == pytest.approx(0.67, rel=0.1) and spread.reach[0] == pytest.approx(2.6, rel=0.4)
    hill = spread.density(0, np.array([-3.0, 0.0, 3.0]), 0.5)
    assert hill[1] == pytest.approx(0.4, rel=0.15) and hill[0] < 0.05 and hill[2] < 0.05


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        ([1.0, 1.1, 1.2], "fc.weight: weights keep their size, usually ±0.8"),
        ([0.1, 0.2, 0.8], "grow 8-fold"),
        ([1.0, 1e-4, 1e-8], "shrink 1"),
        ([0.0, 0.0], "weights are all exactly zero"),
        ([1.0, np.nan], "weights are all NaN or infinite since step 1; before, usually ±0.711"),
        ([1.0, np.nan, 1.0], "keep their size, usually ±0.711; none is finite at step 1"),
        ([0.1, 0.8, 0.0, 0.0], "weights are all exactly zero since step 2; before, usually ±0.5"),
        ([0.0, 1.0, 0.0], "weights are all exactly zero since step 2"),
        ([0.0, np.nan], "weights are all NaN or infinite since step 1"),
    ],
)
def test_the_title_says_what_became_of_the_size(scale: list[float], said: str) -> None:
    assert said in title(spread_like(scale))


def test_zeros_are_said_and_are_no_part_of_the_hill() -> None:
    held = spread_like([1.0, 1.0], zeros=0.4)
    assert "40% are exactly zero" in title(held, "activations")
    chart = draw_distribution(held, "fc.weight")
    assert chart is not None and chart.data[1]["y"].argmax() == pytest.approx(60, abs=12)


def test_hills_where_one_scale_holds_else_magnitudes() -> None:
    kinds = [
        {trace["type"] for trace in chart.data}
        for scale in ([1.0, 2.0], [1.0, 1e-5], [0.0, 0.0])
        if (chart := draw_distribution(spread_like(scale), "fc.weight")) is not None
    ]
    assert kinds == [{"scatter"}, {"heatmap"}, {"scatter"}]


def test_what_is_never_negative_has_one_side_and_a_bar_of_its_zeros() -> None:
    relu = np.maximum(np.random.default_rng(0).normal(size=4000), 0.0)
    chart = draw_distribution([Held(np.array([0]), ("fc.weight",), counts_of(relu)[None, None])], "fc.weight")
    assert chart is not None
    _, hill, bar = chart.data
    assert hill["x"][0] == 0 and hill["y"].argmax() < 30, "it does not smear below zero"
    assert bar["x"].tolist() == [0, 0, 0] and bar["y"][1] - bar["y"][0] == pytest.approx(0.85 * 0.5, rel=0.05)
    assert bar["text"][0].endswith("exactly zero") and "51% zero" in chart.layout["annotations"][0]["text"]
    both = draw_distribution(spread_like([1.0]), "fc.weight")
    assert both is not None and both.data[1]["x"][0] < 0 and len(both.data) == 2, "no zeros, no bar"


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        ([1.0, 1e6], "grow more than 5,763-fold, from ±0.711 to more than ±4,096"),
        ([1e6, 1e7], "are usually more than ±4,096 all along"),
        ([1e3, 3e3], "(17% are beyond ±4,096)"),
        ([1e6, np.nan], "since step 1; before, usually more than ±4,096"),
        ([1.0, 0.0, np.nan], "since step 2; at step 0, usually ±0.711"),
    ],
)
def test_sizes_beyond_the_bins_are_not_made_up(scale: list[float], said: str) -> None:
    assert said in title(spread_like(scale))


def test_looks_without_a_finite_value_are_no_looks_at_nothing() -> None:
    chart = draw_distribution(spread_like([1.0, 1e5, np.nan]), "fc.weight")
    assert chart is not None
    heat, stripes = chart.data
    assert list(heat["x"]) == ["0", "1", "2, none finite"] and heat["y"][-1] == "> 4,096"
    assert np.isnan(heat["z"][:, 2]).all() and np.isfinite(stripes["z"][:, 2]).all()


def test_the_finding_that_points_at_it_is_named(recorded: Path) -> None:
    where = (Place(module="first"),)
    found = Finding("x", "X1", "data", Severity.ERROR, 1.0, "t", "s", Fix("f"), where=where, first_step=3)
    chart = draw_weights(open_run(recorded), [found])
    assert chart is not None and "\u2716 x" in [note["text"] for note in chart.layout["annotations"]]
    assert chart.layout["yaxis"]["ticktext"] == ["0", "1", "2", "\u2716 4", "8", "16"]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    recorder = Recorder.create(tmp_path / "run", {})
    names = ("first.weight", "last.weight", "last.bias")
    for name in names:
        recorder.fact(
            ParameterFact(name, [4] * (1 + name.endswith("t")), "f", "cpu", name.rpartition(".")[0], "Linear"), 0
        )
    normal = np.random.default_rng(0).normal(size=500)
    for step in LOOKS:
        recorder.scalar(signals.LOSS_TRAIN.name, step, 1.0)
        values = (normal, normal * (1 + step), normal[:20])
        recorder.histogram(step, "weight", names, np.stack([counts_of(v) for v in values]).astype(np.float32))
        recorder.histogram(step, "activation", ("last",), counts_of(normal)[None].astype(np.float32))
    recorder.close()
    return tmp_path / "run"


def test_what_a_finding_points_at_is_shown_else_what_changed_most(recorded: Path) -> None:
    run = open_run(recorded)
    found = Finding("x", "X1", "data", Severity.ERROR, 1.0, "t", "s", Fix("f"), where=(Place(module="first"),))
    charts = [draw_weights(run), draw_weights(run, [found])]
    assert [c and c.title.partition(":")[0] for c in charts] == ["last.weight", "first.weight"]
    assert {"weight-distribution", "activation-distribution"} <= {c.name for c in plots.charts(run)}


def test_a_layer_shows_its_largest_tensor_and_its_output(recorded: Path) -> None:
    run = open_run(recorded)
    drawn = {name: draw(run, "last") for name, draw in LAYER.items()}
    assert drawn["layer-gradient-distribution"] is None
    named = [(c.name, c.title.partition(":")[0]) for c in drawn.values() if c is not None]
    assert named == [("layer-weight-distribution", "last.weight"), ("layer-activation-distribution", "last")]
    assert all(draw(run, "../..") is None for draw in LAYER.values())


def test_the_public_function_takes_a_path_and_says_what_there_is(recorded: Path) -> None:
    assert plots.distributions(recorded).layout.title.text.startswith("last.weight")
    assert plots.distributions(str(recorded), "last", "activations", theme="dark").data
    with pytest.raises(UsageError, match=r"no distributions of weights of nothing; there are those of first\.weight"):
        plots.distributions(recorded, "nothing")
    with pytest.raises(UsageError, match="weights, gradients, activations, not 'x'"):
        plots.distributions(recorded, what="x")


def test_histograms_of_other_bins_and_damaged_counts_are_harmless(tmp_path: Path) -> None:
    recorder = Recorder.create(tmp_path / "run", {})
    recorder.histogram(0, "weight", ("w",), np.full((1, signals.HISTOGRAM_BINS), np.nan, np.float32))
    recorder.histogram(1, "weight", ("v",), np.full((1, signals.HISTOGRAM_BINS), -5.0, np.float32))
    recorder.close()
    assert read_histograms(tmp_path / "run", "weight") and draw_weights(open_run(tmp_path / "run")) is None
