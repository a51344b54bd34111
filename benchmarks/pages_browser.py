"""What a person sees and does in a browser, timed: a page opened, a curve hovered, zoomed, and followed.

All times are the page's own: from the navigation, or from the trusted input, to the frame after the one in which the
result stands in the document.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
PROBE = Path(__file__).with_name("pages_probe.js").read_text()
PATIENCE = 60_000
SEEN = """[...document.querySelectorAll(".chart")].filter((place) => {
  const box = place.getBoundingClientRect();
  return box.height && box.bottom > 0 && box.top < innerHeight && !(place.closest("figure") ?? place).hidden; })"""
SIZE = {"width": 1280, "height": 900}

OURS = """
probe.when("first useful paint", () => document.querySelector("#verdict .figures dd")
  && document.querySelector("#first svg polyline, #first svg path"));
probe.when("verdict", () => { const badge = document.querySelector("#verdict .badge");
  return badge && badge.textContent !== "being examined"; });
probe.when("loss chart interactive", () => document.querySelector("#first .chart .cursor"));
"""
THEIRS = """
probe.card = (name) => [...document.querySelectorAll("card-view")].find((card) => card.textContent.includes(name));
probe.ticks = (card, axis) => [...card.querySelectorAll(`line-chart-axis[axis=${axis}] text`)]
  .map((text) => text.textContent);
