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

from gallery_stand_in import standing_in
from recording import record
from torchdoctor import signals
from torchdoctor.lab.clipping.recorded import Recorded, cut, read
from torchdoctor.lab.clipping.room import show, threshold_of
from torchdoctor.lab.gallery.cabinet import Cabinet
from torchdoctor.lab.gallery.exhibits import EXHIBITS
from torchdoctor.lab.gallery.training import Trainer
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


def norms_of(norms: np.ndarray, in_use: float | None = None, trace: Trace | None = None) -> Recorded:
    if trace is None:
        trace = Trace.raw(range(len(norms)), norms)
    name = signals.CLIP_NORM.name if in_use else signals.GRADIENT_GLOBAL_L2.name
    traces = {name: trace}
    if in_use:
        traces[signals.CLIP_THRESHOLD.name] = Trace.raw(trace.steps, np.full(len(trace), in_use))
    run = Run({}, frozenset((name, "") for name in traces), lambda name, _: traces[name], (), STEPS)
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
    assert "A point stands for 20 steps" in show(recorded, 5.0).text
    for threshold in (0.9, 1.0, 1.1, 5.0):
        assert cut(recorded, threshold).share == pytest.approx((norms > threshold).mean(), abs=0.08)
    assert cut(recorded, 5.0).share == pytest.approx(0.01, abs=0.002) and recorded.every.max() == 30.0


def test_norms_that_are_not_finite_are_told() -> None:
    norms = spiky()
    norms[-3:] = np.nan
    assert "3 norms not finite" in show(norms_of(norms), 5.0).text


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
