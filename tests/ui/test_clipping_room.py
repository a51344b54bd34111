"""Another threshold on recorded norms: what it cuts, what is said of it, and what the page offers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from building import RunBuilder
from gallery_stand_in import standing_in
from recording import record
from torchdoctor import signals
from torchdoctor.instruments.clipping import STEPS as STEPS_OF_COMMAND
from torchdoctor.lab.clipping.recorded import Recorded, cut, read
from torchdoctor.lab.clipping.room import build_station, show, threshold_of
from torchdoctor.lab.gallery.cabinet import Cabinet
from torchdoctor.lab.gallery.exhibits import EXHIBITS
from torchdoctor.lab.gallery.training import Trainer
from torchdoctor.rules.curves import figure
from torchdoctor.run import Run, Trace
from torchdoctor.store.writer import Recorder
from torchdoctor.ui.app import build_app
from torchdoctor.ui.gallery import Gallery
from torchdoctor.ui.guard import Access
from torchdoctor.ui.library import Library

TOKEN, PORT = "right-token", 8123
ACCESS = Access.over("127.0.0.1", PORT, TOKEN)
STEPS = 400
PROMISED_SECONDS = 0.1


def spiky() -> np.ndarray:
    norms = np.random.default_rng(0).uniform(0.8, 1.2, STEPS)
    norms[50::100] = 30.0
    return norms


def norms_of(
    norms: np.ndarray, in_use: float | None = None, trace: Trace | None = None, steps: int = STEPS
) -> Recorded:
    if trace is None:
        trace = Trace.raw(range(len(norms)), norms)
    name = signals.CLIP_NORM.name if in_use else signals.GRADIENT_GLOBAL_L2.name
    traces = {name: trace}
    if in_use:
        traces[signals.CLIP_THRESHOLD.name] = Trace.raw(trace.steps, np.full(len(trace), in_use))
    run = Run({}, frozenset((name, "") for name in traces), lambda name, _: traces[name], (), steps)
    found = read(run)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("threshold", "severity", "words", "diagnosis"),
    [
        (5.0, "healthy", "Catches the spikes: 1.0% of the steps are cut, the largest from 30 to 5", ""),
        (0.05, "warning", "Too tight: 100% of the steps are cut, the typical one to 4.9%", "clipping-too-tight"),
        (0.5, "info", "this sets their length rather than catching spikes", ""),
        (1.1, "info", "more than the exceptional ones", ""),
        (50.0, "info", "50 never acts: the largest norm is 30", ""),
    ],
)
def test_a_threshold_is_judged_by_what_it_cuts(threshold: float, severity: str, words: str, diagnosis: str) -> None:
    shown = show(norms_of(spiky()), threshold)
    assert (shown.severity, shown.diagnosis) == (severity, diagnosis) and words in shown.title


def test_norms_that_do_not_stand_out_need_no_clipping() -> None:
    calm = np.random.default_rng(0).uniform(0.8, 1.2, STEPS)
    assert "hardly matters" in show(norms_of(calm), 1.19).title


def test_the_numbers_are_those_of_the_recorded_norms() -> None:
    norms = spiky()
    found = cut(norms_of(norms), 1.1)
    assert found.share == pytest.approx((norms > 1.1).mean())
    assert found.kept == pytest.approx(np.minimum(norms, 1.1).sum() / norms.sum())
    shown = show(norms_of(norms), 1.1)
    figures = dict(shown.figures)
    assert figures["in use"] == "none" and figures["steps cut"] == f"{found.share:.1%}"
    over_steps, over_thresholds = shown.charts
    marked = next(trace for trace in over_steps.data if trace["name"] == "cut")
    assert list(marked["x"]) == list(np.flatnonzero(norms > 1.1))
    shares = next(trace for trace in over_thresholds.data if trace["name"] == "steps cut")
    at = int(np.argmin(np.abs(shares["x"] - 1.1)))
    assert shares["y"][at] == pytest.approx((norms > shares["x"][at]).mean())
    assert all(np.diff(shares["y"]) <= 0)


def test_the_runs_own_threshold_is_shown_and_can_be_chosen() -> None:
    recorded = norms_of(spiky(), in_use=2.0)
    shown = show(recorded, 5.0)
    assert dict(shown.figures)["in use"] == "2" and "before the script's own clipping" in shown.text
    assert "in use" in [trace["name"] for trace in shown.charts[0].data]
    low, high = recorded.span
    assert 10**low < 0.1 and 10**high > 30


def test_merged_rows_are_told_and_a_single_spike_in_one_counts_as_one() -> None:
    norms = spiky()
    parts = norms.reshape(-1, 20)
    trace = Trace(np.arange(19, STEPS, 20), parts.mean(1), parts.min(1), parts.max(1), merged=20)
    recorded = norms_of(norms, trace=trace)
    assert "A point stands for 20 norms" in show(recorded, 5.0).text
    for threshold in (0.9, 1.0, 1.1, 5.0):
        assert cut(recorded, threshold).share == pytest.approx((norms > threshold).mean(), abs=0.08)
    assert cut(recorded, 5.0).share == pytest.approx(0.01, abs=0.002) and recorded.largest == 30.0


LOOKS = np.concatenate([np.arange(20), np.arange(25, 2200, 75)])
"""As a governor takes them: dense at first, then rare."""


def rare(norms: np.ndarray) -> Recorded:
    return norms_of(norms, trace=Trace.raw(LOOKS, norms), steps=2200)


def test_a_rare_look_counts_for_the_steps_around_it() -> None:
    """A curve above 1 from step 500 on cuts three quarters of the run, however many of its norms are early ones."""
    norms = 10 ** (np.log10(LOOKS / 500 + 1e-3) / 3)
    recorded = rare(norms)
    found = cut(recorded, 1.0)
    assert found.share == pytest.approx(1700 / 2200, abs=0.02)
    every = np.maximum(np.arange(2200) / 500, 1e-3) ** (1 / 3)
    assert found.kept == pytest.approx(np.minimum(every, 1).sum() / every.sum(), abs=0.02)
    assert recorded.median == pytest.approx(np.median(every), rel=0.03)
    assert recorded.quantile(0.95) == pytest.approx(np.percentile(every, 95), rel=0.03)
    shown = show(recorded, 1.0)
    assert f"Norms were recorded at {len(LOOKS)} of 2,200 steps" in shown.text
    assert f"{found.share:.0%} of the steps have a norm above 1" in shown.charts[0].title


@pytest.mark.parametrize("power", [-0.5, -0.1, 0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_presets_do_what_their_words_say(power: float, seed: int) -> None:
    """Whether norms fall or rise over the run: half is half, and a suggestion cuts the exceptional alone, or there is
    none."""
    draw = np.random.default_rng(seed)
    recorded = rare((LOOKS + 1.0) ** power * draw.lognormal(0, 0.2, len(LOOKS)))
    places = {p.label: p.choices["threshold"] for p in build_station({"a": "a"}, "a", recorded).presets}
    at = {label: threshold_of(str(place)) for label, place in places.items()}
    assert cut(recorded, at["The median"]).share == pytest.approx(0.5, abs=0.06)
    assert dict(show(recorded, at["The median"]).figures)["median norm"] == figure(recorded.median)
    assert "never acts" in show(recorded, at["Never acts"]).title
    assert "Too tight" in show(recorded, at["Far too tight"]).title
    if "Suggested" not in at:
        assert "No one threshold cuts the exceptional" in show(recorded, at["The median"]).advice
        assert dict(show(recorded, 1.0).figures)["suggested"] == "none"
        return
    suggested = show(recorded, at["Suggested"])
    assert "Catches the spikes" not in suggested.title
    assert "more than the exceptional" not in suggested.title and "sets their length" not in suggested.title
    assert cut(recorded, at["Suggested"]).share <= 0.12  # by so much the slider's places differ


def test_where_norms_fall_and_looks_are_dense_at_first_no_preset_names_the_median_twice() -> None:
    """A new user's language model: the second half's 95th percentile was the whole run's median."""
    looks = np.concatenate([np.arange(100), np.arange(105, 681, 8)])
    norms = 0.28 + 13 * np.exp(-looks / 40) + np.where(looks < 340, 0.06, 0.0)
    recorded = norms_of(norms, trace=Trace.raw(looks, norms), steps=681)
    assert recorded.norms is not None and recorded.norms.trend == "falling"
    station = build_station({"a": "a"}, "a", recorded)
    places = [p.choices["threshold"] for p in station.presets]
    assert len(set(places)) == len(places) and "Suggested" not in [p.label for p in station.presets]
    shown = show(recorded, recorded.median)
    share = cut(recorded, recorded.median).share
    assert "No one threshold cuts the exceptional steps of this run alone" in shown.advice
    assert shown.charts[0].title.startswith(f"{share:.0%} of the steps") and f"{share:.0%}" in shown.charts[1].title
    assert cut(recorded, threshold_of(str(station.defaults()["threshold"]))).share < 0.1


