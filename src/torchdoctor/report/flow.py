"""Gradient flow in the terminal: a row a layer, its norm as a bar on a log scale, its update and the healthy band."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torchdoctor.console import Text, cell_len, set_cell_size
from torchdoctor.report.sheet import QUIET, Page
from torchdoctor.report.text import clean, number
from torchdoctor.report.vitals import Layer
from torchdoctor.rules.movement import HEALTHY_UPDATES

NAME_WIDTHS = (10, 30)
NAME_USEFUL = 20
"""Up to here a name's room is worth more than a bar's."""
VALUE_WIDTH = 8
BAR_LEAST, BAR_MOST = 8, 40
DECADES = (4, 16)
"""That a bar spans, at least and at most: with fewer, layers that are alike would look unlike."""
RATIO_SCALE = (-6, 0)
"""Powers of ten that the small scale of updates shows, two cells each."""
RATIO_CELLS = 2 * (RATIO_SCALE[1] - RATIO_SCALE[0]) + 1
EIGHTHS = "▏▎▍▌▋▊▉█"


def draw_flow(layers: Sequence[Layer], page: Page, width: int, rows: int) -> list[Text]:
    """A heading and at most rows - 1 layers, in the order of the forward pass; where there are more layers the most
    remarkable one of each stretch, the first and the last of the model where no other is more so."""
    if not layers:
        return [_heading("gradient flow", page, width), page.line("  no gradient was measured yet", QUIET)][:rows]
    shown = choose(layers, rows - 1)
    low, high = _decades(layers)
    wide = _widths(shown, width)
    words = "gradient flow" if len(shown) == len(layers) else f"gradient flow, {len(shown)} of {len(layers)} layers"
    healthy = f"healthy {_short(HEALTHY_UPDATES[0])} to {_short(HEALTHY_UPDATES[1])}"
    details = (
        f"norm on 1e{low:+d} to 1e{high:+d}, update to weight ({healthy})",
        f"norm, update ({healthy})",
        "norm, update",
    )
    top = _heading(words, page, width, details)
    return [top, *(_row(layer, page, wide, low, high) for layer in shown)]


def choose(layers: Sequence[Layer], rows: int) -> list[Layer]:
    if len(layers) <= rows:
        return list(layers)
    if rows < 1:
        return []
    edges = [round(i * len(layers) / rows) for i in range(rows + 1)]
    stretches = [layers[a:b] for a, b in pairwise(edges)]
    if rows > 1:
        stretches[-1] = stretches[-1][::-1]  # of equals the first is taken
    return [max(stretch, key=lambda layer: layer.remarkable) for stretch in stretches]


def _widths(shown: Sequence[Layer], width: int) -> tuple[int, int, bool]:
    """Of the name and of the bar, and whether there is room for the scale of updates."""
    name = min(max(cell_len(layer.name) for layer in shown), NAME_WIDTHS[1]) if shown else NAME_WIDTHS[0]
    # two blanks before, one each between name, bar, norm, mark, ratio, side
    fixed = 2 + 1 + 1 + VALUE_WIDTH + 1 + VALUE_WIDTH + 2
    scaled = width - fixed - RATIO_CELLS - 1 >= NAME_WIDTHS[0] + 2 * BAR_LEAST
    room = width - fixed - (RATIO_CELLS + 1 if scaled else 0)
    name = max(NAME_WIDTHS[0], min(name, max(room // 2, min(NAME_USEFUL, room - BAR_LEAST))))
    return name, max(BAR_LEAST, min(BAR_MOST, room - name)), scaled


def _row(layer: Layer, page: Page, wide: tuple[int, int, bool], low: int, high: int) -> Text:
    name, bar, scaled = wide
    text = Text.assemble("  ", set_cell_size(_shorten(layer.name, name, page), name), " ")
    text.append(_bar(layer, page, bar, low, high))
    text.append(" ")
    text.append(_norm(layer))
    text.append(" ")
    if scaled:
        text.append(_scale(layer, page))
        text.append(" ")
    side = layer.ratio_side
    above, below = ("^", "v") if page.ascii_only else ("↑", "↓")
    shown = "" if math.isnan(layer.ratio) or layer.broken else _short(layer.ratio)
    text.append(f"{shown:>{VALUE_WIDTH}}", style="yellow" if side else "")
    text.append(f" {above if side > 0 else below if side else ' '}", style="yellow")
    return text


def _norm(layer: Layer) -> Text:
    if layer.broken:
        words, style = "NaN/Inf", "bold red"
    elif layer.norm == 0:
        words, style = "zero", "bold red"
    elif math.isnan(layer.norm):
        words, style = "unknown", QUIET
    else:
        words, style = _short(layer.norm), "yellow" if layer.faint else ""
    return Text(words.rjust(VALUE_WIDTH), style=style)


def _bar(layer: Layer, page: Page, width: int, low: int, high: int) -> Text:
    if layer.broken:
        return Text("x" * width, style="red")
    if not layer.norm > 0:
        return Text(" " * width)
    filled = min(1.0, max(0.0, (math.log10(layer.norm) - low) / (high - low))) * width
    style = "yellow" if layer.faint else "cyan"
    if page.ascii_only:
        return Text(("#" * max(1, round(filled))).ljust(width), style=style)
    eighths = max(1, round(8 * filled))
    return Text((EIGHTHS[-1] * (eighths // 8) + (EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")).ljust(width), style)


def _scale(layer: Layer, page: Page) -> Text:
    """The update between 1e-6 and 1, with the healthy band."""
    inside, outside, mark = ("=", ".", "o") if page.ascii_only else ("━", "·", "●")
    ends = [round(2 * (math.log10(edge) - RATIO_SCALE[0])) for edge in HEALTHY_UPDATES]
    cells = [(inside, "green") if ends[0] <= i <= ends[1] else (outside, QUIET) for i in range(RATIO_CELLS)]
    if layer.ratio > 0 and not layer.broken:
        power = math.log10(layer.ratio) if math.isfinite(layer.ratio) else RATIO_SCALE[1]
        at = round(2 * (min(max(power, RATIO_SCALE[0]), RATIO_SCALE[1]) - RATIO_SCALE[0]))
        cells[at] = (mark, "bold yellow" if layer.ratio_side else "bold green")
    return Text.assemble(*cells)


def _decades(layers: Sequence[Layer]) -> tuple[int, int]:
    known = [layer.norm for layer in layers if 0 < layer.norm < math.inf]
    if not known:
        return -DECADES[0], 0
    high = math.ceil(math.log10(max(known)))
    low = min(math.floor(math.log10(min(known))), high - DECADES[0])
    return max(low, high - DECADES[1]), high


def _heading(words: str, page: Page, width: int, details: Sequence[str] = ()) -> Text:
    rule = "-" if page.ascii_only else "─"
    detail = next((d for d in details if len(words) + len(d) + 7 <= width), "")
    text = Text.assemble((f"{rule * 2} ", QUIET), (words, "bold"), ("  " if detail else "", ""), (detail, QUIET), " ")
    text.append(rule * max(0, width - text.cell_len), style=QUIET)
    return text


def _shorten(name: str, most: int, page: Page) -> str:
    """Without what they all end with, then with first letters from the left; numbers stay, they tell blocks apart."""
    text = clean(name, page.ascii_only)
    if cell_len(text) > most:
        text = text.removesuffix(".weight")
    parts = text.split(".")
    for i, part in enumerate(parts[:-1]):
        if cell_len(".".join(parts)) <= most:
            break
        parts[i] = part if part.isdigit() else part[:1]
    text = ".".join(parts)
    return text if cell_len(text) <= most else f"{set_cell_size(text, most - 2)}.."


def _short(value: float) -> str:
    """At most VALUE_WIDTH characters: 0.0657, 1.2e-3, 9,870."""
    if not value or 1e-2 < value < 1e4 or not math.isfinite(value):
        return number(value)
    mantissa, power = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(power)}"
