"""Captures, replays and the checklist in a real browser: drawn, copied with the keyboard, and no name is markup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from browser.test_report import PAYLOADS
from browser.test_ui import Served, serving
from capturing import STEP, capture_pictures
from recording import record
from torchdoctor import signals
from torchdoctor.facts import BirthFact
from torchdoctor.store.checked import Checked, Made, keep_check
from torchdoctor.store.replays import Replayed, keep_replay
from torchdoctor.store.writer import Recorder

ALL = " ".join(PAYLOADS)
BIRTH = BirthFact(ALL, False, "nan", code=ALL, chain=[ALL, "loss"], samples=[25], file=ALL, line=3, module=ALL)
REPLAY = Replayed(1.8e9, STEP, ALL, [ALL], change=ALL, birth=BIRTH, diagnosis=ALL, diagnosis_title=ALL, differs=[ALL])


def open_run_page(open_page: Any, served: Served, name: str = "sick", **options: Any) -> Any:
    opened = open_page(served.url, **options)
    opened.page.wait_for_selector("#tools")
    opened.page.goto(f"{served.base}/run/{name}")
    return opened


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("ui") / "runs"
    run = record(folder / "sick", cleared=0.0, cwd="/x", facts=(BIRTH,))
    capture_pictures(run, reason=ALL, left_out={ALL: ALL}, optimizers=[{"type": ALL}])
    keep_replay(run, REPLAY)
    checks = [Made(ALL, part, ALL, ALL, passed, "error", ALL) for part, passed in (("model", False), ("data", True))]
    keep_check(folder, Checked(1.0, "/x/train.py", "", [ALL], checks=checks, faults=[ALL], problem=ALL))
    with serving(folder) as found:
        yield found


def test_captures_are_drawn_copied_and_harmless(open_page: Any, served: Served) -> None:
    permissions = ["clipboard-read", "clipboard-write"]
    opened = open_run_page(open_page, served, color_scheme="dark", permissions=permissions)
    page = opened.page
    page.wait_for_selector("[data-part=checklist] .item")
    page.locator("#captures").scroll_into_view_if_needed()
    page.wait_for_selector("#captures .capture .chart .main-svg image", state="attached")
    assert "sample 25" in page.locator("#captures .capture .chart").get_attribute("aria-label")
    button = page.locator("#captures .copy").first
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#captures .copy:has-text('Copied')")
    command = page.evaluate("navigator.clipboard.readText()")
    assert command.startswith("torchdoctor replay ") and command.endswith(f"/sick --step {STEP}")
    before = page.locator(".replay").count()
    keep_replay(served.folder / "sick", REPLAY)
    page.evaluate("window.dispatchEvent(new Event('focus'))")
    page.wait_for_selector(f".replay >> nth={before}")
    page.locator("[data-kept=preflight]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-kept=preflight] .item")
    page.wait_for_timeout(200)
    assert opened.problems == []
    assert [u for u in opened.requests if not u.startswith((served.base, "data:", "blob:"))] == []
    assert page.locator("img[src=x], svg[onload], main script:not([type='application/json'])").count() == 0


def test_a_phone_shows_pictures_that_can_be_seen(open_page: Any, served: Served) -> None:
    page = open_run_page(open_page, served).page
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_selector("[data-part=checklist] .item")
    page.locator("#captures").scroll_into_view_if_needed()
    page.wait_for_selector("#captures .capture .chart .main-svg image", state="attached")
    image = page.locator("#captures .main-svg image").first.bounding_box()
    assert image["width"] >= 50
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_checklist_is_filtered_with_the_keyboard(open_page: Any, served: Served) -> None:
    page = open_run_page(open_page, served).page
    page.wait_for_selector("[data-part=checklist] .item")
    every = page.locator("[data-part=checklist] .item:visible").count()
    page.locator(".filter input").first.focus()
    page.keyboard.press("ArrowDown")
    found = page.locator("[data-part=checklist] .item:visible")
    assert every > 80 and found.count() == 1 and "missing-zero-grad" in found.inner_text()
    assert page.locator("[data-part=checklist] .family:visible").count() == 1
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_capture_that_comes_while_it_trains_appears(open_page: Any, served: Served) -> None:
    recorder = Recorder.create(served.folder / "live", {"argv": ["train.py"]}, flush_seconds=0.1)
    recorder.scalar(signals.LOSS_TRAIN.name, 0, 1.0)
    page = open_run_page(open_page, served, "live").page
    page.wait_for_selector("#status.live")
    assert page.locator("#captures").is_hidden()
    capture_pictures(served.folder / "live")
    for step in range(1, 40):
        recorder.scalar(signals.LOSS_TRAIN.name, step, 1.0)
        if page.locator("#captures .capture").count():
            break
        page.wait_for_timeout(300)
    recorder.close()
    assert page.locator("#captures .capture").is_visible()