@pytest.mark.parametrize(
    ("norms", "threshold", "words"),
    [
        (np.linspace(0.5, 4.0, STEPS), 2.83, "Cuts the last third of the run"),
        (np.geomspace(0.01, 10.0, STEPS), 5.0, "Cuts the last tenth of the run"),
        (np.linspace(4.0, 0.5, STEPS), 2.25, "Cuts the first half of the run"),
        (np.where(np.arange(STEPS) < 4, 9.0, 1.0), 5.0, "Cuts the first 1% of the run"),
        (1 + 5 * np.exp(-(np.linspace(-9, 9, STEPS) ** 2)), 4.0, "none of them stands out of its neighbours"),
    ],
)
def test_what_only_rises_or_falls_is_no_spike(norms: np.ndarray, threshold: float, words: str) -> None:
    shown = show(norms_of(norms), threshold)
    assert words in shown.title and shown.severity == "info"


def test_norms_that_are_all_alike_or_nearly_all_zero_have_a_room(recwarn: pytest.WarningsRecorder) -> None:
    alike = norms_of(np.full(STEPS, 1.239))
    assert "none by more than 5%" in show(alike, 1.2).title
    empty = norms_of(np.where(np.arange(STEPS) == 200, 1.0, 0.0))
    station = build_station({"a": "a"}, "a", empty)
    shown = show(empty, 0.5)
    assert {p.label for p in station.presets} == {"1.0, as many have it", "Never acts"}
    assert "no gradient at all" in shown.advice + show(empty, 5.0).advice and not recwarn.list


