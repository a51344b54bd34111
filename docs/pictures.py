"""The README's pictures: records trainings, and photographs a report, a run's page, the lab and the live view.

.venv/bin/python docs/pictures.py
"""

from __future__ import annotations

import html
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
COLUMNS, ROWS = 118, 36
DEEP = """
import time
import torch
from sklearn.datasets import load_digits
from torch import nn

torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data, dtype=torch.float32) / 16, torch.tensor(digits.target)
sizes = [64] * 9
layers = [part for i, o in zip(sizes, sizes[1:]) for part in (nn.Linear(i, o), nn.Sigmoid())]
model = nn.Sequential(*layers, nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for epoch in range(100):
    for rows in torch.randperm(len(x)).split(64):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        time.sleep(0.01)
    print(f"epoch {epoch:2d}  loss {loss.item():.4f}")
"""
"""A training whose gradients vanish, slow enough to be watched."""
FONT = "font: 15px/1.25 'DejaVu Sans Mono', monospace"
TERMINAL = f"body {{ margin: 0 }} pre {{ margin: 0; padding: 16px; background: #0d1117; color: #e6edf3; {FONT} }}"
TERMINAL += " span { display: inline-block; width: 1ch }"
INKS = {"default": "inherit", "brown": "#d29922", "red": "#ff7b72", "green": "#3fb950", "cyan": "#39c5cf"}


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
            page.set_content(f"<style>{TERMINAL}</style><pre>{_live_view(folder)}</pre>")
            page.locator("pre").screenshot(path=HERE / "terminal.png")
            browser.close()


def _live_view(folder: Path) -> str:
    """What a person sees in a terminal some seconds after `torchdoctor run --live`, as markup."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    from terminals import terminal

    (folder / "train.py").write_text(DEEP)
    words = ("run", "--live", "--name", "deep", "train.py")
    with terminal(*words, width=COLUMNS, height=ROWS, cwd=folder, owned=True) as shown:
        shown.until_shown(lambda rows: any("vanishing-gradients" in row for row in rows[-6:]), 120)
        shown.press(b"\x03")
        screen = [[shown.screen.buffer[y][x] for x in range(COLUMNS)] for y in range(ROWS)]
    return "\n".join("".join(map(_letter, row)) for row in screen)


def _letter(cell: Any) -> str:
    colour = INKS.get(cell.fg, f"#{cell.fg}")
    style = f"color:{colour};font-weight:{600 if cell.bold else 400}"
    return f'<span style="{style}">{html.escape(cell.data)}</span>'


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
