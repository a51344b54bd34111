"""The report file in a real browser: it draws, prints nothing to the console, asks for nothing, and trusts no name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from processes import preloaded_torchdoctor
from recording import record
from torchdoctor import signals
from torchdoctor.store.writer import Recorder

PAYLOADS = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "{{7919*6841}}{% raw %}",
    "javascript:alert(1)//",
    "';alert(1);'",
    "a\u2028b\u202ec\x00d\x1b[31m",
]


def write(folder: Path, *runs: Path, words: tuple[str, ...] = ()) -> Path:
    done = preloaded_torchdoctor("report", *map(str, runs), "-o", "report.html", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "report.html"


def drawn(opened: Any) -> None:
    opened.page.wait_for_selector(".chart .main-svg", timeout=20_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_verdict_is_on_top_and_the_charts_are_drawn_offline(tmp_path: Path, open_page: Any, scheme: str) -> None:
    opened = open_page(write(tmp_path, record(tmp_path / "sick", cleared=0.0)), color_scheme=scheme)
    drawn(opened)
    assert "missing-zero-grad" in opened.page.inner_text(".verdict .badge").lower()
    top = opened.page.locator(".verdict").bounding_box()
    assert top["y"] + top["height"] < 600
    assert "optimizer.zero_grad()" in opened.page.inner_text("article.finding")
    assert opened.problems == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    ink = opened.page.evaluate("getComputedStyle(document.querySelector('.chart .gtitle')).fill")
    assert ("31, 35, 40" in ink) == (scheme == "light")


def test_a_healthy_run_says_so_and_fits_a_phone(tmp_path: Path, open_page: Any) -> None:
    opened = open_page(write(tmp_path, record(tmp_path / "well")), is_mobile=True)
    opened.page.set_viewport_size({"width": 390, "height": 800})
    drawn(opened)
    assert "no fault found" in opened.page.inner_text(".verdict .badge").lower()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(("medium", "width"), [("screen", 390), ("print", 600)])
def test_no_code_is_cut_off_at_the_right_edge(tmp_path: Path, open_page: Any, medium: str, width: int) -> None:
    opened = open_page(write(tmp_path, record(tmp_path / "sick", cleared=0.0)))
    opened.page.set_viewport_size({"width": width, "height": 800})
    opened.page.emulate_media(media=medium)
    opened.page.eval_on_selector("pre.code", "e => { e.textContent = '    loss = ' + 'a_long_name(x) + '.repeat(20); }")
    hidden = opened.page.eval_on_selector_all("pre", "all => all.map(e => e.scrollWidth - e.clientWidth)")
    assert hidden and max(hidden) <= 0


def test_charts_come_as_they_are_scrolled_to_and_keys_reach_everything(tmp_path: Path, open_page: Any) -> None:
    opened = open_page(write(tmp_path, record(tmp_path / "sick", cleared=0.0)))
    drawn(opened)
    opened.page.locator(".chart").last.scroll_into_view_if_needed()
    opened.page.locator(".chart").last.locator(".main-svg").first.wait_for()  # wait_for_function would need eval
    reached = []
    while "SUMMARY" not in reached and len(reached) < 150:
        opened.page.keyboard.press("Tab")
        reached.append(opened.page.evaluate("document.activeElement.tagName"))
    assert {"BUTTON", "SUMMARY"} <= set(reached)
    buttons = opened.page.eval_on_selector_all(".modebar-btn", "all => all.map(b => b.getAttribute('data-title'))")
    assert buttons and not any("hare" in title or "loud" in title for title in buttons)  # Plotly would upload charts
    labels = opened.page.eval_on_selector_all(".chart", "all => all.map(c => c.getAttribute('aria-label'))")
    assert labels and all(labels)


def test_two_runs_are_compared_and_several_changes_are_called_so(tmp_path: Path, open_page: Any) -> None:
    first = record(tmp_path / "a", hyperparameters=[])
    second = record(tmp_path / "b", loss=np.linspace(2.3, 1.9, 60), cleared=0.0)
    opened = open_page(write(tmp_path, first, second))
    drawn(opened)
    text = opened.page.inner_text("section[aria-label=Comparison]")
    assert "finding: missing-zero-grad" in text and "stands" in text


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_a_hostile_run_opens_without_harm(tmp_path: Path, open_page: Any, payload: str) -> None:
    columns = (f"{payload}.weight", "fc2.weight")
    folder = tmp_path / "hostile"
    recorder = Recorder.create(folder, {"argv": [payload], "packages": {payload: payload}, "git": {"diff": payload}})
    for step in range(60):
        recorder.scalar(signals.LOSS_TRAIN.name, step, 1.0 / (step + 1), payload[:40])
        recorder.scalar(signals.GRADIENTS_CLEARED.name, step, 0.0, "0")
        recorder.matrix(step, columns, {signals.GRADIENT_L2.name: np.full(2, 1.0, np.float32)})
    recorder.close("finished")
    done = preloaded_torchdoctor("note", str(folder), payload.replace("\x00", ""), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    opened = open_page(write(tmp_path, folder))
    drawn(opened)
    opened.page.wait_for_timeout(200)
    assert opened.problems == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert opened.page.locator("img[src=x], svg[onload], main script").count() == 0
    assert "54173879" not in opened.page.inner_text("header h1")
