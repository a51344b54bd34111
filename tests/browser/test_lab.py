"""The lab in a real browser: a choice is changed and the numbers follow; presets, films, comparing, by keyboard."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchdoctor.lab.stations import STATIONS


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("lab")
    words = [sys.executable, "-m", "torchdoctor", "lab", "--no-browser"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder)
    assert process.stderr is not None
    try:
        said = process.stderr.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/\S*token=\S+", said)
        assert found is not None, said
        yield found[0]
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def enter(open_page: Any, address: str) -> Any:
    def go(station: str = "", **options: Any) -> Any:
        opened = open_page(address, **options)
        opened.page.wait_for_selector(".rooms")
        if station:
            opened.page.goto(f"{address.partition('/?')[0]}/lab/{station}")
            settled(opened.page)
        return opened

    return go


def settled(page: Any) -> None:
    page.wait_for_selector("#station[aria-busy=false]", timeout=30_000)
    page.wait_for_selector("#shown .main-svg", timeout=30_000)


def values(page: Any, chart: str, key: str = "y", trace: int = 0) -> list[float]:
    found: list[float] = page.evaluate(
        "([chart, key, trace]) => Array.from(document.querySelector(`[data-chart=${chart}]`)._fullData[trace][key])",
        [chart, key, trace],
    )
    return found


def step(page: Any) -> int:
    return int(re.findall(r"\d+", page.inner_text("#moment"))[0])


def test_a_choice_is_changed_and_the_numbers_follow(enter: Any) -> None:
    opened = enter()
    page = opened.page
    page.get_by_role("link", name="Gradient-health monitor").click()
    settled(page)
    assert "HEALTHY" in page.inner_text("#said").upper()
    before = values(page, "lab-gradients")
    page.select_option("#c-activation", "sigmoid")
    page.select_option("#c-init", "default")
    page.wait_for_function("() => document.querySelector('#said .badge').textContent === 'vanishing-gradients'")
    settled(page)
    after = values(page, "lab-gradients")
    assert len(before) == len(after) == 11
    assert before[-1] / before[0] < 30 < 1e4 < after[-1] / after[0]
    shown = page.locator(".figures div", has_text="gradient, first layer").locator("dd").inner_text()
    assert float(shown) == pytest.approx(after[0], rel=0.05)
    page.reload()  # the address holds the choices
    settled(page)
    assert page.input_value("#c-activation") == "sigmoid" and values(page, "lab-gradients") == after
    assert opened.problems == []


def test_a_preset_and_a_result_kept_to_compare(enter: Any) -> None:
    opened = enter("learning-rates")
    page = opened.page
    page.click("#keep")
    assert page.get_attribute("#keep", "aria-pressed") == "true"
    page.get_by_role("button", name="Too low").click()
    page.wait_for_selector("#said.warning")
    settled(page)
    assert "learning-rate-too-low" in page.inner_text("#said") and "snail" in page.inner_text("#hint")
    names = page.evaluate("() => document.querySelector('[data-chart=lab-curves]')._fullData.map((t) => t.name)")
    assert "kept: 0.0316 (chosen)" in names and "3.2e-4 (chosen)" in names
    page.click("#keep")
    names = page.evaluate("() => document.querySelector('[data-chart=lab-curves]')._fullData.map((t) => t.name)")
    assert not any(name.startswith("kept") for name in names)
    assert opened.problems == []


def test_bars_are_kept_as_outlines(enter: Any) -> None:
    opened = enter("gradient-health?depth=3")
    page = opened.page
    page.click("#keep")
    page.get_by_role("button", name="ReLU, all zero").click()
    page.wait_for_selector("#said.error")
    settled(page)
    traces = page.evaluate(
        "() => document.querySelector('[data-chart=lab-units]')._fullData.map((t) => [t.name, t.type])"
    )
    assert ["kept: dead units", "scatter"] in traces and ["dead units", "bar"] in traces
    assert opened.problems == []


def test_charts_fit_their_places_when_their_number_changes(enter: Any) -> None:
    page = enter("weight-shapes?steps=0").page
    page.set_viewport_size({"width": 1280, "height": 900})
    for preset, charts in (("Trained", 7), ("Fresh", 3), ("Sparse", 7)):
        page.get_by_role("button", name=preset, exact=True).click()
        page.wait_for_function(f"() => document.querySelectorAll('#shown .main-svg').length >= {charts}")
        fits = "c._fullLayout?.width === c.clientWidth && c.getBoundingClientRect().right <= innerWidth"
        page.wait_for_function(
            f"() => {{ const all = [...document.querySelectorAll('.chart')];"
            f" return all.length === {charts} && all.every((c) => {fits}); }}",
            timeout=10_000,
        )


def test_a_training_is_walked_through_by_keyboard(enter: Any) -> None:
    opened = enter("activation-flow?rate=-1")
    page = opened.page
    assert step(page) == 60

    def red() -> int:
        return sum(value == 0 for row in values(page, "lab-cells", "z") for value in row)

    dead = red()
    assert dead > 64 and f"{dead} of 128 units dead" in page.get_attribute("[data-chart=lab-cells]", "aria-label")
    page.focus("#frame")
    page.keyboard.press("Home")
    assert step(page) == 0 and page.get_attribute("#frame", "aria-valuetext") == "step 0 of 60" and red() < 10
    place = "() => document.querySelector('[data-chart=lab-loss] .cursor').getBoundingClientRect().left"
    at_start = page.evaluate(place)
    page.focus("#play")
    page.keyboard.press("Enter")
    page.wait_for_function("() => parseInt(document.getElementById('moment').textContent.slice(5)) > 3")
    page.keyboard.press("Enter")  # the same button pauses
    stopped = step(page)
    assert 3 < stopped < 60 and page.evaluate(place) > at_start + 5
    page.focus("#frame")
    page.keyboard.press("ArrowRight")
    assert step(page) == stopped + 1
    assert opened.problems == []


def test_a_slider_of_powers_of_ten_shows_and_tells_the_number(enter: Any) -> None:
    page = enter("activation-flow?steps=10&targets=2").page
    shown = page.locator("output[for=c-targets]")
    assert shown.get_attribute("aria-live") == "off"  # #spoken tells what came of it
    for key, number in (("Shift", "100"), ("End", "1000"), ("Home", "1"), ("ArrowRight", "3.16")):
        page.focus("#c-targets")
        page.keyboard.press(key)
        assert shown.inner_text() == number == page.get_attribute("#c-targets", "aria-valuetext")
    assert page.get_attribute("#c-rate", "aria-valuetext") == "0.01"


def test_who_wants_no_motion_gets_the_slider_only(enter: Any) -> None:
    page = enter("activation-flow", reduced_motion="reduce").page
    assert page.is_visible("#frame") and not page.is_visible("#play")


@pytest.mark.parametrize("name", STATIONS)
def test_a_phone_shows_a_station_without_overflow_and_keys_reach_all_of_it(enter: Any, name: str) -> None:
    opened = enter(name)
    page = opened.page
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function(
        "() => [...document.querySelectorAll('.chart')].every((c) => c.scrollWidth <= c.clientWidth + 1)",
        timeout=10_000,
    )
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    wanted = page.evaluate(
        "() => [...document.querySelectorAll('#station button, #station input, #station select')]"
        ".filter((e) => e.checkVisibility({ visibilityProperty: true })).map((e, i) => (e.dataset.key = String(i)))"
    )
    page.focus(".preset")
    reached = {page.evaluate("document.activeElement.dataset.key")}
    for _ in range(len(wanted) + 5):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.dataset.key"))
    assert set(wanted) <= reached
    assert opened.problems == []
