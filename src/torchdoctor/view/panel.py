"""Rows at the bottom of a terminal that somebody else writes on: what to send it, and nothing sent in here.

The terminal scrolls the rows above alone, so the other writer's bytes stay as they are and what scrolls away stays in
the history. Each text is meant for one write, which no other process's falls into; it leaves the cursor, the colours
and whether the cursor is shown as they were. The cursor is saved in the terminal's one place for it, so a program that
uses that place or scrolls a region itself has to do without us.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SAVE, RESTORE = "\x1b7", "\x1b8"
SCROLL_ALL = "\x1b[r"
DOWN_SCROLLING = "\x1b" + "D"
"""One row down in the same column; on the last row everything moves up."""
PLAIN = "\x1b[0m"
ERASE_LINE, ERASE_REST_OF_LINE, ERASE_BELOW = "\x1b[2K", "\x1b[K", "\x1b[J"
AT_ONCE, DONE = "\x1b[?2026h", "\x1b[?2026l"
"""Between them a terminal that knows them shows nothing half drawn."""

RESCUE = f"{SAVE}{SCROLL_ALL}{RESTORE}{SAVE}\x1b[999C{PLAIN}{ERASE_BELOW}{RESTORE}"
"""Gives the whole terminal back where nobody knows any more how it was divided: what stands behind the cursor's line,
since the script's own rows end there."""

LEAST_COLUMNS = 60
LEAST_ROWS, MOST_ROWS = 10, 24
"""Of ours: with fewer there is nothing to see, with more the script's are missed."""
LEAST_LEFT = 6
"""Rows for the script."""


@dataclass(frozen=True)
class Panel:
    """The last `rows` of a terminal of this size."""

    columns: int
    height: int
    rows: int

    @property
    def first(self) -> int:
        """Our first row, counted from 1."""
        return self.height - self.rows + 1

    def reserve(self) -> str:
        """What stands there moves up, and the cursor with it."""
        return "".join(
            [
                f"{SAVE}{SCROLL_ALL}{RESTORE}",
                f"{DOWN_SCROLLING * self.rows}\x1b[{self.rows}A",
                f"{SAVE}\x1b[B\r{PLAIN}{ERASE_BELOW}{self._scroll_above}{RESTORE}",
            ]
        )

    def draw(self, lines: Sequence[str]) -> str:
        """Lines narrower than the terminal. The region is set anew, since a script may have reset it."""
        texts = [*lines, *[""] * self.rows][: self.rows]
        rows = (f"\x1b[{self.first + i};1H{PLAIN}{text}{PLAIN}{ERASE_REST_OF_LINE}" for i, text in enumerate(texts))
        return f"{AT_ONCE}{SAVE}{self._scroll_above}{''.join(rows)}{RESTORE}{DONE}"

    def release(self) -> str:
        rows = (f"\x1b[{row};1H{PLAIN}{ERASE_LINE}" for row in range(self.first, self.height + 1))
        return f"{SAVE}{SCROLL_ALL}{''.join(rows)}{RESTORE}"

    @property
    def _scroll_above(self) -> str:
        return f"\x1b[1;{self.height - self.rows}r"


def divide(columns: int, height: int, wished: int | None = None, *, alone: bool = False) -> Panel | None:
    """Half of the terminal is ours, or as many rows as were wished for; nearly all of it where little else is written
    on it. None where it is too small for two."""
    most = height - LEAST_LEFT
    if columns < LEAST_COLUMNS or most < LEAST_ROWS:
        return None
    rows = wished if wished is not None else most if alone else min(height // 2, MOST_ROWS)
    return Panel(columns, height, max(LEAST_ROWS, min(rows, most)))
