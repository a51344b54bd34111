"""Charts as SVG and runs in a notebook's cell: well-formed, small, and nothing of a run is taken as markup."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from building import RunBuilder
from recording import record
from torchdoctor import plots, signals
from torchdoctor.findings import Finding, Fix, Place, Severity
from torchdoctor.plots.chart import Chart, axes, band, line
from torchdoctor.plots.notebook import view
from torchdoctor.plots.svg import can_draw, draw_svg
from torchdoctor.run import Run

HOSTILE = "<script>alert(1)</script>\"'&\x1b"


def found(name: str = "overfitting", **fields: object) -> Finding:
    return Finding(name, "E001", "evaluation", Severity.ERROR, 0.9, "the title", "", Fix("the change"), **fields)


def training(steps: int = 300, layer: str = "fc1.weight") -> Run:
    return (
        RunBuilder(steps)
        .scalar(signals.LOSS_TRAIN, np.geomspace(2.0, 0.01, steps))
        .scalar(signals.LOSS_VALIDATION, [2.0, 1.0, 1.5], steps=np.linspace(0, steps - 1, 3).astype(int))
        .matrix(signals.GRADIENT_L2, {layer: np.geomspace(1e-3, 1.0, steps), "fc2.weight": 0.1})
        .matrix(signals.UPDATE_RATIO, {layer: 1e-3, "fc2.weight": 1e-3})
        .scalar(signals.TIME_STEP, 0.02)
        .scalar(signals.TIME_DATA, 0.01)
        .info(name="mlp")
        .build()
    )


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def test_every_chart_it_takes_is_well_formed_and_small() -> None:
    charts = [chart for chart in plots.charts(training(20_000), [found(first_step=60)]) if can_draw(chart)]
    assert {"loss", "gradient-flow", "update-ratio", "time"} <= {chart.name for chart in charts}
    for chart in charts:
        drawn = draw_svg(chart)
        assert parse(drawn).tag == "svg"
        assert len(drawn) < 100_000


def test_curves_lie_inside_the_frame_and_break_where_values_do() -> None:
    values = np.array([1.0, 2.0, np.nan, 2.0, 1.0])
    chart = Chart("loss", "t", [line("training", np.arange(5), values, "#000")], axes("step", "loss"))
    path = next(part for part in parse(draw_svg(chart)) if part.get("stroke") == "#000").get("d") or ""
    assert path.count("M") == 2
    points = [tuple(map(float, point.split())) for point in re.findall(r"[\d.]+ [\d.]+", path)]
    assert all(0 <= x <= 480 and 0 <= y <= 250 for x, y in points)
    assert points[1][1] < points[0][1]


def test_a_spike_of_one_step_stays() -> None:
    values = np.ones(20_000)
    values[12_345] = 9.0
    chart = Chart("loss", "t", [line("training", np.arange(20_000), values, "#000")], axes("step", "loss"))
    path = next(part for part in parse(draw_svg(chart)) if part.get("stroke") == "#000").get("d") or ""
    heights = {point.split()[1] for point in re.findall(r"[\d.]+ [\d.]+", path)}
    assert len(heights) == 2


@pytest.mark.parametrize("values", [[np.nan, np.nan], [0.0, 0.0], [-1.0, 0.0], [1e-300, 1e300], [np.inf, 1.0], [3.0]])
@pytest.mark.parametrize("log", [False, True])
def test_odd_values_are_drawn_somehow(values: list[float], log: bool) -> None:
    curve = line("training", np.arange(len(values)), np.array(values), "#000")
    drawn = draw_svg(Chart("loss", "t", [curve], axes("step", "loss", log=log)))
    assert "nan" not in drawn
    assert "inf" not in drawn
    parse(drawn)


def test_a_heat_map_is_a_picture_with_its_looks_in_their_place() -> None:
    """Looks at 0, 10 and 100: the second one takes nine tenths of the width."""
    heat = {
        "type": "heatmap",
        "x": np.array([0, 10, 100]),
        "y": ["a", "b"],
        "z": np.array([[0.0, 1, 2], [0, 1, np.nan]]),
    }
    drawn = draw_svg(Chart("gradient-flow", "t", [heat]))
    data = base64.b64decode(re.search(r"base64,([^\"]+)", drawn)[1])  # type: ignore[index]
    width, height = struct.unpack(">II", data[16:24])
    at = data.index(b"IDAT")
    rows = zlib.decompress(data[at + 4 : at + 4 + struct.unpack(">I", data[at - 4 : at])[0]])
    shades = np.frombuffer(rows, np.uint8).reshape(height, 4 * width + 1)[:, 1:].reshape(height, width, 4)
    assert np.mean((shades[1] == shades[1, width // 2]).all(axis=1)) == pytest.approx(0.9, abs=0.02)
    assert shades[0, -1, 3] == 0  # not known: clear, and the first layer is at the bottom


def test_a_heat_map_with_ends_of_its_own_keeps_them() -> None:
    """All units dead is the bright end of 0..1, not the dark one of 1..1."""
    heat = {"type": "heatmap", "x": np.array([0, 1]), "y": ["a"], "z": np.ones((1, 2)), "zmin": 0, "zmax": 1}
    assert "0 (dark) to 1 (bright)" in draw_svg(Chart("dead-units", "t", [heat]))


def test_a_legend_folds_and_says_how_many_more_there_are() -> None:
    def shown(count: int) -> list[str]:
        curves = [line(f"encoder.{i:02d}.weight", np.arange(3), np.ones(3), "#0072B2") for i in range(count)]
        drawn = parse(draw_svg(Chart("norms", "t", curves, axes("step", "norm"))))
        texts = ["".join(part.itertext()) for part in drawn if part.tag == "text"]
        assert all(float(part.get("y", 0)) <= 250 for part in drawn)
        return [text for text in texts if "encoder" in text or "more" in text]

    assert len(shown(5)) == 5
    assert shown(12)[-1] == f"and {12 - len(shown(12)) + 1} more"


def test_a_band_off_the_range_has_no_name_either() -> None:
    shape, note = band(1e-4, 1e-2, "usual")
    for level, is_there in ((1e-3, True), (100.0, False)):
        layout = axes("step", "ratio", log=True) | {"shapes": [shape], "annotations": [note]}
        chart = Chart("update-ratio", "t", [line("a", np.arange(3), level * np.array([1.0, 2.0, 3.0]), "#000")], layout)
        assert ("usual" in draw_svg(chart)) == is_there


def test_marks_in_a_notebook_read_on_any_paper() -> None:
    """Texts in the page's own ink, the colour in a sign beside them; over a heat map on a ground of their own."""
    found = Finding("x", "X", "data", Severity.WARNING, 1.0, "t", "s", Fix("f"), where=(Place("fc2", "fc2.weight"),))
    drawn = {chart.name: draw_svg(chart) for chart in plots.charts(training(), [found]) if can_draw(chart)}
    assert "\u25b2</tspan> x" in drawn["gradient-flow"] and 'fill="#ffffff"' in drawn["gradient-flow"]
    assert "\u25b2 fc2.weight" in drawn["update-ratio"] and "#E69F00" not in "".join(drawn.values())


