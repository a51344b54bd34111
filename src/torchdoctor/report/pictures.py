"""Charts as PNG files, by a browser that is on the computer: no other program draws them as the page does."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torchdoctor.errors import UsageError

if TYPE_CHECKING:
    from torchdoctor.plots.chart import Chart

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
SIZE = (900, 420)
SECONDS = 60
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
)


def find_browser() -> str | None:
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


def write_pictures(charts: Sequence[Chart], folder: Path) -> dict[str, Path]:
    """One file a chart, by its name. UsageError where there is no browser."""
    browser = find_browser()
    if browser is None:
        raise UsageError(f"pictures need a browser, and none of {', '.join(BROWSERS[:3])} is on the path")
    from plotly.offline import get_plotlyjs

    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    with tempfile.TemporaryDirectory(prefix="torchdoctor-") as scratch:
        script = Path(scratch) / "plotly.js"
        script.write_text(get_plotlyjs(), encoding="utf-8")
        for chart in charts:
            target = (folder / f"{chart.name}.png").resolve()
            _shoot(browser, Path(scratch), chart, target)
            written[chart.name] = target
    return written


def _shoot(browser: str, scratch: Path, chart: Chart, target: Path) -> None:
    width, height = SIZE
    plain = chart.to_json()
    layout = chart.to_dict()["layout"] | {"width": width, "height": height}
    drawn = json.dumps([plain["data"], layout], default=str).replace("<", "\\u003c")
    page = scratch / f"{chart.name}.html"
    page.write_text(
        '<!doctype html><meta charset="utf-8"><body style="margin:0"><div id="c"></div>'
        '<script src="plotly.js"></script>'
        f"<script>Plotly.newPlot('c', ...{drawn}, {{staticPlot: true}})</script>",
        encoding="utf-8",
    )
    words = [f"--screenshot={target}", f"--window-size={width},{height}", f"--user-data-dir={scratch / 'profile'}"]
    done = subprocess.run([browser, *FLAGS, *words, page.as_uri()], capture_output=True, timeout=SECONDS)
    if done.returncode or not target.exists():
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"{Path(browser).name} drew no picture: {said[-1] if said else done.returncode}")