probe.when("loss chart interactive", () => probe.ticks(probe.card("Loss/train"), "y").some((t) => Number(t) > 2));
"""
"""TensorBoard's curves are drawn by a worker on a canvas: the axis that has the curve's range counts as drawn."""
REPORT = """
probe.when("first useful paint", () => document.querySelector(".verdict .figures dd"));
probe.when("first chart drawn", () => document.querySelector(".chart .scatterlayer path, .chart .heatmaplayer image"));
"""
LISTED = 'probe.when("all rows", () => document.querySelectorAll("#rows tr").length >= ROWS);'


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is not installed; make setup-test installs it where it may")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


@dataclass
class Visit:
    """A page in a browser that has seen nothing before."""

    page: Any
    watched: str = ""
    traffic: list[float] = field(default_factory=list)

    def mark(self, name: str) -> float:
        """Milliseconds from the navigation to what was watched for."""
        watch = """name => new Promise(done => { const look = () => name in probe.marks
            ? done(probe.marks[name]) : setTimeout(look, 10); look(); })"""
        return float(self.page.evaluate(watch, name))

    @property
    def bytes(self) -> float:
        return sum(self.traffic)

    def act(self, types: list[str], tests: dict[str, str], do: Any) -> dict[str, Any]:
        """Do something, and tell how long each test took to hold, the longest frame, and input to next paint."""
        body = ", ".join(f"{name!r}: {test}" for name, test in tests.items())
        self.page.evaluate(f"probe.arm({types!r}, {{{body}}})")
        do()
        return dict(self.page.evaluate("probe.told()"))

    def scroll(self, pixels: int) -> float:
        """The longest frame, in milliseconds, until charts that came into view are drawn."""
        done = {"done": f"() => {SEEN}.every((place) => place.querySelector('.main-svg'))"}
        return float(self.act(["wheel"], done, lambda: self.page.mouse.wheel(0, pixels))["frame"])

    def box(self, selector: str) -> dict[str, float]:
        return dict(self.page.locator(selector).first.bounding_box())


@contextlib.contextmanager
def visit(browser: Any, url: str, watched: str, enter: str = "", size: dict[str, int] = SIZE) -> Iterator[Visit]:
    """Opens a page with an empty cache; `enter` is opened before, for its cookie alone."""
    context = browser.new_context(viewport=size)
    try:
        if enter:
            entered = context.request.get(enter)
            assert entered.ok, entered.status
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.add_init_script(PROBE + watched)
        found = Visit(page, watched)
        session = context.new_cdp_session(page)
        session.on("Network.loadingFinished", lambda event: found.traffic.append(event["encodedDataLength"]))
        session.send("Network.enable")
        page.goto(url, wait_until="commit")
        yield found
    finally:
        context.close()


RANGE = 'document.querySelector("#first .chart")._fullLayout.xaxis.range'
ZOOMED = f"() => {RANGE}[1] - {RANGE}[0] < 80000"
WHOLE = f"() => {RANGE}[1] - {RANGE}[0] > 90000"
OVER_STEPS = f"""{SEEN}.filter((p) => p._fullLayout?.xaxis?.title?.text === "step")
  .map((p) => p._fullLayout.xaxis.range[1] - p._fullLayout.xaxis.range[0])"""


def use_ours(seen: Visit, layer: str) -> dict[str, dict[str, Any]]:
    """Each interaction with the run's page; the loss chart is drawn already."""
    page = seen.page
    seen.mark("verdict")
    page.wait_for_timeout(1500)
    box = seen.box("#first .chart .nsewdrag")
    across, down = (lambda share: box["x"] + share * box["width"]), box["y"] + 0.5 * box["height"]
    found: dict[str, dict[str, Any]] = {}
    page.mouse.move(across(0.2), down)
    page.wait_for_timeout(300)
    hovers = []
    for share in (0.3, 0.45, 0.6, 0.75, 0.9):
        before = page.evaluate('document.querySelector("#first .cursor").style.transform')
        moved = f'() => document.querySelector("#first .cursor").style.transform !== {before!r}'
        hovers.append(seen.act(["mousemove"], {"done": moved}, lambda to=share: page.mouse.move(across(to), down)))
        page.wait_for_timeout(100)
    found["hover"] = sorted(hovers, key=lambda times: times["done"])[len(hovers) // 2]

    def drag() -> None:
        page.mouse.move(across(0.3), down)
        page.mouse.down()
        page.mouse.move(across(0.45), down + 2)
        page.mouse.move(across(0.6), down + 2)
        page.mouse.up()

    zoomed = {"done": ZOOMED, "all": f"() => {OVER_STEPS}.every((width) => width < 80000)"}
    whole = {"done": WHOLE, "all": f"() => {OVER_STEPS}.every((width) => width > 90000)"}
    found["drag zoom"] = seen.act(["mouseup"], zoomed, drag)
    page.wait_for_timeout(1200)
    found["reset"] = seen.act(["mouseup"], whole, lambda: page.mouse.dblclick(across(0.5), down))
    page.wait_for_timeout(1200)
    page.focus("#first .chart")
    found["key zoom"] = seen.act(["keydown"], zoomed, lambda: page.keyboard.press("+"))
    page.wait_for_timeout(1200)
    seen.act(["keydown"], whole, lambda: page.keyboard.press("0"))
    page.wait_for_timeout(1200)
    fresh = {"done": f"() => scrollY > 500 && {SEEN}.every((p) => p.querySelector('.main-svg'))"}
    page.mouse.move(640, 450)
    found["scroll to new charts"] = seen.act(["wheel"], fresh, lambda: page.mouse.wheel(0, 900))
    page.wait_for_timeout(1200)
    button = page.locator(f'.layer[data-layer="{layer}"]')
    page.evaluate(
        """name => { const button = document.querySelector(`.layer[data-layer="${name}"]`);
        for (let e = button; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true;
        button.scrollIntoView({ block: "center" }); }""",
        layer,
    )
    page.wait_for_timeout(1500)
    drawn = {"done": '() => document.querySelector("#layer .main-svg")'}
    found["open a layer"] = seen.act(["click"], drawn, button.click)
    return found


def zoom_tall(seen: Visit) -> list[dict[str, Any]]:
    """Zooms by the keyboard where all charts are on the screen at once."""
    page = seen.page
    seen.mark("verdict")
    page.wait_for_timeout(4000)
    page.focus("#first .chart")
    found = []
    for _ in range(3):
        zoomed = {"done": ZOOMED, "all": f"() => {OVER_STEPS}.every((width) => width < 80000)"}
        found.append(seen.act(["keydown"], zoomed, lambda: page.keyboard.press("+")))
        page.wait_for_timeout(1500)
        seen.act(["keydown"], {"done": WHOLE}, lambda: page.keyboard.press("0"))
        page.wait_for_timeout(1500)
    return found


CARD = 'probe.card("Loss/train")'
STEPS_SHOWN = f'probe.ticks({CARD}, "x").join()'


def use_theirs(seen: Visit, layer: str) -> dict[str, dict[str, Any]]:
    """The same with TensorBoard, as far as it has them; a layer is found by its filter."""
    page = seen.page
    page.wait_for_timeout(1500)
    chart = "card-view:has-text('Loss/train') line-chart .series-view"
    box = seen.box(chart)
    across, down = (lambda share: box["x"] + share * box["width"]), box["y"] + 0.5 * box["height"]
    found: dict[str, dict[str, Any]] = {}
    page.mouse.move(across(0.2), down)
    page.wait_for_timeout(300)
    tooltip = 'document.querySelector(".cdk-overlay-container")?.textContent ?? ""'
    hovers = []
    for share in (0.3, 0.45, 0.6, 0.75, 0.9):
        before = page.evaluate(f"() => {tooltip}")
        moved = f"() => ({tooltip}) !== {before!r}"
        hovers.append(seen.act(["mousemove"], {"done": moved}, lambda to=share: page.mouse.move(across(to), down)))
        page.wait_for_timeout(100)
    found["hover"] = sorted(hovers, key=lambda times: times["done"])[len(hovers) // 2]
    before = page.evaluate(STEPS_SHOWN)

    def drag() -> None:
        page.mouse.move(across(0.3), down)
        page.mouse.down()
        page.mouse.move(across(0.45), down + 40)
        page.mouse.move(across(0.6), down + 60)
        page.mouse.up()

    found["drag zoom"] = seen.act(["mouseup"], {"done": f"() => {STEPS_SHOWN} !== {before!r}"}, drag)
    page.wait_for_timeout(1200)
    back = {"done": f"() => {STEPS_SHOWN} === {before!r}"}
    found["reset"] = seen.act(["mouseup"], back, lambda: page.mouse.dblclick(across(0.5), down))
    page.wait_for_timeout(1200)
    inside = """[...document.querySelectorAll("card-view")].filter((card) => {
      const box = card.getBoundingClientRect(); return box.height && box.bottom > 0 && box.top < innerHeight; })"""
    at_gradients = f"{inside}.some((card) => card.textContent.includes('gradient'))"
    fresh = {"done": f"() => {at_gradients} && {inside}.every((card) => probe.ticks(card, 'y').length)"}
    found["scroll to new charts"] = seen.act(["wheel"], fresh, lambda: page.mouse.wheel(0, 900))
    page.wait_for_timeout(1200)
    field = page.locator("input[placeholder*='Filter tags']")
    field.click()
    page.wait_for_timeout(300)
    drawn = {"done": f"() => probe.ticks(probe.card('gradient/{layer}'), 'y').length"}
    found["open a layer"] = seen.act(["input"], drawn, lambda: page.keyboard.insert_text(layer))
    return found
