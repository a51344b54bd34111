"""Curves drawn with characters: eight braille dots a cell, or one star where there is only ASCII."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from torchdoctor.console import Text
from torchdoctor.run import Floats, Ints

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot in a braille character, by row and column."""
BRAILLE = 0x2800
DOWN, ACROSS = 4, 2
MARK_SPACING = 6
"""Cells from one mark on a curve to the next."""
WIDE_RANGE = 10.0
"""Greatest over least value from which on a linear axis of a few rows would hide the small ones."""


class Scale:
    """From values to 0..1, linear or logarithmic, whichever shows more."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high
        self.is_log = low > 0 and high > WIDE_RANGE * low
        self._low, self._high = (math.log(low), math.log(high)) if self.is_log else (low, high)

    @classmethod
    def over(cls, *parts: Floats) -> Scale | None:
        """One that holds every finite value; None where there is none."""
        every = np.concatenate([np.ravel(p) for p in parts]) if parts else np.zeros(0)
        finite = every[np.isfinite(every)]
        return cls(float(finite.min()), float(finite.max())) if len(finite) else None

    def place(self, value: float) -> float:
        if self._high <= self._low:
            return 0.5
        if self.is_log:
            value = math.log(max(value, self.low))
        # halves, so that the difference of two huge numbers stays one
        return min(1.0, max(0.0, (value / 2 - self._low / 2) / (self._high / 2 - self._low / 2)))


class Canvas:
    """So many cells; dots are counted from the upper left."""

    def __init__(self, columns: int, rows: int, ascii_only: bool = False) -> None:
        self.columns, self.rows = columns, rows
        self._ascii = ascii_only
        self._bits = np.zeros((rows, columns), np.uint8)
        self._style = np.full((rows, columns), "", object)
        self._marks: dict[tuple[int, int], tuple[str, str]] = {}

    def draw(self, steps: Ints, low: Floats, high: Floats, scale: Scale, last_step: int, style: str) -> None:
        """The span from low to high in every column of dots, joined to the one before; a cross where a value broke."""
        wide, tall = self.columns * ACROSS, self.rows * DOWN
        before: tuple[int, int, int] | None = None
        for x, rows in _by_column(steps, wide, last_step):
            least, most = low[rows], high[rows]
            if not (np.isfinite(least).all() and np.isfinite(most).all()):
                self.mark(x // ACROSS, 0, "x", "bold red")
            if not (np.isfinite(least).any() and np.isfinite(most).any()):
                before = None
                continue
            bottom = _dot(scale.place(float(np.min(least[np.isfinite(least)]))), tall)
            top = _dot(scale.place(float(np.max(most[np.isfinite(most)]))), tall)
            if before is not None:
                self._join(before, (x, top, bottom), style)
            self._span(x, top, bottom, style)
            before = (x, top, bottom)

    def points(self, steps: Ints, values: Floats, scale: Scale, last_step: int, mark: str, style: str) -> None:
        """Marks at values, the last among them; not so many that they hide what they stand on."""
        spaced = self.columns + MARK_SPACING
        for x, rows in reversed(_by_column(steps, self.columns, last_step)):
            value = float(values[rows][-1])
            if math.isfinite(value) and x <= spaced - MARK_SPACING:
                self.mark(x, _dot(scale.place(value), self.rows * DOWN) // DOWN, mark, style)
                spaced = x

    def mark(self, column: int, row: int, character: str, style: str) -> None:
        self._marks[row, column] = (character, style)

    def lines(self) -> list[Text]:
        return [self._line(row) for row in range(self.rows)]

    def _line(self, row: int) -> Text:
        text = Text()
        for column in range(self.columns):
            bits = int(self._bits[row, column])
            blank, drawn = " ", "*" if self._ascii else chr(BRAILLE + bits)
            character, style = self._marks.get((row, column), (drawn if bits else blank, str(self._style[row, column])))
            text.append(character, style=style)
        return text

    def _span(self, x: int, top: int, bottom: int, style: str) -> None:
        for y in range(top, bottom + 1):
            self._bits[y // DOWN, x // ACROSS] |= DOTS[y % DOWN][x % ACROSS]
            self._style[y // DOWN, x // ACROSS] = style

    def _join(self, before: tuple[int, int, int], here: tuple[int, int, int], style: str) -> None:
        """From the middle of the one span to the middle of the other, so that few looks are a line as well."""
        (x0, top, bottom), (x1, top1, bottom1) = before, here
        y0, y1 = (top + bottom) / 2, (top1 + bottom1) / 2
        at = y0
        for x in range(x0 + 1, x1 + 1):
            level = y0 + (y1 - y0) * (x - x0) / (x1 - x0)
            self._span(x, *sorted((round(at), round(level))), style)
            at = level


def _by_column(steps: Ints, columns: int, last_step: int) -> list[tuple[int, slice]]:
    """The rows that fall into each column that has any."""
    if not len(steps):
        return []
    at = np.clip((steps / max(last_step, 1) * (columns - 1)).round().astype(int), 0, columns - 1)
    edges = [0, *(np.flatnonzero(np.diff(at)) + 1).tolist(), len(at)]
    return [(int(at[a]), slice(a, b)) for a, b in pairwise(edges)]


def _dot(share: float, tall: int) -> int:
    return round((1.0 - share) * (tall - 1))
