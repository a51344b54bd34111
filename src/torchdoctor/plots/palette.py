"""Colours that stay apart for colour-blind readers (Okabe and Ito, "Color Universal Design", 2008).

Charts name these; what is drawn is their ink in the reader's theme, which stands out from its paper: lines and areas
by 3 to 1, texts by 4.5 to 1 (WCAG 2.2, 1.4.11 and 1.4.3). The pages' charts.js has the same table.
"""

from __future__ import annotations

import re
from typing import Any

BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
RED = "#D55E00"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
GREY = "#7F7F7F"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
"""With the colours of CYCLE: lines that can be told apart without them."""
BAND = "rgba(0, 158, 115, 0.13)"
"""Behind the curves, where healthy values lie."""
HEAT = "Cividis"
"""Even in lightness, and read the same by colour-blind eyes."""
CASING, CORE = "#000000", "#FEFEFE"
"""Of a line over a heat map: dark around bright, so that one of them stands out wherever it runs. In no theme's ink."""
PAPER = {"light": "#FFFFFF", "dark": "#0D1117"}
BEHIND = "rgba(253, 253, 253, 0.85)"
"""Behind texts that lie over curves; the paper's colour once it is inked."""
THEMES = ("light", "dark")
FAINT = re.compile(r"rgba\((\d+), ?(\d+), ?(\d+), ?([\d.]+)\)")
LINES = {
    BLUE: (BLUE, "#3D94D1"),
    ORANGE: ("#BF8300", ORANGE),
    GREEN: (GREEN, "#1DB386"),
    RED: (RED, "#E8762B"),
    PURPLE: ("#C0689A", PURPLE),
    SKY: ("#2F8FC8", "#8CCBF2"),
    GREY: ("#767676", "#8C8C8C"),
    "#FDFDFD": (PAPER["light"], PAPER["dark"]),
}
"""By the colour's name, its ink on light and on dark paper."""
TEXTS = {
    BLUE: ("#0067A1", "#79B8EB"),
    ORANGE: ("#8A5D00", "#F0B93A"),
    GREEN: ("#00704F", "#3FD0A4"),
    RED: ("#B3430A", "#FF9D6B"),
    PURPLE: ("#98487A", "#E3A6C8"),
    SKY: ("#0A6AA1", "#6CC1F5"),
    GREY: ("#59636E", "#9198A1"),
}
"""The same of letters; those of severities are the pages' own (page.css)."""
WORDED = frozenset({"font", "textfont", "tickfont", "insidetextfont", "outsidetextfont"})
"""What holds a text's colour."""


def inked(value: Any, theme: str, table: dict[str, tuple[str, str]] = LINES) -> Any:
    """A part of a chart with the theme's inks in place of the palette's names; arrays are left as they are."""
    if isinstance(value, str):
        return ink(value, theme, table)
    if isinstance(value, dict):
        return {key: inked(part, theme, TEXTS if key in WORDED else table) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [inked(part, theme, table) for part in value]
    return value


def ink(colour: str, theme: str, table: dict[str, tuple[str, str]] = LINES) -> str:
    """Of one colour, faint or not; what is no colour of the palette stays."""
    seen = FAINT.fullmatch(colour)
    name = "#{:02X}{:02X}{:02X}".format(*map(int, seen.groups()[:3])) if seen else colour.upper()
    if name not in table:
        return colour
    found = table[name][THEMES.index(theme)]
    return faint(found, float(seen[4])) if seen else found


def faint(colour: str, strength: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {strength:g})"
