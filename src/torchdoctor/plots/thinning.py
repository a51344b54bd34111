"""Fewer numbers than were recorded, for pictures: no more than a screen can show, and whatever stands out stays."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from torchdoctor.distributions.gaps import nanmax, nanmedian, nanmin
from torchdoctor.plots.labels import label
from torchdoctor.run import Floats

POINTS = 800
"""Of a line: a page is some 1200 pixels wide, and most charts have half of it. Drawing costs by the point."""
ROWS = 120
"""Of a heat map, and bars in a row: more are thinner than the lines between them."""


def pick(x: Any, y: Any, most: int = POINTS) -> tuple[Any, Any]:
    """Of each stretch the least and the greatest value, where they are; what is not finite stays as a gap."""
    if len(y) <= most:
        return x, y
    values = np.asarray(y, np.float64)
    size = -(-len(values) // (most // 2))
    known_PK = _stretch(np.isfinite(values), size, False)
    values_PK = _stretch(values, size, np.nan)
    begin_P = size * np.arange(len(values_PK))
    least = begin_P + np.where(known_PK, values_PK, np.inf).argmin(axis=1)
    greatest = begin_P + np.where(known_PK, values_PK, -np.inf).argmax(axis=1)
    unknown = np.flatnonzero(~np.isfinite(values))
    gaps = unknown[np.unique(unknown // size, return_index=True)[1]]
    keep = np.unique(np.concatenate([[0], least, greatest, gaps, [len(values) - 1]]))
    return np.asarray(x)[keep], np.asarray(y)[keep]


def enclose(x: Any, low: Any, high: Any, most: int = POINTS) -> tuple[Any, Any, Any]:
    """The space between two curves: of each stretch the last place, the least and the greatest."""
    if len(x) <= most:
        return x, low, high
    begin = np.arange(0, len(x), -(-len(x) // most))
    last = np.append(begin[1:], len(x)) - 1
    return np.asarray(x)[last], np.fmin.reduceat(low, begin), np.fmax.reduceat(high, begin)


def farthest(values: Floats, low: Floats, high: Floats, most: int) -> tuple[np.ndarray, Floats]:
    """The last row of each stretch, and the extreme in it that is farthest from its median, so that a spike stays."""
    size = -(-len(values) // most)
    with unwarned():
        middle = nanmedian(_stretch(values, size, np.nan), axis=1)
        up, down = nanmax(_stretch(high, size, np.nan), axis=1), nanmin(_stretch(low, size, np.nan), axis=1)
        shown = np.where(up - middle >= middle - down, up, down)
    last = np.minimum(size * np.arange(1, len(middle) + 1), len(values)) - 1
    return last, shown


def group(names: Sequence[str], tables: Sequence[Floats], most: int = ROWS) -> tuple[list[str], list[Floats]]:
    """Labels, and neighbours put together where there are more names than rows: by the first one's, and how many
    more."""
    if len(names) <= most:
        return label(names), list(tables)
    size = -(-len(names) // most)
    parts = [names[i : i + size] for i in range(0, len(names), size)]
    firsts = label([part[0] for part in parts])
    said = [
        f"{first} and {len(part) - 1} more" if len(part) > 1 else first
        for first, part in zip(firsts, parts, strict=True)
    ]
    return said, [farthest(table, table, table, most)[1] for table in tables]


def _stretch(values: Any, size: int, fill: Any) -> Any:
    """(stretches, rows of one, ...), the last one filled up."""
    missing = -len(values) % size
    if missing:
        values = np.concatenate([values, np.full((missing, *values.shape[1:]), fill, values.dtype)])
    return values.reshape(-1, size, *values.shape[1:])


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """Of columns that were never measured the median is NaN, and that is all there is to say."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
