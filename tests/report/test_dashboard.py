from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from building import RunBuilder
from torchdoctor import signals
from torchdoctor.findings import Finding, Fix, Proof, Severity, Verdict
from torchdoctor.report.canvas import Canvas, Scale
from torchdoctor.report.dashboard import Dashboard, lasting
from torchdoctor.report.flow import choose
from torchdoctor.report.vitals import Layer, sure_findings, take
from torchdoctor.run import Run

SIZES = [(60, 16), (80, 24), (99, 20), (100, 20), (140, 40), (220, 60)]


def found(name: str, severity: Severity = Severity.ERROR, **fields: object) -> Finding:
    return Finding(name, "T001", "procedure", severity, 0.9, f"the title of {name}", "", Fix("Change it."), **fields)


def training(steps: int = 300) -> RunBuilder:
    loss = 2.0 * np.exp(-np.arange(steps) / 60) + 0.1
    return (
        RunBuilder(steps)
        .scalar(signals.LOSS_TRAIN, loss)
        .scalar(signals.LOSS_VALIDATION, [1.5, 0.9, 1.1], steps=[99, 199, 299])
        .matrix(signals.GRADIENT_L2, {"fc1.weight": 0.0, "fc1.bias": 1.0, "fc2.weight": 0.5, "fc3.weight": 1e-5})
        .matrix(signals.UPDATE_RATIO, {"fc1.weight": 0.0, "fc1.bias": 0.5, "fc2.weight": 1e-3, "fc3.weight": 0.2})
        .matrix(signals.GRADIENT["nonfinite"], {"fc1.weight": 0.0, "fc2.weight": 0.0, "fc3.weight": 0.0})
        .parameters({"fc1.weight": (8, 8), "fc1.bias": (8,), "fc2.weight": (8, 8), "fc3.weight": (2, 8)})
        .scalar(signals.TIME_STEP, 0.02)
        .scalar(signals.TIME_DATA, 0.012)
        .scalar(signals.TIME_BACKWARD, 0.004)
        .scalar(signals.SAMPLES_PER_SECOND, 3200.0)
        .scalar(signals.MEMORY_HOST, 1.5e9)
        .scalar(signals.MEMORY_DEVICE, 3e9)
    )


def draw(run: Run, width: int = 140, height: int = 40, *findings: Finding, **options: object) -> str:
    """The frame as text; every one fits."""
    lines = Dashboard(take(run, findings), now=1000.0).lines(width, height, **options)
    assert len(lines) <= height
    assert max(line.cell_len for line in lines) <= width
    return "\n".join(line.plain for line in lines)


def row(frame: str, name: str) -> str:
    return next(line for line in frame.splitlines() if f" {name} " in line)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_everything_is_on_it_at_any_size(width: int, height: int) -> None:
    run = training().info(name="mlp", status="running", started=880.0).live().build()
    frame = draw(run, width, height, found("dead-relu", first_step=120))
    header = frame.splitlines()[0]
    assert all(words in header for words in ("mlp", "running", "300 steps", "2 min 0 s"))
    assert "train 0.114, falling" in frame
    assert "◆ validation 1.1" in frame
    assert "50 steps/s, 3,200 samples/s" in frame
    assert "memory 1.5 GB, device 3.0 GB" in frame
    assert "data 60 %" in frame
    assert "backward 20 %" in frame
    assert "ERROR dead-relu since step 120" in frame
    assert "the title of dead-relu" in frame
    assert "change: Change it." in frame


@pytest.mark.parametrize(("width", "height"), [(60, 10), (60, 15), (75, 12), (76, 10), (80, 12), (119, 15)])
def test_few_rows_show_the_same_without_details(width: int, height: int) -> None:
    run = training().info(name="mlp", status="running", started=880.0).live().build()
    frame = draw(run, width, height, found("dead-relu", first_step=120), found("overfitting", Severity.WARNING))
    lines = frame.splitlines()
    assert len(lines) == height
    assert all(words in lines[0] for words in ("mlp", "running", "300 steps", "2 min 0 s"))
    assert "── loss  train 0.114" in frame
    assert "◆ val 1.1" in frame or "◆ validation 1.1" in frame
    assert any(0x2800 < ord(c) <= 0x28FF for c in frame), "no curve"
    assert "gradient flow" in frame
    assert " zero " in row(frame, "fc1.weight")
    assert "50 steps/s, 3,200 samples/s" in frame
    assert "ERROR dead-relu since step 120: the title of dead-relu" in frame
    assert "WARNING overfitting" in frame


@pytest.mark.parametrize("height", range(8, 20))
@pytest.mark.parametrize("width", [60, 75, 76, 99, 100])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_size_fits_whatever_is_known(width: int, height: int, ascii_only: bool) -> None:
    several = training().scalar(signals.LOSS_TRAIN, [2.0, np.nan, 1.0], "generator of a long name", steps=[0, 1, 2])
    bare = RunBuilder(3).scalar(signals.LOSS_TRAIN, np.nan)
    for builder in (training(), several, bare, RunBuilder(2)):
        for count in (0, 1, 9):
            findings = [found(f"finding-{i}", first_step=i) for i in range(count)]
            draw(builder.info(name="n" * 90).live().build(), width, height, *findings, ascii_only=ascii_only)