def test_spikes_beside_a_stretch_are_counted() -> None:
    norms = np.where(np.arange(STEPS) < 300, 1.0, 2.0)
    norms[[50, 120, 350]] = 30.0
    assert "Cuts the last quarter of the run, where the norms are higher, and 2 spikes beside it" in (
        show(norms_of(norms), 1.5).title
    )


def test_the_command_that_measures_anew_is_told_apart() -> None:
    assert f"torchdoctor clipping train.py measures anew, over its first {STEPS_OF_COMMAND} steps" in (
        show(norms_of(spiky()), 5.0).text
    )


def test_norms_that_are_not_finite_are_told() -> None:
    norms = spiky()
    norms[-3:] = np.nan
    assert "3 norms not finite" in show(norms_of(norms), 5.0).text


@pytest.mark.parametrize("recorded_as", [np.nan, 0.0])
def test_a_run_that_broke_has_no_healthy_threshold_and_no_zeros(recorded_as: float) -> None:
    """Runs of before wrote 0 where every gradient was NaN."""
    at = np.arange(STEPS)
    run = RunBuilder(STEPS).scalar(signals.GRADIENT_GLOBAL_L2, np.where(at < 150, spiky(), recorded_as))
    run.matrix(signals.GRADIENT_L2, {"a": np.where(at < 150, 1.0, np.nan)})
    recorded = read(run.build())
    assert recorded is not None and recorded.median == pytest.approx(1.0, abs=0.1)
    shown = show(recorded, 5.0)
    assert shown.severity == "info" and "NaN or Inf from step 150 on is cut by no threshold" in shown.title
    assert "cannot mend NaN" in shown.advice and "no gradient at all" not in shown.advice
    assert dict(shown.figures)["steps cut, of those with a finite norm"] == "0.7%"


def test_words_of_a_preset_are_true_where_some_steps_have_no_gradient() -> None:
    recorded = norms_of(np.where(np.arange(STEPS) % 5 < 2, 0.0, 1.0))
    (tight,) = [p for p in build_station({"a": "a"}, "a", recorded).presets if p.label == "Far too tight"]
    assert tight.text == "60% of the steps are cut to the same short length."


