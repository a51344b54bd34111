"""Strings as a terminal may show them: what comes from a run is cleaned, numbers are short, traces are drawn small."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise

from torchdoctor.scrubbing import scrub_text

BLOCKS = "▁▂▃▄▅▆▇█"
BLOCKS_ASCII = "_.-=+*%#"
SPARK_WIDTH = 32
LOG_SPREAD = 1e3
"""A trace of positive values that spans more than this is drawn on a log scale."""
CUT = "..."

_ASCII = {
    **dict.fromkeys((0x2010, 0x2012, 0x2013, 0x2014, 0x2212, 0x00B7), "-"),
    **dict.fromkeys((0x2018, 0x2019), "'"),
    **dict.fromkeys((0x201C, 0x201D), '"'),
    **dict.fromkeys((0x00B5, 0x03BC), "u"),
    0x2190: "<-",
    0x2192: "->",
    0x00D7: "x",
    0x2026: "...",
    0x2264: "<=",
    0x2265: ">=",
    0x2248: "~",
    0x00B1: "+-",
}
"""What plain ASCII shows for dashes, quotes, arrows and signs, by code point."""


def clean(text: object, ascii_only: bool = False) -> str:
    """One line without control or formatting characters: nothing in it can move the cursor or reverse the text."""
    return clean_block(" ".join(str(text).split()), ascii_only)


def clean_block(text: object, ascii_only: bool = False) -> str:
    """The same for several lines (code): line ends and indentation stay. Secrets that an older run holds go, too."""
    lines = scrub_text(str(text)).expandtabs(4).splitlines()
    kept = ["".join(c for c in line if unicodedata.category(c)[0] != "C" and c not in "\u2028\u2029") for line in lines]
    joined = "\n".join(line.rstrip() for line in kept)
    if not ascii_only:
        return joined
    return joined.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def cut_middle(text: str, most: int) -> str:
    """At most so many letters: of a command line the beginning and the end tell more than what is between."""
    if len(text) <= most:
        return text
    tail = (most - len(CUT)) // 2
    return text[: most - len(CUT) - tail] + CUT + text[len(text) - tail :]


def number(value: float | None) -> str:
    """Short and readable: 0.0312, 1,438, 3.1e-09, NaN."""
    if value is None:
        return "unknown"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if abs(value) < 1e7 and (value == int(value) or abs(value) >= 1000):
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.2e}"


def count(amount: int, noun: str, plural: str | None = None) -> str:
    """1 model, 2 models, 1,438 samples."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"


def share(value: float) -> str:
    """As a percentage: 2.1 %, 0.04 %, 98 %."""
    percent = 100 * value
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def size(amount: float) -> str:
    """Bytes in the unit that reads best."""
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def listed(names: Iterable[str], most: int = 3) -> str:
    """a, b and c; or: a, b, c and 12 others."""
    items = list(names)
    if len(items) > most + 1:
        return f"{', '.join(items[:most])} and {len(items) - most} others"
    return " and ".join(part for part in (", ".join(items[:-1]), *items[-1:]) if part)


def spark(values: Sequence[float], ascii_only: bool = False, width: int = SPARK_WIDTH) -> str:
    """The trace as a row of blocks, at most `width` long; x stands where a value is NaN or infinite."""
    levels = BLOCKS_ASCII if ascii_only else BLOCKS
    shown = _thin([float(v) for v in values], width)
    finite = [v for v in shown if math.isfinite(v)]
    if not finite:
        return "x" * len(shown)
    if on_log_scale(values):
        shown = [math.log(v) if math.isfinite(v) else v for v in shown]
        finite = [v for v in shown if math.isfinite(v)]
    low, high = min(finite), max(finite)
    span = high / 2 - low / 2
    return "".join(
        "x"
        if not math.isfinite(v)
        else levels[int((v / 2 - low / 2) / span * (len(levels) - 1) + 0.5) if span > 0 else len(levels) // 2]
        for v in shown
    )


def on_log_scale(values: Sequence[float]) -> bool:
    finite = [float(v) for v in values if math.isfinite(v)]
    return bool(finite) and min(finite) > 0 and max(finite) / min(finite) > LOG_SPREAD


def _thin(values: list[float], width: int) -> list[float]:
    """At most `width` values: of each stretch the first that is not finite, else the one farthest from the middle."""
    if len(values) <= width:
        return values
    finite = [v for v in values if math.isfinite(v)]
    middle = sum(finite) / len(finite) if finite else 0.0
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    return [
        next((v for v in part if not math.isfinite(v)), max(part, key=lambda v: abs(v - middle)))
        for part in (values[a:b] for a, b in pairwise(edges))
    ]
