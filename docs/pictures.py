"""The README's pictures: records two trainings of the zoo, and photographs their report, a run's page and the lab.

.venv/bin/python docs/pictures.py
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "torchdoctor"]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
RUNS = {"missing-zero-grad": "missing-zero-grad/accumulation", "overfitting": "overfitting/mlp"}
"""Names of runs, and the cases of the zoo that make them."""
LAB = "/lab/gradient-health?activation=sigmoid&init=default&depth=10&width=64&norm=none&residual=0&steps=50&seed=0"
WIDTH = 1100


def main() -> None:
    from torchdoctor.zoo import find

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, case in RUNS.items():
            found = find(case)
            assert found is not None, case
            script = folder / f"train_{found.kind}.py"
            shutil.copy(found.path, script)
            _torchdoctor(folder, "run", "--quiet", "--name", name, script.name)
        _torchdoctor(folder, "report", "missing-zero-grad", "-o", "report.html")
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            page = browser.new_page(viewport={"width": WIDTH, "height": 1180})
            page.goto((folder / "report.html").as_uri())
            _shoot(page, "report", 1180)
            with _served(folder) as address:
                page.goto(address("/"))
                page.wait_for_url("**/")
                page.goto(address("/run/overfitting"))
                page.wait_for_selector("#verdict.warning")
                _shoot(page, "run", 1080)
                page.goto(address(LAB))
                page.wait_for_selector("#station[aria-busy=false]")
                _shoot(page, "lab", 1000)
            browser.close()


def _torchdoctor(folder: Path, *words: str) -> None:
    subprocess.run([*COMMAND, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _served(folder: Path) -> Iterator[Any]:
    words = [*COMMAND, "ui", "--no-browser"]
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        match = next(m for line in process.stderr if (m := re.search(r"(http://[^/]+)/.*token=(\S+)", line)))
        yield lambda path: f"{match[1]}{path}{'&' if '?' in path else '?'}token={match[2]}"
    finally:
        process.terminate()
        process.wait()


def _shoot(page: Page, name: str, height: int) -> None:
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.wait_for_selector(".chart .main-svg")
    page.wait_for_timeout(1500)  # until the last of the visible charts is drawn
    page.screenshot(path=HERE / f"{name}.png")


if __name__ == "__main__":
    main()
