"""What charts show of the odd: layers that findings name, exact zeros, what is not finite, and calls of one layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import plots
from torchdoctor.facts import ModuleFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Severity
from torchdoctor.plots.activations import ROOM
from torchdoctor.plots.chart import Chart, pack
from torchdoctor.plots.evidence import picture_of
from torchdoctor.plots.layer import DRAWN as OF_A_LAYER
from torchdoctor.plots.pairs import draw_pairs
from torchdoctor.plots.thinning import ROWS
from torchdoctor.signals import (
    ACTIVATION,
    GRADIENT,
    GRADIENT_GLOBAL_L2,
    GRADIENT_L2,
    UPDATE_RATIO,
    WEIGHT,
    WEIGHT_L2,
)

pytestmark = pytest.mark.filterwarnings("error")

N = 120
AT = np.arange(N)
BROKEN = np.where(AT < 80, 0.0, 7.0)
"""Elements that are not finite, from step 80 on."""
LAYERS = [f"{i}.weight" for i in range(12)]


def finding(name: str = "vanishing-gradients", *where: Place, step: int | None = None, **more: Any) -> Finding:
    return Finding(
        name,
        "A1",
        "architecture",
        Severity.ERROR,
        1.0,
        "the title",
        "s",
        Fix("f"),
        where=where,
        first_step=step,
        **more,
    )


def layered(signal: Any, values: Any, names: list[str] = LAYERS) -> RunBuilder:
    held = values if isinstance(values, dict) else dict.fromkeys(names, values)
    return RunBuilder(N).parameters(dict.fromkeys(names, (4, 4))).matrix(signal, held)


def chart_of(run: RunBuilder, name: str, *findings: Finding) -> Chart:
    return next(chart for chart in plots.charts(run.build(), findings) if chart.name == name)


def notes(chart: Chart) -> list[tuple[str, Any]]:
    return [(note["text"], note.get("y")) for note in chart.layout.get("annotations", ())]


# -- what findings name --------------------------------------------------------------------


def test_rows_that_a_finding_names_are_marked_though_it_has_no_step() -> None:
    found = finding("vanishing-gradients", Place("0", "0.weight"), Place("2", "2.weight"))
    chart = chart_of(layered(GRADIENT_L2, 1.0), "gradient-flow", found)
    assert notes(chart) == [("\u2716 vanishing-gradients", "0.weight"), ("\u2716", "2.weight")]
    assert all(note["hovertext"] == "the title" for note in chart.layout["annotations"])


def test_a_finding_with_a_step_is_named_once() -> None:
    chart = chart_of(layered(GRADIENT_L2, 1.0), "gradient-flow", finding("x", Place("3"), step=40))
    assert notes(chart) == [("x", 1.0), ("\u2716", "3.weight")]


def test_a_row_of_several_layers_is_marked_for_each_of_them() -> None:
    names = [f"{i}.weight" for i in range(2 * ROWS)]
    chart = chart_of(layered(GRADIENT_L2, 1.0, names), "gradient-flow", finding("x", Place("7", "7.weight")))
    assert notes(chart) == [("\u2716 x", "6.weight and 1 more")]


def test_lines_that_a_finding_names_are_drawn_with_a_sign() -> None:
    found = finding("x", Place("1", "1.weight"), Place("2", "2.weight"))
    for signal, name in ((GRADIENT_L2, "gradient-norms"), (UPDATE_RATIO, "update-ratio"), (WEIGHT_L2, "weight-norms")):
        chart = chart_of(layered(signal, 1e-3), name, found)
        drawn = [trace for trace in chart.data if trace.get("showlegend", True)]
        named = [trace["name"] for trace in drawn if trace["name"] != "all layers"]
        assert named == ["0.weight", "\u2716 1.weight", "\u2716 2.weight", "4.weight", "7.weight", "11.weight"]
        assert chart.layout["legend"]["traceorder"] == "normal" and "\u2716" not in chart.title
        assert len({trace["line"]["dash"] for trace in drawn if trace["name"] != "all layers"}) == 6


def test_layers_are_marked_over_their_bars() -> None:
    run = layered(ACTIVATION["std"], {"a": 1.0, "b": 2.0})
    chart = chart_of(run, "activations", finding("x", Place("b")))
    assert [(n["text"], n["x"]) for n in chart.layout["annotations"]] == [("\u2716", "b"), ("\u2716 x", 0)]


# -- zeros, and what is not finite -------------------------------------------------------------


def test_zeros_of_a_logarithmic_axis_stand_below_it() -> None:
    run = layered(UPDATE_RATIO, {"0.weight": 0.0, "1.weight": np.where(AT < 60, 1e-3, 0.0), "2.weight": 1e-6})
    chart = chart_of(run, "update-ratio")
    marks = {trace["name"]: trace for trace in chart.data if trace["mode"] == "markers"}
    assert set(marks) == {"0.weight", "1.weight"}
    heights = [float(trace["y"][0]) for trace in marks.values()]
    assert len(set(heights)) == 2 and max(heights) < 1e-6, "each in a row of its own"
    assert min(marks["1.weight"]["x"]) >= 60 and marks["0.weight"]["hovertemplate"] == "0"
    assert all(len(trace["x"]) <= 41 for trace in marks.values()) and ("marks: exactly 0" in dict(notes(chart)))


def test_marks_of_zeros_are_no_zeros_on_a_page() -> None:
    chart = chart_of(layered(GRADIENT_L2, {"0.weight": 0.0, "1.weight": 1e-37, "2.weight": 1.0}), "gradient-norms")
    assert all(min(pack(trace["y"])) > 0 for trace in chart.data if trace["mode"] == "markers")


def test_zeros_after_the_least_numbers_there_are_stand_below_them_beside_their_note() -> None:
    """What single precision still holds of a gradient that vanishes, and then nothing."""
    norms = np.where(AT < 60, np.geomspace(1.0, 1e-44, N), 0.0)
    norms[59] = 1e-44
    run = layered(GRADIENT_L2, {"net.weight": norms, "net.bias": norms})
    chart = OF_A_LAYER["layer-gradient"](run.build(), "net")
    assert chart is not None and chart.title == "Gradient at the end: exactly 0 in weight, bias"
    marks = [trace for trace in chart.data if trace["mode"] == "markers"]
    heights = [float(np.log10(pack(trace["y"])[0])) for trace in marks]
    (note,) = [a["y"] for a in chart.layout["annotations"] if a["text"] == "marks: exactly 0"]
    assert len(set(heights)) == 2 and max(heights) < note < -44
    well = OF_A_LAYER["layer-gradient"](layered(GRADIENT_L2, {"net.weight": 1.0}).build(), "net")
    assert well is not None and "annotations" not in well.layout


def test_names_of_findings_do_not_widen_the_axis() -> None:
    chart = chart_of(layered(GRADIENT_L2, 1.0), "gradient-norms", finding("a-long-name", step=60))
    assert chart.layout["xaxis"]["autorangeoptions"]["maxallowed"] == pytest.approx(N, rel=0.02)


def test_updates_of_weights_that_are_not_finite_are_no_zeros() -> None:
    ratio = np.where(AT < 80, 1e-3, 0.0)
    chart = chart_of(
        layered(UPDATE_RATIO, ratio).matrix(WEIGHT["nonfinite"], dict.fromkeys(LAYERS, BROKEN)), "update-ratio"
    )
    assert all(trace["mode"] == "lines" for trace in chart.data)
    assert (
        chart.title
        == "A step changes the weights by 0.001 of their size, as usual; at step 79, the last one with a number"
    )


def test_looks_at_other_steps_say_what_was_not_finite() -> None:
    """Ratios are measured more seldom than weights, or at other steps."""
    ratio = np.where(AT < 80, 1e-3, 0.0)
    run = layered(UPDATE_RATIO, ratio)
    run.matrix(WEIGHT["nonfinite"], {name: [0.0, 0.0, 7.0] for name in LAYERS}, steps=[0, 79, 90])
    assert chart_of(run, "update-ratio").title.endswith("as usual; at step 79, the last one with a number")


def test_the_map_of_gradients_says_what_its_odd_colours_are() -> None:
    norm = np.where(AT < 40, 1.0, np.where(AT < 80, 0.0, np.nan))
    run = layered(GRADIENT_L2, norm)
    measured = layered(GRADIENT_L2, norm).matrix(GRADIENT["nonfinite"], dict.fromkeys(LAYERS, BROKEN))
    chart = chart_of(measured, "gradient-flow")
    assert "Gradients are not finite from step 80 on" in chart.title
    assert "orange: exactly zero; striped: not finite" in dict(notes(chart))
    assert "orange: exactly zero; striped: not finite, or not measured" in dict(notes(chart_of(run, "gradient-flow")))
    _, _, stripes = chart.data
    seen = np.isfinite(stripes["z"]).all(axis=0)
    assert (seen == (np.asarray(stripes["x"]) > 79.5)).all() and set(np.unique(stripes["z"][:, seen])) == {0.0, 1.0}
    assert not notes(chart_of(layered(GRADIENT_L2, 1.0), "gradient-flow"))


def test_units_of_outputs_that_are_not_finite_are_not_alive() -> None:
    dead = {"relu": np.where(AT < 80, 0.5, 0.0), "fine": 0.0}
    run = layered(ACTIVATION["dead"], dead).matrix(ACTIVATION["nonfinite"], {"relu": BROKEN, "fine": 0.0})
    assert "relu: 50% of its units are zero" in chart_of(run, "dead-units").title
    both = layered(ACTIVATION["dead"], dead).matrix(ACTIVATION["nonfinite"], {"relu": BROKEN, "fine": BROKEN})
    chart = chart_of(both, "dead-units")
    assert chart.title.endswith("up to step 79, the last one with a number")
    assert np.isnan(chart.data[0]["z"][:, AT >= 80]).all() and "striped: not finite" in dict(notes(chart))
    alive = layered(ACTIVATION["dead"], {"relu": 0.0}).matrix(ACTIVATION["nonfinite"], {"relu": BROKEN})
    assert chart_of(alive, "dead-units").title == "No unit is dead up to step 79, the last one with a number"


def test_the_health_of_outputs_is_that_of_their_last_finite_looks() -> None:
    run = layered(ACTIVATION["std"], {"a": np.where(AT < 80, 2.0, np.nan)})
    run.matrix(ACTIVATION["dead"], {"a": np.where(AT < 80, 0.5, 0.0)}).matrix(ACTIVATION["nonfinite"], {"a": BROKEN})
    chart = chart_of(run, "activations")
    assert [list(trace["y"]) for trace in chart.data] == [[0.5], [2.0]]
    assert chart.title == "The output of a is not finite; shown up to step 79, the last one with a number"
    never = layered(ACTIVATION["std"], {"a": np.nan}).matrix(ACTIVATION["nonfinite"], {"a": 3.0}).build()
    assert not plots.charts(never)


def test_a_layer_by_itself_is_told_as_long_as_it_is_finite() -> None:
    run = layered(ACTIVATION["dead"], {"0": np.where(AT < 80, 0.5, 0.0)}).matrix(ACTIVATION["nonfinite"], {"0": BROKEN})
    run.matrix(GRADIENT_L2, {"0.weight": np.where(AT < 80, 3.0, np.nan)}).matrix(UPDATE_RATIO, {"0.weight": 1e-3})
    run.matrix(WEIGHT["nonfinite"], {"0.weight": BROKEN})
    said = [(chart := draw(run.build(), "0")) and chart.title for draw in OF_A_LAYER.values()]
    assert said == [
        "Gradient at step 79, the last one with a number: weight 3",
        "A step changes, at step 79, the last one with a number: weight by 0.001",
        "Output up to step 79, the last one with a number: 50% dead",
    ]


# -- weights, calls, and which picture ----------------------------------------------------------


@pytest.mark.parametrize(
    ("norms", "said"),
    [
        ({"0.weight": np.geomspace(1, 20, N), "1.weight": 1.0}, "The norm of 0.weight grows 20-fold, from 1 to 20"),
        ({"0.weight": np.geomspace(1, 0.01, N)}, "The norm of 0.weight shrinks"),
        ({"0.weight": 1.0, "1.weight": np.linspace(1, 1.1, N)},
         "The weights keep their size: norms of layers change by 10%"),
        ({"0.weight": np.where(AT < 60, 2.0, 0.0)}, "0.weight falls from a norm of 2 to 0"),
        ({"0.weight": np.where(AT < 60, np.nan, 2.0)}, "The weights keep their size: norms of layers change by 0%"),
    ],
)  # fmt: skip
def test_what_weights_do(norms: dict[str, Any], said: str) -> None:
    assert chart_of(layered(WEIGHT_L2, norms, list(norms)), "weight-norms").title.startswith(said)


def test_weights_that_break_are_told_until_then() -> None:
    run = layered(WEIGHT_L2, np.geomspace(1, 20, N)).matrix(WEIGHT["nonfinite"], dict.fromkeys(LAYERS, BROKEN))
    title = chart_of(run, "weight-norms").title
    assert "grows" in title and title.endswith("no weight is finite from step 80 on")
    assert not plots.charts(layered(WEIGHT_L2, np.nan).build())


def test_growing_weights_and_explosions_have_a_picture_that_shows_them() -> None:
    def picture(run: RunBuilder, name: str, signal: str) -> str:
        charts = {chart.name: chart for chart in plots.charts(run.build())}
        found = picture_of(finding(name, evidence=(Evidence("e", signal),)), charts)
        assert found is not None
        return found.name

    assert picture(layered(WEIGHT_L2, 1.0), "weight-norm-growth", "weight.l2") == "weight-norms"
    for end, shown in ((np.nan, "gradient-norm"), (2.0, "gradient-flow")):
        norm = np.where(AT < 80, 1.0, end)
        run = layered(GRADIENT_L2, norm).scalar(GRADIENT_GLOBAL_L2, norm)
        assert picture(run, "exploding-gradients", "gradient.l2") == shown


def test_calls_of_one_layer_are_one_row() -> None:
    calls = ["tanh after rnn", *(f"tanh after rnn #{i}" for i in range(2, 130))]
    run = layered(ACTIVATION["saturated"], {"rnn": np.nan, **dict.fromkeys(calls, 0.1), calls[70]: 0.9})
    run.matrix(ACTIVATION["std"], dict.fromkeys(["rnn", *calls], 1.0))
    for name in ("rnn", *calls):
        run.fact(ModuleFact(name, "RNN"))
    chart = chart_of(run, "activations", finding("x", Place(calls[3])))
    assert chart.title == "90% of the outputs of tanh after rnn are saturated"
    assert (
        list(chart.data[0]["x"]) == ["rnn", "tanh after rnn"]
        and chart.layout["annotations"][0]["x"] == "tanh after rnn"
    )


def test_labels_below_bars_are_short() -> None:
    names = [f"encoder.layer.{i}.attention.self.query" for i in range(12)]
    chart = chart_of(layered(ACTIVATION["std"], dict.fromkeys(names, 1.0)), "activations")
    assert len(set(chart.data[0]["x"])) == 12 and max(map(len, chart.data[0]["x"])) <= ROOM + 8


def test_the_second_axis_has_room_for_its_numbers() -> None:
    chart = chart_of(layered(ACTIVATION["std"], {"a": 1.0}), "activations")
    assert chart.to_dict()["layout"]["yaxis2"]["automargin"]


def test_a_finding_after_the_last_look_has_room_on_the_axis() -> None:
    run = RunBuilder(N).parameters(dict.fromkeys(LAYERS, (4, 4)))
    run.matrix(GRADIENT_L2, dict.fromkeys(LAYERS, 1.0), steps=range(0, 80, 10))
    chart = chart_of(run, "gradient-flow", finding("loss-scale-collapse", step=110))
    assert chart.layout["xaxis"]["autorangeoptions"]["maxallowed"] > 110


def test_compared_norms_are_logarithmic_whatever_they_are() -> None:
    norms = np.where(AT == 60, 0.0, np.geomspace(1e3, 1e-3, N))
    run = RunBuilder(N).scalar(GRADIENT_GLOBAL_L2, norms).build()
    (chart,) = draw_pairs(run, run, ("a", "b"))
    assert chart.layout["yaxis"]["type"] == "log"
