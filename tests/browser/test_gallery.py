"""The gallery and the clipping room in a real browser: a card is trained, opened, asked about; a slider moves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from gallery_stand_in import standing_in
from torchdoctor.lab.gallery.cabinet import Cabinet
from torchdoctor.lab.gallery.training import Trainer
from torchdoctor.ui.app import build_app
from torchdoctor.ui.gallery import Gallery
from torchdoctor.ui.guard import Access
from torchdoctor.ui.library import Library
from torchdoctor.ui.server import bind


@dataclass
class Served:
    base: str
    token: str
    cache: Path
    trainer: Trainer


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    bound = bind("127.0.0.1", 0)
    access = Access.over("127.0.0.1", bound.getsockname()[1], "right-token")
    trainer = Trainer(Cabinet(tmp_path / "cache"), standing_in("slow"))
    app = build_app(Library(tmp_path / "none"), access, Gallery(trainer))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    yield Served(f"http://127.0.0.1:{access.port}", access.token, tmp_path / "cache", trainer)
    server.should_exit = True
    thread.join(20)
    bound.close()


def look_away(page: Any, away: bool) -> None:
    """Headless, every tab counts as seen."""
    page.evaluate(
        "away => { Object.defineProperty(document, 'hidden', { value: away, configurable: true });"
        " document.dispatchEvent(new Event('visibilitychange')); }",
        away,
    )


def test_a_card_is_trained_opened_and_asked_about(open_page: Any, served: Served) -> None:
    opened = open_page(f"{served.base}/lab/curves?token={served.token}")
    page = opened.page
    card = page.locator(".exhibit[data-name=spike]")
    assert card.locator("svg").count() == 0
    card.get_by_role("button", name="Train Spikes").click()
    card.locator(".frame.training svg").wait_for()
    half = card.locator(".frame svg path").first.get_attribute("d")
    assert "training now" in card.inner_text().lower()
    look_away(page, away=True)
    asked = len(opened.requests)
    page.wait_for_timeout(1000)
    assert len(opened.requests) - asked <= 1  # one may have been under way
    look_away(page, away=False)
    (served.cache / "go").touch()
    card.get_by_role("link", name="whole run").wait_for()
    page.wait_for_function(
        "half => document.querySelector('.exhibit[data-name=spike] .frame svg path').getAttribute('d') !== half",
        arg=half,
    )

    card.get_by_role("link", name="Spikes").click()
    page.wait_for_selector("#first .js-plotly-plot")
    assert page.locator("#shown .chart").count() == 1 and "Spikes" in page.inner_text("h1")

    page.goto(f"{served.base}/lab/curves/quiz")
    page.wait_for_selector(".option")
    assert page.locator("#told").inner_text() == "" and page.locator(".option").count() == 4
    page.keyboard.press("2")
    page.locator(".option.right").wait_for()
    assert page.locator("#score").inner_text() in ("0 of 1 right", "1 of 1 right")
    assert page.locator("#told strong").first.inner_text().lower().endswith("spikes.")
    page.keyboard.press("Enter")
    page.locator(".option.right").wait_for(state="detached")
    assert opened.problems == []

    page.goto(f"{served.base}/lab/curves")
    page.get_by_role("button", name="remove all").click()
    assert opened.problems == ["dialog"] and list(served.cache.glob("*/run.json"))  # asked, and it was declined


LETTERS = """() => { const svg = document.querySelector('.exhibit[data-name=spike] svg');
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  const sizes = [...svg.querySelectorAll('text')].map((t) => parseFloat(getComputedStyle(t).fontSize));
  return scale * Math.min(...sizes); }"""
MARKED = """() => { const place = document.querySelector('#first .chart');
  const chart = { name: 'loss', title: 'a curve', data: [{ type: 'scatter', x: [0, 100], y: [1, 2] }],
    layout: { xaxis: {}, yaxis: {}, annotations: ['one word', 'so many words that no phone has room for them'].map(
      (text, i) => ({ text, x: 50 + i, y: 1.5, showarrow: true, ax: 0, ay: -42, xanchor: 'left' })) } };
  const fitting = marking.fit(chart, place);
  return Plotly.react(place, fitting.data, charting.dressed(fitting, place.clientWidth)).then(
    () => [...place.querySelectorAll('.annotation-text')].map((t) => t.textContent)); }"""


@pytest.mark.parametrize("width", [390, 1300])
def test_letters_are_legible_and_a_phone_has_words_below_the_curve(open_page: Any, served: Served, width: int) -> None:
    served.trainer._command = standing_in("spiky")
    opened = open_page(f"{served.base}/lab/curves/spike?token={served.token}")
    page = opened.page
    page.set_viewport_size({"width": width, "height": 900})
    page.get_by_role("button", name="Train it").click()
    page.wait_for_selector("#first .js-plotly-plot")
    page.get_by_role("link", name="The whole run").wait_for()
    page.wait_for_timeout(500)
    written = page.evaluate(MARKED)
    below = page.locator("#first .marks li").all_inner_texts()
    words = ["one word", "so many words that no phone has room for them"]
    assert (written, below) == ((["1", "2"], words) if width == 390 else (words, []))
    page.goto(f"{served.base}/lab/curves")
    page.wait_for_selector(".exhibit[data-name=spike] svg text")
    assert page.evaluate(LETTERS) >= 9  # asked in the page: a card that is renewed meanwhile has no size
    assert opened.problems == []


def test_the_slider_of_the_clipping_room_moves_the_numbers(open_page: Any, served: Served) -> None:
    served.trainer._command = standing_in("spiky")
    opened = open_page(f"{served.base}/lab/clipping?token={served.token}")
    page = opened.page
    page.get_by_role("link", name="Spikes").click()
    page.get_by_role("button", name="Train it").click()
    page.wait_for_selector("#first .js-plotly-plot")

    page.goto(f"{served.base}/lab/clipping")
    page.wait_for_selector("#said:not(.waiting)")
    assert "Catches the spikes" in page.inner_text("#said") and page.locator("#shown .js-plotly-plot").count() == 2
    page.set_viewport_size({"width": 390, "height": 800})
    assert "clip_grad_norm_(model.parameters()" in page.inner_text("#said")
    assert page.locator("#said").evaluate("e => e.scrollWidth - e.clientWidth") <= 0
    page.locator("#c-threshold").focus()
    page.keyboard.press("Home")
    page.wait_for_selector("#said.warning")
    assert "Too tight: 100%" in page.inner_text("#said") and "clipping-too-tight" in page.inner_text("#said")
    page.get_by_role("button", name="Never acts").click()
    page.wait_for_selector("#said.info")
    assert "never acts" in page.inner_text("#said h2")
    assert opened.problems == []
