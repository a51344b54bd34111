"""Two traces beside each other: the first operation in which two starts of a program differ, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchdoctor.facts.repeats import CONTROL, OPERATION, OUTSIDE, RANDOM
from torchdoctor.run import Ints

STEP, OPERATOR, PLACE, NUMBERS, GIVEN, MADE, FLAGS = range(7)
IS_RANDOM, IS_BACKWARD, IS_SOURCE = 1, 2, 4
"""As tracing.py writes them; not imported from there, since this is read without torch."""
TEXTS_BYTES = 64_000_000


@dataclass(frozen=True)
class Traced:
    """As it was written by one process."""

    rows: Ints
    texts: list[str]


@dataclass(frozen=True)
class Parting:
    """The first entry that differs."""

    cause: str
    operator: str
    device: str
    step: int
    backward: bool
    file: str | None
    line: int | None
    note: str | None = None


def read_trace(path: Path) -> Traced | None:
    try:
        rows = np.load(path, allow_pickle=False)
        texts = json.loads(path.with_suffix(".json").read_text()[:TEXTS_BYTES])
    except (OSError, ValueError):
        return None
    if rows.ndim != 2 or rows.shape[1] != FLAGS + 1 or not isinstance(texts, list):
        return None
    return Traced(rows, [str(t) for t in texts])


def find_parting(first: Traced, second: Traced) -> Parting | None:
    """None where they are equal as far as both go."""
    a, b = first.rows, _renumbered(second, first.texts)
    n = min(len(a), len(b))
    differs = (a[:n, OPERATOR : MADE + 1] != b[:n, OPERATOR : MADE + 1]).any(axis=1)
    at = np.flatnonzero(differs)
    if not len(at):
        return None
    return _explain(first, second, a[at[0]], b[at[0]], second.rows[at[0]])


def _renumbered(trace: Traced, texts: list[str]) -> NDArray[Any]:
    """With the numbers that another trace gives to the same texts."""
    known = {text: i for i, text in enumerate(texts)}
    numbers = np.array([known.get(text, -1 - i) for i, text in enumerate(trace.texts)] or [0], np.int64)
    rows = trace.rows.copy()
    for column in (OPERATOR, PLACE):
        rows[:, column] = numbers[rows[:, column]]
    return rows


def _explain(first: Traced, second: Traced, a: Ints, b: Ints, own: Ints) -> Parting:
    operator, _, device = first.texts[a[OPERATOR]].partition(" ")
    file, _, line = first.texts[a[PLACE]].rpartition(":")
    note = None
    if a[OPERATOR] != b[OPERATOR] or a[PLACE] != b[PLACE]:
        cause, there = CONTROL, second.texts[own[OPERATOR]].partition(" ")[0]
        note = f"where one start runs {operator}{_at(first, a)}, the other runs {there}{_at(second, own)}"
    elif a[NUMBERS] != b[NUMBERS]:
        cause, note = CONTROL, f"{operator} is called with other numbers or sizes"
    elif a[GIVEN] != b[GIVEN]:
        cause = OUTSIDE
    elif a[FLAGS] & IS_RANDOM:
        cause = RANDOM
    else:
        cause = OUTSIDE if a[FLAGS] & IS_SOURCE else OPERATION
    return Parting(
        cause=cause,
        operator=operator,
        device=device,
        step=int(a[STEP]),
        backward=bool(a[FLAGS] & IS_BACKWARD),
        file=file or None,
        line=int(line) if line.isdigit() else None,
        note=note,
    )


def _at(trace: Traced, row: Ints) -> str:
    text = trace.texts[row[PLACE]]
    return f" at {text.rpartition('/')[2]}" if text else ""