def test_a_frame_is_set_off_by_a_rule() -> None:
    lines = Dashboard(take(training().info(name="mlp").build()), framed=True).lines(80, 12)
    assert lines[0].plain.startswith("── mlp  finished  300 steps")
    assert lines[0].plain.endswith("──")
    assert lines[0].cell_len == 80


def test_how_far_it_was_examined_is_said_while_it_trains() -> None:
    vitals = replace(take(training().info(status="running").live().build(), ()), examined=120)
    frame = "\n".join(line.plain for line in Dashboard(vitals).lines(80, 24))
    assert "nothing found in the first 120 steps" in frame


def test_gradients_stand_in_forward_order_with_their_marks() -> None:
    frame = draw(training().build())
    places = [frame.index(f" {name} ") for name in ("fc1.weight", "fc2.weight", "fc3.weight")]
    assert places == sorted(places)
    assert "fc1.bias" not in frame
    assert " zero " in row(frame, "fc1.weight")
    assert row(frame, "fc2.weight").rstrip().endswith("1e-3")
    assert row(frame, "fc3.weight").rstrip().endswith("0.2 ↑")
    bars = [row(frame, name).count("█") for name in ("fc1.weight", "fc2.weight", "fc3.weight")]
    assert bars[0] == 0
    assert bars[1] > 4 * (bars[2] + 1)


def test_the_healthy_band_of_updates_is_drawn() -> None:
    frame = draw(training().build())
    assert "healthy 1e-4 to 1e-2" in frame
    assert "····━━●━━····" in row(frame, "fc2.weight")
    assert "····━━━━━··●·" in row(frame, "fc3.weight")


def test_just_outside_the_band_is_no_mark() -> None:
    assert Layer("a", 1.0, 0.02).ratio_side == 0
    assert Layer("a", 1.0, 0.2).ratio_side == 1
    assert Layer("a", 1.0, 1e-6).ratio_side == -1


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_a_loss_that_breaks(width: int, height: int) -> None:
    loss = np.linspace(2.0, 1.0, 300)
    loss[150:] = np.nan
    broken = np.zeros(300)
    broken[150:] = 12
    run = (
        RunBuilder(300)
        .scalar(signals.LOSS_TRAIN, loss)
        .matrix(signals.GRADIENT_L2, {"fc1.weight": 1.0})
        .matrix(signals.GRADIENT["nonfinite"], {"fc1.weight": broken})
        .info(status="crashed")
        .build()
    )
    frame = draw(run, width, height)
    assert "train NaN, not finite" in frame
    assert "xxxxx" in frame.splitlines()[2]
    assert "NaN/Inf" in row(frame, "fc1.weight")
    assert "crashed" in frame.splitlines()[0]


def test_nothing_but_nan_is_drawn_as_that() -> None:
    run = RunBuilder(50).scalar(signals.LOSS_TRAIN, np.nan).build()
    frame = draw(run, 60, 16)
    assert "train NaN" in frame
    assert "no gradient was measured yet" in frame


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_of_300_layers_the_remarkable_ones_are_shown(width: int, height: int) -> None:
    names = [f"blocks.{i}.attention.projection.weight" for i in range(300)]
    run = (
        RunBuilder(40)
        .scalar(signals.LOSS_TRAIN, np.linspace(2, 1, 40))
        .matrix(signals.GRADIENT_L2, {n: 0.0 if n == names[137] else 0.1 for n in names})
        .parameters(dict.fromkeys(names, (64, 64)))
        .build()
    )
    frame = draw(run, width, height)
    assert "of 300 layers" in frame
    assert ".137." in next(line for line in frame.splitlines() if " zero " in line)


def test_layers_are_chosen_from_every_stretch() -> None:
    layers = [Layer(str(i), 1.0, 1e-3) for i in range(100)]
    layers[55] = Layer("55", 0.0)
    assert [layer.name for layer in choose(layers, 4)] == ["0", "25", "55", "99"]
    assert len(choose(layers, 200)) == 100
    assert choose(layers, 0) == []


def test_the_first_and_the_last_layer_are_shown_where_none_is_remarkable() -> None:
    layers = [Layer(str(i), 1.0, 1e-3) for i in range(13)]
    chosen = [int(layer.name) for layer in choose(layers, 6)]
    assert chosen[0] == 0 and chosen[-1] == 12 and chosen == sorted(chosen)


def test_wide_letters_shift_no_column() -> None:
    names = ("層一🙂.weight", "plain.weight")
    run = RunBuilder(9).matrix(signals.GRADIENT_L2, dict.fromkeys(names, 0.5)).parameters(dict.fromkeys(names, (4, 4)))
    lines = Dashboard(take(run.build())).lines(140, 40)
    ends = [line[: line.plain.index("0.5")].cell_len for line in lines if "weight" in line.plain]
    assert len(ends) == 2 and ends[0] == ends[1]


