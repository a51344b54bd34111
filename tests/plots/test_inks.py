"""Inks of charts: read on light and dark paper by everybody, and the same in Python and on the pages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from building import RunBuilder
from torchdoctor import plots, signals
from torchdoctor.findings import Finding, Fix, Place, Severity
from torchdoctor.plots.chart import MARKED, SIGNS
from torchdoctor.plots.heat import STRIPES
from torchdoctor.plots.palette import (
    BAND,
    BEHIND,
    CASING,
    CORE,
    CYCLE,
    DASHES,
    GREEN,
    LINES,
    PAPER,
    TEXTS,
    THEMES,
    WORDED,
    ink,
    inked,
)
from torchdoctor.plots.svg import CIVIDIS

PAGE = files("torchdoctor.report") / "page"
GRAPHICS, LETTERS = 3.0, 4.5
"""WCAG 2.2, 1.4.11 and 1.4.3."""


def rgb(colour: str, paper: str) -> list[float]:
    """From 0 to 1, as it looks on that paper."""
    if colour.startswith("rgba"):
        *parts, strength = [float(part) for part in re.findall(r"[\d.]+", colour)]
        below = rgb(paper, paper)
        return [strength * part / 255 + (1 - strength) * under for part, under in zip(parts, below, strict=True)]
    return [int(colour.lstrip("#")[i : i + 2], 16) / 255 for i in (0, 2, 4)]


def contrast(colour: str, paper: str) -> float:
    def light(parts: list[float]) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted([light(rgb(colour, paper)), light(rgb(paper, paper))])
    return (high + 0.05) / (low + 0.05)


def on(colour: str, paper: str) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb(colour, paper))


def drawn(theme: str) -> list[dict[str, Any]]:
    """Charts of a run with findings, as they are drawn."""
    steps, names = np.arange(80), [f"{i}.weight" for i in range(9)]
    run = RunBuilder(80).parameters(dict.fromkeys(names, (4, 4))).scalar(signals.LOSS_TRAIN, np.geomspace(2, 1, 80))
    for signal in (signals.GRADIENT_L2, signals.UPDATE_RATIO, signals.WEIGHT_L2):
        run.matrix(signal, {name: np.where(steps < 40, 10.0**-i, 0.0) for i, name in enumerate(names)})
    run.matrix(signals.ACTIVATION["dead"], {"a": 0.5}).matrix(signals.ACTIVATION["std"], {"a": 1.0})
    found = [
        Finding(f"f-{s.value}", "X1", "data", s, 1.0, "t", "s", Fix("f"), where=(Place("1", "1.weight"),), first_step=9)
        for s in (Severity.ERROR, Severity.WARNING)
    ]
    return [chart.to_dict(theme) for chart in plots.charts(run.build(), found)]


def colours(part: Any, key: str = "", is_text: bool = False) -> Iterator[tuple[str, str, bool]]:
    if isinstance(part, dict):
        for name, value in part.items():
            yield from colours(value, name, is_text or name in WORDED)
    elif isinstance(part, list | tuple):
        for value in part:
            yield from colours(value, key, is_text)
    elif isinstance(part, str) and key == "color":
        yield key, part, is_text


@pytest.mark.parametrize("theme", THEMES)
def test_every_ink_stands_out_from_its_paper(theme: str) -> None:
    paper = PAPER[theme]
    for name in (*CYCLE, "#7F7F7F"):
        assert contrast(ink(name, theme), paper) >= GRAPHICS, name
    grounds = [paper, on(ink(BEHIND, theme), paper), on(ink(BAND, theme), paper)]
    for name in TEXTS:
        assert min(contrast(ink(name, theme, TEXTS), ground) for ground in grounds) >= LETTERS, name


@pytest.mark.parametrize("theme", THEMES)
def test_what_is_drawn_can_be_read(theme: str) -> None:
    found = [
        (colour, is_text)
        for chart in drawn(theme)
        for part in ("data", "layout")
        for _, colour, is_text in colours(chart[part])
        if colour not in (CASING, CORE)
    ]
    assert len(found) > 40
    for colour, is_text in found:
        assert contrast(colour, PAPER[theme]) >= (LETTERS if is_text else GRAPHICS), colour


def test_texts_over_a_heat_map_have_paper_behind_them() -> None:
    for chart in drawn("dark"):
        if chart["data"][0]["type"] == "heatmap":
            over = [note for note in chart["layout"]["annotations"] if note.get("yanchor") != "bottom"]
            assert over and all(note["bgcolor"] == "rgba(13, 17, 23, 0.85)" for note in over)


@pytest.mark.parametrize("shade", [f"#{colour}" for colour in CIVIDIS] + list(STRIPES) + list(PAPER.values()))
def test_a_mark_stands_out_wherever_it_runs(shade: str) -> None:
    assert max(contrast(CASING, shade), contrast(CORE, shade)) >= GRAPHICS


def test_inks_lead_back_and_forth() -> None:
    """A page paints in place: whatever ink a colour has, it must be known which colour it is."""
    for table in (LINES, TEXTS):
        kinds = [{name, *inks} for name, inks in table.items() if name != "#FDFDFD"]
        assert sum(map(len, kinds)) == len(set.union(*kinds))
    assert not {colour.upper() for colour in (*STRIPES, CASING, CORE)} & {
        c for name, inks in LINES.items() for c in (name, *inks)
    }


def test_lines_are_told_apart_without_colours() -> None:
    assert len(set(DASHES)) == len(CYCLE) and len(set(SIGNS.values())) == 3


def test_the_pages_have_the_same_inks() -> None:
    script, style = ((PAGE / name).read_text("utf-8") for name in ("charts.js", "page.css"))
    table = json.loads(re.search(r"const INKS = (\{.*?\n  \});", script, re.DOTALL)[1])  # type: ignore[index]
    assert table == {
        kind: [[name, *inks] for name, inks in own.items()] for kind, own in (("lines", LINES), ("texts", TEXTS))
    }
    for word, colour in (*((s.value, MARKED[s]) for s in Severity), ("healthy", GREEN)):
        assert [each.upper() for each in re.findall(rf"--{word}: (#\w+)", style)] == list(TEXTS[colour])


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_page_paints_as_python_does_and_back_again() -> None:
    trace = {"type": "scatter", "line": {"color": "#E69F00"}, "fillcolor": "rgba(0, 114, 178, 0.3)", "y": [1, 2]}
    trace["textfont"] = {"color": "#D55E00"}
    layout = {"annotations": [{"text": "#1", "font": {"color": "#009E73"}, "bgcolor": BEHIND}]}
    chart = {"title": "t", "data": [trace, {"marker": {"color": ["#0072B2", "#ffffff"]}}], "layout": layout}
    program = f"""
      const window = {{ matchMedia: () => theme, addEventListener() {{}} }}, theme = {{ matches: false }};
      {(PAGE / "charts.js").read_text("utf-8")}
      const chart = {json.dumps(chart)};
      console.log(JSON.stringify([true, false, true].map((dark) => {{
        theme.matches = dark;
        const layout = charting.dressed(chart, 700);
        return [JSON.parse(JSON.stringify(chart.data)), {{ annotations: layout.annotations }}];
      }})))"""
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    for theme, painted in zip(("dark", "light", "dark"), json.loads(done.stdout), strict=True):
        assert painted == [inked(chart["data"], theme), inked(layout, theme)]
