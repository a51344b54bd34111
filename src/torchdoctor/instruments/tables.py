"""Columns of text for a terminal, and names in a row that does not get too long."""

from __future__ import annotations

from collections.abc import Sequence

MOST_NAMES = 5


def table(head: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 2) -> list[str]:
    """The first column to the left, as the last where it holds words, the others to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    words = {0, *((len(head) - 1,) if any(_is_words(row[-1]) for row in rows) else ())}
    lines = []
    for row in (head, *rows):
        cells = [c.ljust(w) if i in words else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append((" " * indent + "  ".join(cells)).rstrip())
    return lines


def listed(names: Sequence[str], most: int = MOST_NAMES) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _is_words(cell: str) -> bool:
    return any(c.isalpha() for c in cell)
