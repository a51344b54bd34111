"""A run's page: there at once, its verdict as soon as it is reached, news as they come, and a journal."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from recording import record
from torchdoctor import signals
from torchdoctor.errors import NotARunError
from torchdoctor.facts import ModuleFact, ParameterFact
from torchdoctor.plots import charts
from torchdoctor.run import Run, Trace
from torchdoctor.store.journal import read_notes
from torchdoctor.store.reader import open_run
from torchdoctor.store.writer import Recorder
from torchdoctor.ui.drawing import CHARTS, Window, clip, draw
from torchdoctor.ui.layers import find_marks, grow_tree
from torchdoctor.ui.library import Library

Wait = Callable[..., Any]


def state(client: TestClient, name: str = "sick", **asked: str) -> Any:
    answer = client.get(f"/api/run/{name}", params=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def examined(client: TestClient, name: str = "sick") -> Any:
    found = state(client, name)
    return found if "parts" in found and not found["pending"] else None


def form_token(client: TestClient, name: str = "sick") -> str:
    found = re.search(r'name="form_token" value="([^"]+)"', client.get(f"/run/{name}").text)
    assert found is not None
    return found[1]


def test_the_page_is_there_before_the_verdict_and_has_the_loss(client: TestClient) -> None:
    page = client.get("/run/sick").text
    assert "being examined" in page and 'class="preview"' in page and "60 steps" in page


def begun(page: str) -> Any:
    found = re.search(r'id="begun">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


def test_the_page_brings_the_loss_and_once_it_is_known_the_verdict(client: TestClient, wait_for: Wait) -> None:
    first = client.get("/run/sick").text
    assert begun(first)["charts"]["loss"]["data"] and not begun(first)["concluded"]
    found = wait_for(lambda: examined(client))
    again = client.get("/run/sick").text
    assert begun(again)["concluded"] and "being examined" not in again and "missing-zero-grad" in again
    assert "parts" in state(client, since=begun(again)["stamp"]), found["stamp"]


def test_parts_that_the_page_has_are_named_and_not_sent(client: TestClient, wait_for: Wait) -> None:
    found = wait_for(lambda: examined(client))
    recorded = found["stamp"].partition(".")[0]
    again = state(client, since=f"{recorded}.", have=",".join(found["tags"].values()))
    assert again["parts"] == {} and again["tags"] == found["tags"] and "figures" not in again
    missing = state(client, since=f"{recorded}.", have=found["tags"]["layers"])["parts"]
    assert set(missing) == set(found["parts"]) - {"layers"}
    assert state(client, since="old.old")["figures"] == found["figures"]


def test_verdict_findings_layers_and_record_follow(client: TestClient, wait_for: Wait) -> None:
    found = wait_for(lambda: examined(client))
    assert found["severity"] == "error" and "zero_grad" in found["parts"]["findings"]
    assert 'data-layer="fc1"' in found["parts"]["layers"] and "Command and seeds" in found["parts"]["record"]
    assert any("error" in line for line in found["heard"])


def test_what_the_page_has_is_not_sent_again(client: TestClient, wait_for: Wait) -> None:
    stamp = wait_for(lambda: examined(client))["stamp"]
    assert "parts" not in state(client, since=stamp)
    assert state(client, since=stamp, hold="1") == {}


def test_news_are_answered_at_once(client: TestClient, runs: Path, wait_for: Wait) -> None:
    recorder = Recorder.create(runs / "live", {"argv": ["train.py"]}, flush_seconds=0.1)
    for step in range(20):
        recorder.scalar(signals.LOSS_TRAIN.name, step, 1.0)
    before = wait_for(lambda: (s := state(client, "live", charts="loss"))["charts"]["loss"] and s)
    assert before["running"] and "20 steps" in before["status"]
    recorder.scalar(signals.LOSS_TRAIN.name, 20, 0.5)
    wait_for(lambda: "21 steps" in state(client, "live", since=before["stamp"], hold="1").get("status", ""), 3)
    recorder.close()
    wait_for(lambda: not state(client, "live")["running"])


def test_only_visible_charts_are_sent(client: TestClient) -> None:
    found = state(client, charts="loss,no-such-chart")["charts"]
    assert found["loss"]["data"] and found["no-such-chart"] is None
    assert state(client)["charts"] == {}


def test_a_chart_of_some_steps(client: TestClient) -> None:
    asked = {"first": "10", "last": "20"}
    part = client.get("/api/run/sick/chart/gradient-norms", params=asked).json()
    whole = client.get("/api/run/sick/chart/gradient-norms").json()
    assert len(part["data"][0]["x"]["bdata"]) < len(whole["data"][0]["x"]["bdata"]) / 3
    assert part["title"] == whole["title"]
    assert client.get("/api/run/sick/chart/nothing").status_code == 404
    assert client.get("/api/run/sick/chart/loss", params={"first": "a", "last": "b"}).status_code == 400
    for odd in ("nan", "inf", "-1e999"):
        assert client.get("/api/run/sick/chart/loss", params={"first": odd, "last": odd}).status_code == 200


def test_a_layer_has_charts_of_its_own(client: TestClient) -> None:
    found = state(client, charts="layer-gradient,layer-update", layer="fc2")["charts"]
    assert found["layer-gradient"]["title"].startswith("Gradient at the end: weight")
    assert found["layer-update"] is None
    assert state(client, charts="layer-gradient", layer="../x")["charts"]["layer-gradient"] is None


def test_a_note_is_added_by_the_pages_own_form_only(client: TestClient, runs: Path) -> None:
    right = {"form_token": form_token(client), "text": "lower rate & <b>no</b> change"}
    origin = {"origin": "http://127.0.0.1:8123"}
    assert client.post("/run/sick/note", data={**right, "form_token": "wrong"}).status_code == 403
    assert client.post("/run/sick/note", data={"text": "x"}).status_code == 403
    assert client.post("/run/sick/note", data=right, headers={"origin": "http://evil.example"}).status_code == 403
    assert client.get("/run/sick/note", params=right).status_code == 405
    assert client.post("/run/none/note", data=right).status_code == 404
    assert client.post("/run/sick/note", data={**right, "text": " "}).status_code == 400
    assert client.post("/run/sick/note", data={**right, "text": "x" * 500_000}).status_code == 413
    assert read_notes(runs / "sick") == []
    answer = client.post("/run/sick/note", data=right, headers=origin)
    assert (answer.status_code, answer.headers["location"]) == (303, "/run/sick#journal")
    assert [note["text"] for note in read_notes(runs / "sick")] == [right["text"]]


def test_a_form_of_too_many_fields_is_refused(client: TestClient) -> None:
    answer = client.post("/run/sick/note", content="&".join(f"f{i}=1" for i in range(20)))
    assert answer.status_code == 400


def test_a_run_that_is_removed_while_it_is_looked_up_is_not_there(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(runs)
    monkeypatch.setattr(library, "find", lambda name: runs / "gone")
    with pytest.raises(NotARunError):
        library.stamp("gone")
    with pytest.raises(NotARunError):
        library.open("gone")


def test_names_of_any_letters_are_found(client: TestClient, runs: Path) -> None:
    for name in ("a b?c#d", "<img src=x onerror=alert(1)>", "größe 学習", '"quoted" & more'):
        record(runs / name)
        link = re.findall(r'href="(/run/[^"]+)"', client.get("/api/runs").json()["html"])[0]
        page = client.get(link)
        assert page.status_code == 200 and "<img" not in page.text


def test_every_chart_is_found_under_its_name(tmp_path: Path) -> None:
    run = open_run(record(tmp_path / "run"))
    for chart in charts(run):
        drawn = draw(run, chart.name)
        assert drawn is not None and drawn.title == chart.title
    assert {"loss", "gradient-flow", "activations", "dead-units", "time", "memory"} <= set(CHARTS)


@pytest.fixture
def long_trace() -> Trace:
    steps = np.arange(16, 20_016, 16)
    values = np.ones(len(steps))
    high = values.copy()
    high[400] = 50.0
    raw = [Trace.raw(range(a, a + 512), np.full(512, 2.0)) for a in (0, 19_488)]
    return Trace(steps, values, values, high, (), 16, *raw)


@pytest.mark.parametrize(
    ("window", "rows", "single"),
    [
        (Window(10, 100), 93, True),
        (Window(-50, 400), 402, True),
        (Window(19_600, 30_000), 401, True),
        (Window(6_000, 7_000), 65, False),
        (Window(0, 20_000), 1250, False),
    ],
)
def test_windows_show_single_steps_where_they_are_known(
    long_trace: Trace, window: Window, rows: int, single: bool
) -> None:
    found = clip(long_trace, window)
    assert abs(len(found) - rows) <= 1 and len(found) <= 2048
    assert (found.merged == 1) == single and (found.values == (2.0 if single else 1.0)).all()
    if window.first <= 6_416 <= window.last:
        assert found.high.max() == 50.0


def test_windows_beyond_the_run_are_harmless(long_trace: Trace) -> None:
    for window in (Window(-9, -5), Window(9e9, 9.1e9), Window(100.2, 100.4)):
        assert len(clip(long_trace, window)) <= 3
    assert len(clip(Trace.empty(), Window(0, 1))) == 0


def layered_run() -> Run:
    columns, outputs = ("net.0.weight", "net.0.bias", "net.2.weight"), ("net.1", "net.3")
    held = {
        signals.GRADIENT_L2.name: Trace.raw([0, 1], [[0.0, 0.0, 1.0]] * 2, columns),
        signals.UPDATE_RATIO.name: Trace.raw([0, 1], [[0.0, 0.5, 0.2]] * 2, columns),
        signals.ACTIVATION["dead"].name: Trace.raw([0, 1], [[0.9, np.nan]] * 2, outputs),
        signals.ACTIVATION["saturated"].name: Trace.raw([0, 1], [[np.nan, 0.8]] * 2, outputs),
        signals.ACTIVATION["std"].name: Trace.raw([0, 1], [[1.0, 1.0]] * 2, outputs),
        signals.ACTIVATION["nonfinite"].name: Trace.raw([0, 1, 2], [[0, 0], [0, 7], [0, np.nan]], outputs),
    }
    facts = [
        *(ParameterFact(n, [2] * (1 + n.endswith("t")), "f", "cpu", n.rpartition(".")[0], "Linear") for n in columns),
        *(ModuleFact(n, "ReLU") for n in outputs),
    ]
    made = Run.holding(*facts)
    return Run({}, frozenset((n, "") for n in held), lambda n, _: held[n], made.seen)


def test_layers_are_marked_by_what_is_wrong_with_them() -> None:
    marks = find_marks(layered_run())
    assert marks["net.0"] == [("error", "no gradient: weight, bias")]
    assert marks["net.1"] == [("warning", "90 % dead")]
    assert marks["net.3"] == [("error", "output not finite"), ("warning", "80 % saturated")]
    assert marks["net.2"] == [("info", "large updates: 20 % a step")]


def test_the_tree_and_the_chart_of_a_layer_tell_the_same_number() -> None:
    dead = np.linspace(0.2, 0.8, 160)[:, None]
    held = {signals.ACTIVATION["dead"].name: Trace.raw(range(160), dead, ("act",))}
    run = Run({}, frozenset((n, "") for n in held), lambda n, _: held.get(n, Trace.empty()), Run.holding().seen)
    chart = draw(run, "layer-activation", layer="act")
    assert chart is not None
    assert find_marks(run)["act"] == [("warning", "73 % dead")]
    assert re.search(r"73 ?% dead", chart.title)


def test_the_tree_counts_what_is_not_well_and_stands_in_order() -> None:
    net = grow_tree(layered_run()).parts["net"]
    assert list(net.parts) == ["0", "1", "2", "3"]
    assert net.ill == 3 and net.opened and net.parts["0"].kind == "Linear" and not net.measured


def test_somebody_who_comes_for_a_run_that_is_gone_finds_the_way_back(client: TestClient) -> None:
    page = client.get("/run/gone", headers={"sec-fetch-dest": "document"})
    assert page.status_code == 404 and 'href="/"' in page.text and "no run of that name" in page.text
    assert client.get("/api/run/gone").text.startswith("there is no run")