@pytest.mark.parametrize("text", ["", "x", "nan", "inf", "-inf", "1e9", "31"])
def test_what_is_no_threshold(text: str) -> None:
    assert threshold_of(text) is None
    assert threshold_of("-0.6") == 0.251 and threshold_of("0") == 1.0


def record_norms(folder: Path, norms: np.ndarray) -> None:
    recorder = Recorder.create(folder, {"argv": ["train.py"]})
    for step, norm in enumerate(norms):
        recorder.scalar(signals.LOSS_TRAIN.name, step, 1.0)
        recorder.scalar(signals.GRADIENT_GLOBAL_L2.name, step, float(norm))
    recorder.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    return Gallery(Trainer(Cabinet(tmp_path / "cache"), standing_in("spiky")))


@pytest.fixture
def room(folder: Path, gallery: Gallery) -> Iterator[TestClient]:
    app = build_app(Library(folder), ACCESS, gallery)
    with TestClient(app, base_url=f"http://127.0.0.1:{PORT}", follow_redirects=False) as client:  # type: ignore[arg-type]
        client.get("/", params={"token": TOKEN})
        yield client


def test_without_a_run_the_room_says_how_to_get_one(room: TestClient) -> None:
    page = room.get("/lab/clipping").text
    assert "torchdoctor run train.py" in page and 'href="/lab/curves/spike"' in page and "lab.js" not in page


def test_the_newest_run_with_norms_is_opened_and_names_are_text(room: TestClient, folder: Path) -> None:
    record_norms(folder / "<img src=x>", spiky())
    time.sleep(0.01)
    record(folder / "newer-without")
    page = room.get("/lab/clipping").text
    assert '<option value="&lt;img src=x&gt;" selected>' in page and "<img" not in page
    assert re.search(r'value="newer-without">', page) and 'aria-label="Worth seeing"' in page
    assert "no norm of its gradients" in room.get("/api/lab/clipping?run=newer-without&threshold=0").json()["said"]


def test_the_slider_answers_at_once(room: TestClient, folder: Path) -> None:
    record_norms(folder / "mine", spiky())
    first = room.get("/api/lab/clipping", params={"run": "mine", "threshold": "0.7"}).json()
    begun = time.perf_counter()
    second = room.get("/api/lab/clipping", params={"run": "mine", "threshold": "-1.3"}).json()
    assert time.perf_counter() - begun < 5 * PROMISED_SECONDS  # on a busy machine
    assert first["severity"] == "healthy" and second["severity"] == "warning" and "clipping-too-tight" in second["said"]


@pytest.mark.parametrize("name", ["no-such", "../runs", "lab/no-such", "lab/../runs/mine", "/etc"])
def test_no_path_is_followed(room: TestClient, folder: Path, name: str) -> None:
    record_norms(folder / "mine", spiky())
    assert room.get("/lab/clipping", params={"run": name}).status_code == 404
    assert room.get("/api/lab/clipping", params={"run": name, "threshold": "0"}).status_code == 404


@pytest.mark.parametrize("threshold", ["", "x", "nan", "1e400"])
def test_a_threshold_is_a_number(room: TestClient, folder: Path, threshold: str) -> None:
    record_norms(folder / "mine", spiky())
    assert room.get("/api/lab/clipping", params={"run": "mine", "threshold": threshold}).status_code == 400
    assert room.get("/lab/clipping", params={"run": "mine", "threshold": threshold}).status_code == 200


def test_a_run_of_the_gallery_can_be_clipped(room: TestClient, gallery: Gallery, wait_for: Callable[..., Any]) -> None:
    gallery.trainer.train([EXHIBITS["spike"].training])
    wait_for(lambda: not gallery.trainer.is_busy)
    page = room.get("/lab/clipping").text
    chosen = f"lab/{EXHIBITS['spike'].training.name}"
    assert f'<option value="{chosen}" selected>Gallery: Spikes' in page
    found = room.get("/api/lab/clipping", params={"run": chosen, "threshold": "0.5"}).json()
    assert found["heard"].startswith("Catches the spikes: 3.3%")
