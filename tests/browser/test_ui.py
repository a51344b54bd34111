"""The live page in a real browser: it opens, follows a training, drills down, compares, and trusts no name."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from browser.test_report import PAYLOADS
from recording import record
from torchdoctor import signals
from torchdoctor.facts import ModuleFact, ParameterFact
from torchdoctor.store.reader import open_run
from torchdoctor.store.writer import Recorder

PROMISED_SECONDS = 2.0
"""From a step to the page that shows it."""


@dataclass
class Served:
    process: subprocess.Popen[str]
    url: str
    folder: Path

    @property
    def base(self) -> str:
        return self.url.partition("/?")[0]


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Served]:
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "torchdoctor", "ui", str(folder), "--no-browser"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", said)
        assert found is not None, said + (process.stderr.read() if process.poll() is not None else "")
        yield Served(process, found[0], folder)
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("ui") / "runs"
    parameters = [ParameterFact(f"fc{i}.weight", [4, 4], "f", "cpu", f"fc{i}", "Linear", i) for i in (1, 2)]
    facts = (ModuleFact("act", "ReLU", "relu"), *parameters[:1])
    record(folder / "sick", cleared=0.0, facts=facts, argv=[f"/home/{'long_name_' * 12}.py"])
    record(folder / "well")
    with serving(folder) as found:
        yield found


@pytest.fixture
def look(open_page: Any, served: Served) -> Any:
    """Opens with the token as a person does, then goes on to a path."""

    def go(path: str = "/", **options: Any) -> Any:
        opened = open_page(served.url, **options)
        opened.page.wait_for_selector("#tools")
        if path != "/":
            opened.page.goto(served.base + path)
        return opened

    return go


def drawn(opened: Any, place: str = "#first") -> None:
    opened.page.wait_for_selector(f"{place} .chart .main-svg", timeout=20_000)


def shown_steps(opened: Any) -> int:
    return int(re.sub(r"\D", "", opened.page.inner_text("#status")) or 0)


def last_x(opened: Any) -> float:
    return opened.page.evaluate(
        "() => Math.max(...document.querySelector('#first .chart')._fullData.map(t => t.x[t.x.length - 1]))"
    )


@pytest.fixture
def training(served: Served) -> Iterator[Any]:
    """A training in this process, a step every few hundredths of a second; [-1] of `steps` is the last one done."""
    stop, steps = threading.Event(), [0]
    recorder = Recorder.create(served.folder / f"live-{time.monotonic_ns()}", {"argv": ["train.py"]})

    def train() -> None:
        while not stop.is_set():
            step = steps[0]
            recorder.scalar(signals.LOSS_TRAIN.name, step, 1 / (step + 1))
            recorder.scalar(signals.GRADIENTS_CLEARED.name, step, float(step < 30), "0")
            recorder.matrix(step, ("fc.weight",), {signals.GRADIENT_L2.name: np.ones(1, np.float32)})
            steps[0] += 1
            time.sleep(0.03)

    thread = threading.Thread(target=train)
    thread.start()
    yield recorder, steps
    stop.set()
    thread.join()
    recorder.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_list_has_verdicts_and_curves_and_searches(look: Any, scheme: str) -> None:
    opened = look(color_scheme=scheme)
    row = opened.page.locator("tr", has_text="missing-zero-grad")
    row.locator("polyline").first.wait_for()
    opened.page.fill("#search", "missing-zero")
    opened.page.locator("#told", has_text="1 of").wait_for()
    assert row.is_visible()
    assert not opened.page.locator("tr", has=opened.page.get_by_text("well", exact=True)).is_visible()
    for typed in ("--lr", "0.1", "--lr 0.1", "WELL", "60 steps", "diagnoses"):
        opened.page.fill("#search", typed)
        assert opened.page.locator("tr[data-name=well]").is_visible(), typed
    opened.page.fill("#search", "--lr")
    assert not row.is_visible()
    assert "token" not in opened.page.url
    assert opened.problems == []


def test_a_run_shows_verdict_findings_charts_and_layers(look: Any, served: Served) -> None:
    opened = look("/run/sick")
    drawn(opened)
    opened.page.wait_for_selector("article.finding")
    assert "missing-zero-grad" in opened.page.inner_text("#verdict .badge").lower()
    assert "optimizer.zero_grad()" in opened.page.inner_text("article.finding")
    opened.page.locator(".layer", has_text="fc1").click()
    drawn(opened, "#layer")
    assert "Gradient at the end: weight" in opened.page.get_attribute("#layer .chart", "aria-label")
    assert opened.page.get_attribute(".layer[data-layer=fc1]", "aria-pressed") == "true"
    assert opened.problems == []
    assert [u for u in opened.requests if not u.startswith((served.base, "data:", "blob:"))] == []


def test_an_update_reaches_the_page_in_time_and_findings_come(look: Any, training: Any) -> None:
    recorder, steps = training
    opened = look(f"/run/{recorder.directory.name}")
    drawn(opened)
    waits = []
    for _ in range(3):
        wanted, begun = steps[0] + 1, time.monotonic()
        while shown_steps(opened) < wanted or last_x(opened) < wanted - 1:
            assert time.monotonic() - begun < 10, "no update came"
            opened.page.wait_for_timeout(30)
        waits.append(time.monotonic() - begun)
    assert sorted(waits)[1] < PROMISED_SECONDS, waits
    opened.page.wait_for_selector("article.finding", timeout=20_000)
    assert "missing-zero-grad" in opened.page.inner_text("#verdict .badge").lower()
    assert opened.problems == []


def test_a_hidden_page_asks_for_nothing_and_one_request_runs_at_a_time(look: Any, training: Any) -> None:
    opened = look(f"/run/{training[0].directory.name}")
    drawn(opened)
    under_way: set[Any] = set()
    most = [0]

    def begin(request: Any) -> None:
        if "/api/" in request.url:
            under_way.add(request)
            most[0] = max(most[0], len(under_way))

    opened.page.on("request", begin)
    opened.page.on("requestfinished", lambda request: under_way.discard(request))
    opened.page.on("requestfailed", lambda request: under_way.discard(request))
    opened.page.wait_for_timeout(4000)
    assert 0 < most[0] <= 2  # one that ends and one that begins may be told in either order
    hide = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    opened.page.evaluate(hide, True)
    opened.page.wait_for_timeout(1500)
    asked = len(opened.requests)
    opened.page.wait_for_timeout(1500)
    assert len(opened.requests) == asked
    opened.page.evaluate(hide, False)
    opened.page.wait_for_timeout(1500)
    assert len(opened.requests) > asked


def test_charts_share_cursor_and_zoom_and_keys_work(look: Any) -> None:
    opened = look("/run/sick")
    page = opened.page
    page.set_viewport_size({"width": 1000, "height": 3000})
    drawn(opened)
    drawn(opened, "[data-part=charts]")
    box = page.locator("#first .chart .nsewdrag").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("[data-part=charts] .cursor", state="visible")
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 52, steps=5)
    page.mouse.up()
    ranges = (
        "() => [...document.querySelectorAll('.chart[data-drawn]')].map(c => c._fullLayout.xaxis.range.map(Math.round))"
    )
    until = time.monotonic() + 5
    while len(found := {tuple(r) for r in page.evaluate(ranges)}) > 1 and time.monotonic() < until:
        page.wait_for_timeout(50)
    (low, high) = next(iter(found))
    assert len(found) == 1 and 10 < low < high < 45, found
    page.focus("#first .chart")
    page.keyboard.press("0")
    until = time.monotonic() + 5
    while not all(r[1] >= 59 for r in page.evaluate(ranges)):
        assert time.monotonic() < until, page.evaluate(ranges)
        page.wait_for_timeout(50)
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert re.match(r"step 5\d: .*training", page.inner_text("#spoken"))
    assert opened.problems == []


COUNT = """() => { window.redrawn = []; const react = Plotly.react;
  Plotly.react = (place, ...rest) => { redrawn.push(place.dataset.chart); return react(place, ...rest); }; }"""


def test_a_zoom_draws_what_is_near_and_a_reset_asks_for_nothing(look: Any) -> None:
    opened = look("/run/sick")
    page = opened.page
    drawn(opened)
    page.wait_for_selector("article.finding .main-svg")
    page.wait_for_timeout(700)
    page.evaluate(COUNT)
    page.focus("#first .chart")
    begun = len(opened.requests)
    page.keyboard.press("+")
    page.wait_for_timeout(1000)
    near = page.eval_on_selector_all(".chart[data-drawn]", "all => all.map(place => place.dataset.chart)")
    zoomed = page.evaluate("window.redrawn.splice(0)")
    asked = [u for u in opened.requests[begun:] if "/api/" in u]
    assert zoomed[0] == "loss" and set(zoomed) <= set(near)
    assert max(map(zoomed.count, zoomed)) == 2, "once for the steps, once for finer data"
    assert len(asked) == 1 and "first=" in asked[0] and "memory" not in asked[0]
    page.keyboard.press("0")
    page.wait_for_timeout(700)
    reset = page.evaluate("window.redrawn.splice(0)")
    assert sorted(reset) == sorted(set(zoomed)) and len(opened.requests) == begun + 1
    assert opened.problems == []


def test_the_first_finding_of_a_training_is_spoken(look: Any, served: Served) -> None:
    recorder = Recorder.create(served.folder / f"watched-{time.monotonic_ns()}", {"argv": ["train.py"]})

    def train(steps: range, cleared: float) -> None:
        for step in steps:
            recorder.scalar(signals.LOSS_TRAIN.name, step, 1 / (step + 1))
            recorder.scalar(signals.GRADIENTS_CLEARED.name, step, cleared, "0")

    train(range(40), 1.0)
    until = time.monotonic() + 30
    while open_run(recorder.directory).steps < 40 and time.monotonic() < until:
        time.sleep(0.1)
    opened = look(f"/run/{recorder.directory.name}")
    opened.page.wait_for_selector("#checklist .item", timeout=20_000)
    assert opened.page.inner_text("#spoken") == ""
    train(range(40, 120), 0.0)
    opened.page.wait_for_selector("article.finding", timeout=20_000)
    assert re.match(r"New finding\. error: Gradients are not cleared", opened.page.inner_text("#spoken"))
    recorder.close()


def test_what_stands_when_a_page_is_opened_is_no_news(look: Any) -> None:
    opened = look("/run/sick")
    opened.page.wait_for_selector("article.finding")
    assert opened.page.inner_text("#spoken") == ""


def press(opened: Any, chart: str, *keys: str) -> str:
    """What is spoken after these keys in a chart."""
    opened.page.focus(chart)
    for key in keys:
        opened.page.keyboard.press(key)
    return str(opened.page.inner_text("#spoken"))


def test_zooms_by_keys_stay_within_the_steps_and_are_spoken(look: Any) -> None:
    opened = look("/run/sick")
    drawn(opened)
    opened.page.wait_for_function("() => document.querySelector('#first .chart .cursor')")
    assert press(opened, "#first .chart", "+") == "steps 15 to 44"
    assert press(opened, "#first .chart", "Home", "+") == "steps 15 to 30"
    assert press(opened, "#first .chart", "-", "-", "-", "-") == "all steps, 0 to 59"
    assert press(opened, "#first .chart", "Home", "+") == "steps 0 to 30"
    assert press(opened, "#first .chart", *["+"] * 12) == "steps 0 to 2"
    assert press(opened, "#first .chart", "0") == "all steps, 0 to 59"
    shown = opened.page.evaluate("() => document.querySelector('#first .chart')._fullLayout.xaxis.range")
    assert -10 < shown[0] <= 0 and 59 <= shown[1] < 70
    assert opened.problems == []


def test_a_map_tells_its_rows_at_the_cursor(look: Any) -> None:
    opened = look("/run/sick")
    place = "[data-chart=gradient-flow]"
    opened.page.locator(place).scroll_into_view_if_needed()
    opened.page.wait_for_selector(f"{place} .cursor", state="attached")
    assert re.match(r"step 0: log10 of norm: fc1\S* 0\.362", press(opened, place, "Home"))


BARS = """() => { const place = document.createElement('div'); place.className = 'chart'; place.id = 'bars';
  document.querySelector('main').prepend(place);
  linked(() => {}).draw(place, { name: 'bars', title: 'bars', layout: { xaxis: { type: 'category' } },
    data: [{ type: 'bar', name: 'one', x: ['a', 'b'], y: [1, 2.3456] },
      { type: 'bar', name: 'two', x: ['a', 'b'], y: [3, null] }] }); }"""


MAP = """() => { const place = document.createElement('div'); place.className = 'chart'; place.id = 'map';
  document.querySelector('main').prepend(place);
  const rows = ['a', 'b', 'c', 'd', 'e'], steps = [0, 10, 20];
  const over = [[null, null, null], [null, null, null], [null, null, null], [null, null, null], [null, null, 1]];
  linked(() => {}).draw(place, { name: 'map', title: 'map', layout: { xaxis: { title: { text: 'step' } }, yaxis: {} },
    data: [{ type: 'heatmap', x: steps, y: rows, z: [[1, 1, 1], [5, 5, 5], [3, 3, 3], [4, 4, 4], [2, 2, null]],
             colorbar: { title: { text: 'size' } } },
           { type: 'heatmap', x: steps, y: rows, z: over, showscale: false,
             hovertemplate: '%{y}<br>step %{x}<br>not finite<extra></extra>' },
           { type: 'scatter', mode: 'markers', name: 'spike', x: [20], y: ['a'] }] }); }"""


def test_of_many_rows_the_largest_and_the_smallest_are_told_and_what_is_marked(look: Any) -> None:
    opened = look("/run/sick")
    drawn(opened)
    opened.page.evaluate(MAP)
    opened.page.wait_for_selector("#map[role=application]")
    assert press(opened, "#map", "Home") == "step 0: size: largest b 5, d 4, c 3; smallest a 1"
    assert press(opened, "#map", "End").endswith("not finite: e")
    assert opened.problems == []


def test_bars_are_walked_through(look: Any) -> None:
    opened = look("/run/sick")
    drawn(opened)
    opened.page.evaluate(BARS)
    opened.page.wait_for_selector("#bars[role=application]")
    assert press(opened, "#bars", "ArrowRight") == "one, a: 1"
    assert press(opened, "#bars", "ArrowRight") == "one, b: 2.35"
    assert press(opened, "#bars", "ArrowDown") == "two, b: no value"
    assert opened.problems == []


def test_links_lead_to_the_parts_of_the_page_and_toolbars_hold_nobody_up(look: Any) -> None:
    opened = look("/run/sick")
    page = opened.page
    drawn(opened)
    page.wait_for_selector("article.finding")
    links = page.locator(".within a:visible")
    assert links.all_inner_texts() == ["Findings", "Charts", "Layers", "Checklist", "Journal", "Record"]
    page.mouse.move(0, 0)
    for link in links.all():
        link.press("Enter")
        page.wait_for_timeout(150)
        heading = page.locator(f"{link.get_attribute('href')} h2").first.bounding_box()
        assert heading["y"] >= 0 and heading["y"] < page.viewport_size["height"], link.inner_text()
    page.goto(page.url.partition("#")[0])
    drawn(opened)
    page.wait_for_selector(".layer")
    for _ in range(60):
        page.keyboard.press("Tab")
        assert not page.evaluate("() => Boolean(document.activeElement.closest('.modebar'))")
    levels = page.eval_on_selector_all(
        "h1, h2, h3, h4", "all => all.filter(h => h.checkVisibility()).map(h => +h.tagName[1])"
    )
    assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels)), levels


def test_keys_reach_everything_and_everything_has_a_name(look: Any) -> None:
    opened = look("/run/sick")
    drawn(opened)
    opened.page.wait_for_selector(".layer")
    opened.page.keyboard.press("Tab")
    assert opened.page.inner_text(":focus") == "Skip to the contents"
    reached = set()
    for _ in range(60):
        opened.page.keyboard.press("Tab")
        reached.add(opened.page.evaluate("() => document.activeElement.className || document.activeElement.tagName"))
    assert any("chart" in r for r in reached) and "layer" in reached and {"TEXTAREA", "SUMMARY"} <= reached
    unnamed = "all => all.filter(e => !e.getAttribute('aria-label') && e.dataset.drawn).length"
    assert opened.page.eval_on_selector_all(".chart", unnamed) == 0


@pytest.mark.parametrize("path", ["/", "/run/sick", "/compare?a=sick&b=well"])
def test_pages_fit_a_phone(look: Any, path: str) -> None:
    opened = look(path, is_mobile=True)
    opened.page.set_viewport_size({"width": 390, "height": 800})
    if path != "/":
        opened.page.wait_for_selector(".chart .main-svg")
    if "run" in path:
        opened.page.wait_for_selector("article.finding")
    opened.page.wait_for_function("() => document.documentElement.scrollWidth <= 390")


def test_two_runs_are_chosen_and_compared(look: Any) -> None:
    opened = look()
    for name in ("sick", "well"):
        opened.page.check(f"input[value={name}]")
    opened.page.click("#compare")
    opened.page.wait_for_selector(".chart .main-svg")
    assert "finding: missing-zero-grad" in opened.page.inner_text("section[aria-label=Comparison]")
    assert opened.problems == []


def test_a_note_is_written_and_shown(look: Any, served: Served) -> None:
    record(served.folder / "noted")
    opened = look("/run/noted")
    opened.page.fill("#note", "tried <b>less</b>")
    opened.page.click("#journal button")
    opened.page.wait_for_selector(".notes li", timeout=20_000)
    assert "tried <b>less</b>" in opened.page.inner_text(".notes")
    assert opened.problems == []


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_a_hostile_run_opens_without_harm(look: Any, served: Served, payload: str) -> None:
    name = payload.replace("/", "_").replace("\x00", "") + "%2e%20"
    columns = (f"{payload}.weight", "fc2.weight")
    info = {"argv": [payload, payload], "packages": {payload: payload}, "git": {"diff": payload}}
    recorder = Recorder.create(served.folder / name, info)
    recorder.fact(ParameterFact(columns[0], [2, 2], payload, payload, payload, payload, 0), 0, columns[0])
    recorder.fact(ModuleFact(payload, payload, payload), 0, payload)
    for step in range(60):
        recorder.scalar(signals.LOSS_TRAIN.name, step, 1.0 / (step + 1), payload[:40])
        recorder.scalar(signals.GRADIENTS_CLEARED.name, step, 0.0, "0")
        recorder.matrix(step, columns, {signals.GRADIENT_L2.name: np.full(2, 1.0, np.float32)})
        recorder.matrix(step, (payload,), {signals.ACTIVATION["std"].name: np.ones(1, np.float32)})
    recorder.close("finished")
    opened = look(f"/run/{quote(name, safe='')}")
    drawn(opened)
    opened.page.wait_for_selector("article.finding")
    opened.page.locator(".layer").first.click()
    opened.page.locator(".layer[data-layer=fc2]").click()
    drawn(opened, "#layer")
    opened.page.goto(served.base + f"/compare?a={quote(name, safe='')}&b=well")
    opened.page.wait_for_selector(".chart .main-svg")
    opened.page.goto(served.base + "/")
    opened.page.wait_for_timeout(300)
    assert opened.problems == []
    assert [u for u in opened.requests if not u.startswith((served.base, "data:", "blob:"))] == []
    assert opened.page.locator("img[src=x], svg[onload], main script").count() == 0


def test_a_killed_server_touches_no_training_and_the_page_says_so(open_page: Any, tmp_path: Path) -> None:
    with serving(tmp_path / "runs") as found:
        recorder = Recorder.create(found.folder / "live", {"argv": ["train.py"]})
        for step in range(50):
            recorder.scalar(signals.LOSS_TRAIN.name, step, 1.0)
        time.sleep(1.5)
        opened = open_page(found.url)
        opened.page.wait_for_selector("#tools")
        opened.page.goto(found.base + "/run/live")
        drawn(opened)
        found.process.kill()
        opened.page.wait_for_selector("#status:has-text('does not answer')", timeout=10_000)
        recorder.scalar(signals.LOSS_TRAIN.name, 50, 1.0)
        recorder.close()
    assert recorder.dropped == {}


def test_ctrl_c_ends_it_at_once_though_a_page_waits(open_page: Any, tmp_path: Path) -> None:
    record(tmp_path / "runs" / "one")
    with serving(tmp_path / "runs") as found:
        opened = open_page(found.url)
        opened.page.wait_for_selector("#tools")
        opened.page.goto(found.base + "/run/one")
        drawn(opened)
        found.process.send_signal(signal.SIGINT)
        assert found.process.wait(10) == 0
        assert "Traceback" not in found.process.stderr.read()