def test_huge_losses_leave_the_axis_where_it_is() -> None:
    run = RunBuilder(40).scalar(signals.LOSS_TRAIN, np.geomspace(2.0, 4.71e28, 40)).build()
    lines = draw(run, 100, 24).splitlines()
    assert len({line.index("│") for line in lines if "│" in line}) == 1
    assert any("4.7e28" in line for line in lines)


def test_a_finding_at_the_end_leaves_the_number_of_steps() -> None:
    frame = draw(training().build(), 100, 24, found("dead-relu", first_step=295))
    assert "▲ step 299" in frame


def test_many_findings_are_counted() -> None:
    many = [found(f"fault-{i}", Severity.WARNING) for i in range(30)]
    frame = draw(training().build(), 60, 16, *many)
    assert "WARNING fault-0" in frame
    assert "and 28 findings more" in frame


def test_where_findings_begin_is_marked_on_the_axis() -> None:
    run = training().build()
    axis = next(line for line in draw(run, 80, 24, found("a", first_step=150)).splitlines() if "└" in line)
    assert abs(axis.index("▲") - 9 - 35) <= 1
    assert "▲" not in draw(run, 80, 24)


def test_before_anything_is_known() -> None:
    run = RunBuilder(0).info(status="running").live().build()
    lines = Dashboard(take(run)).lines(60, 16)
    frame = "\n".join(line.plain for line in lines)
    assert "waiting for the first loss" in frame
    assert "speed is not known yet" in frame
    assert "being examined" in frame


def test_healthy_so_far() -> None:
    assert "nothing found so far" in draw(training().info(status="running").live().build())


def test_losses_of_two_optimizers_are_told_apart() -> None:
    run = (
        RunBuilder(100)
        .scalar(signals.LOSS_TRAIN, np.linspace(1.4, 0.7, 100), "0")
        .scalar(signals.LOSS_TRAIN, np.linspace(0.7, 1.4, 100), "1")
        .build()
    )
    assert "train 0 0.7, falling  train 1 1.4, rising" in draw(run)


def test_ascii_only() -> None:
    frame = draw(training().build(), 80, 24, found("a"), ascii_only=True)
    assert frame.isascii()
    assert "o validation 1.1" in frame


def test_names_from_a_run_cannot_move_the_cursor() -> None:
    run = (
        RunBuilder(10)
        .scalar(signals.LOSS_TRAIN, 1.0)
        .matrix(signals.GRADIENT_L2, {"fc\x1b[2Jwei\u202eght": 1.0})
        .info(name="\x1b]0;owned\x07[bold]", status="run\x1bning", sessions="none", started="yesterday")
        .build()
    )
    hostile = Finding("a", "T001", "procedure", Severity.ERROR, 0.9, "\x1b[31m[red]", "", Fix("\x9b2J"))
    console = Console(file=io.StringIO(), width=80, height=24, force_terminal=True, color_system=None)
    console.print(Dashboard(take(run, [hostile])))
    assert "\x1b]" not in console.file.getvalue()  # type: ignore[attr-defined]
    assert not {"\x1b", "\x9b", "\x07", "\u202e"} & set(draw(run, 80, 24, hostile))
    assert "[bold]" in draw(run, 80, 24)


def test_findings_are_told_when_they_are_sure() -> None:
    guess, proof = found("guess"), found("proof", proof=Proof.STRUCTURE)
    verdict = Verdict(run={}, findings=(guess, proof))
    assert sure_findings(verdict, None, finished=False) == (proof,)
    assert sure_findings(verdict, verdict, finished=False) == (guess, proof)
    assert sure_findings(verdict, None, finished=True) == (guess, proof)


def test_a_curve_of_few_looks_is_one_line() -> None:
    canvas = Canvas(20, 4)
    values = np.array([0.0, 1.0])
    canvas.draw(np.array([0, 100]), values, values, Scale(0.0, 1.0), 100, "")
    lines = [line.plain for line in canvas.lines()]
    assert lines[0].rstrip() == lines[0]
    assert lines[3][0] != " "
    assert all(any(line[column] != " " for line in lines) for column in range(20))


@pytest.mark.parametrize(
    ("low", "high", "value", "place"),
    [(0, 1, 0.25, 0.25), (1e-4, 1, 1e-2, 0.5), (5, 5, 5, 0.5), (-1.7e308, 1.7e308, 0.0, 0.5), (0, 100, 1, 0.01)],
)
def test_scales(low: float, high: float, value: float, place: float) -> None:
    assert Scale(low, high).place(value) == pytest.approx(place)


@pytest.mark.parametrize(("seconds", "words"), [(8.7, "8 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")])
def test_spans_of_time(seconds: float, words: str) -> None:
    assert lasting(seconds) == words