def test_other_charts_are_left_alone() -> None:
    assert not can_draw(Chart("classes", "t", [{"type": "bar", "x": ["a"], "y": [1]}]))
    assert not can_draw(Chart("empty", "t"))


def test_a_view_tells_what_stands_and_draws_what_it_is_about() -> None:
    shown = view(training(), [found("input-bound", first_step=30)])
    assert "mlp: finished, 300 steps" in shown.html
    assert "since step 30: the title" in shown.html
    assert "the change" in shown.html
    first = shown.html.index("<figcaption")
    assert "A step takes 20 ms" in shown.html[first : first + 300]
    assert repr(shown) == "mlp: finished, 300 steps\nerror: the title (input-bound since step 30)"
    assert "<script" not in shown.html


def test_what_follows_from_a_cause_stands_under_it() -> None:
    shown = view(training(), [found("dead-relu"), found("underfitting", consequence_of="dead-relu")]).html
    assert shown.count("<li>") == 1 and "follows from it:</i> underfitting" in shown


def test_nothing_found_and_nothing_begun() -> None:
    assert "nothing found" in view(training(), []).html
    assert "waiting for the first step" in view(None, []).html


def test_names_from_a_run_are_no_markup() -> None:
    hostile = Finding(HOSTILE, HOSTILE, "evaluation", Severity.ERROR, 0.9, HOSTILE, HOSTILE, Fix(HOSTILE), first_step=3)
    run = training(layer=HOSTILE)
    shown = view(Run(dict(run.info) | {"name": HOSTILE}, run.available, run.load, run.seen, run.steps), [hostile])
    parse(shown.html)
    assert "<script" not in shown.html
    assert "\x1b" not in shown.html


def test_show_takes_a_folder(tmp_path: Path) -> None:
    shown = plots.show(record(tmp_path / "a", cleared=0.0))
    assert "missing-zero-grad" in shown._repr_html_()
    assert plots.show(tmp_path / "a", findings=()).text.endswith("nothing found")


def test_a_single_figure_marks_what_is_found_in_the_run(tmp_path: Path) -> None:
    record(tmp_path / "a", cleared=0.0)
    marked = [note.text for note in plots.loss(tmp_path / "a").layout.annotations]
    assert "missing-zero-grad" in marked
    assert not plots.loss(tmp_path / "a", findings=()).layout.annotations
