"""What is sent to the terminal, read by one: the other writer's rows, cursor and colours stay as they are."""

from __future__ import annotations

from pathlib import Path

import pyte
import pytest

from torchdoctor.settings import Settings
from torchdoctor.view.panel import LEAST_LEFT, LEAST_ROWS, RESCUE, Panel, divide
from torchdoctor.view.reading import Reading
from torchdoctor.view.screen import View

COLUMNS, HEIGHT, ROWS = 80, 24, 10


class Written:
    """A terminal with so many lines of somebody else's on it, the last one unfinished."""

    def __init__(self, lines: int) -> None:
        self.screen = pyte.HistoryScreen(COLUMNS, HEIGHT, history=1000)
        self._stream = pyte.Stream(self.screen)
        self.say("".join(f"line {i}\r\n" for i in range(lines)) + "unfinished")

    def say(self, text: str) -> None:
        self._stream.feed(text)

    @property
    def rows(self) -> list[str]:
        return [row.rstrip() for row in self.screen.display]

    @property
    def told(self) -> list[str]:
        """Everything that was said, the history first."""
        gone = ["".join(row[x].data for x in range(COLUMNS)).rstrip() for row in self.screen.history.top]
        return [row for row in [*gone, *self.rows] if row]

    @property
    def cursor(self) -> tuple[int, int]:
        return self.screen.cursor.y, self.screen.cursor.x


@pytest.fixture(params=[0, 3, 13, 14, 23, 60])
def lines(request: pytest.FixtureRequest) -> int:
    return request.param


PANEL = Panel(COLUMNS, HEIGHT, ROWS)
PICTURE = [f"ours {i}" for i in range(ROWS)]


def test_reserving_moves_what_stands_there_up_and_the_cursor_with_it(lines: int) -> None:
    written = Written(lines)
    before = written.told
    written.say(PANEL.reserve())
    assert written.told == before
    assert written.rows[-ROWS:] == [""] * ROWS
    row, column = written.cursor
    assert row < HEIGHT - ROWS
    assert column == len("unfinished")
    assert written.rows[row] == "unfinished"


def test_drawing_leaves_the_script_where_it_was(lines: int) -> None:
    written = Written(lines)
    written.say(PANEL.reserve())
    before = written.cursor
    written.say("\x1b[31m")
    written.say(PANEL.draw(["\x1b[32mours 0", *PICTURE[1:]]))
    assert written.cursor == before
    assert written.rows[-ROWS:] == PICTURE
    written.say(" business")
    row, _ = written.cursor
    assert written.rows[row] == "unfinished business"
    assert written.screen.buffer[row][len("unfinished ")].fg == "red"


def test_the_script_scrolls_above_and_nothing_of_it_is_lost(lines: int) -> None:
    written = Written(lines)
    written.say(PANEL.reserve() + PANEL.draw(PICTURE))
    for i in range(40):
        written.say(f"\r\nmore {i}")
        written.say(PANEL.draw(PICTURE))
    assert written.rows[-ROWS:] == PICTURE
    expected = [*(f"line {i}" for i in range(lines)), "unfinished", *(f"more {i}" for i in range(40))]
    assert written.told == [*expected, *PICTURE]
    written.say(PANEL.release())
    assert written.told == expected
    assert written.screen.margins is None
    written.say("\r\nthe letter")
    assert written.told == [*expected, "the letter"]


def test_a_script_that_wipes_the_screen_or_resets_it_is_divided_again() -> None:
    written = Written(5)
    written.say(PANEL.reserve() + PANEL.draw(PICTURE))
    written.say("\x1b[r\x1b[2J\x1b[Hagain")
    written.say(PANEL.draw(PICTURE))
    assert written.rows == ["again", *[""] * (HEIGHT - ROWS - 1), *PICTURE]
    assert written.screen.margins == (0, HEIGHT - ROWS - 1)


@pytest.mark.parametrize(("columns", "height"), [(80, 40), (100, 18), (60, 24)])
def test_another_size_leaves_no_remains(columns: int, height: int, lines: int) -> None:
    written = Written(lines)
    written.say(PANEL.reserve() + PANEL.draw(PICTURE))
    written.screen.resize(height, columns)
    panel = divide(columns, height)
    assert panel is not None
    written.say(panel.reserve() + panel.draw(["new"] * panel.rows))
    assert written.rows[-panel.rows :] == ["new"] * panel.rows
    row, _ = written.cursor
    assert row < height - panel.rows
    assert not any("ours" in text for text in written.rows)


def test_the_rescue_gives_the_terminal_back_without_knowing_how_it_was_divided(lines: int) -> None:
    written = Written(lines)
    written.say(PANEL.reserve() + PANEL.draw(PICTURE))
    before = written.cursor
    written.say(RESCUE)
    assert written.cursor == before
    assert written.screen.margins is None
    assert written.told == [*(f"line {i}" for i in range(lines)), "unfinished"]


@pytest.mark.parametrize("column", [0, 10, COLUMNS - 1])
def test_the_rescue_spares_the_line_with_the_cursor_on_the_last_row_too(column: int) -> None:
    """Where a terminal has become smaller, our rows may be gone and the script's last one the last."""
    written = Written(60)
    written.say(f"\x1b[{column + 1}G")
    assert written.cursor == (HEIGHT - 1, column)
    before = written.told
    written.say(RESCUE)
    assert written.told == before and written.cursor == (HEIGHT - 1, column)


class Small:
    """A screen that is divided once, and has another size when it is given back."""

    encoding = "utf-8"
    size = (COLUMNS, HEIGHT)

    def __init__(self, written: Written) -> None:
        self.write = written.say

    def divide(self) -> Panel | None:
        return PANEL if self.size == (COLUMNS, HEIGHT) else None


class Listening:
    def wants_us(self) -> bool:
        return True

    def hears(self, text: str) -> bool:
        return True


def test_a_terminal_that_has_become_too_small_keeps_what_the_script_wrote(tmp_path: Path) -> None:
    written = Written(60)
    screen, reading = Small(written), Reading(tmp_path, Settings())
    view = View(screen, Listening())  # type: ignore[arg-type]
    view.show(reading, True)
    assert written.screen.margins is not None
    written.screen.resize(12, COLUMNS)
    written.screen.cursor.y = written.rows.index("unfinished")  # other terminals move it with its line
    screen.size = (COLUMNS, 12)
    before = written.rows[: written.cursor[0] + 1]
    view.show(reading, True)
    assert written.screen.margins is None
    assert before[-1] == "unfinished" and written.rows == [*before, *[""] * (12 - len(before))]


@pytest.mark.parametrize(
    ("height", "wished", "alone", "rows"),
    [
        (24, None, False, 12),
        (40, None, False, 20),
        (90, None, False, 24),
        (90, None, True, 90 - LEAST_LEFT),
        (40, 30, False, 30),
        (40, 39, False, 40 - LEAST_LEFT),
        (LEAST_ROWS + LEAST_LEFT, None, False, LEAST_ROWS),
    ],
)
def test_how_it_is_divided(height: int, wished: int | None, alone: bool, rows: int) -> None:
    assert divide(80, height, wished, alone=alone) == Panel(80, height, rows)


@pytest.mark.parametrize(("columns", "height"), [(59, 40), (80, LEAST_ROWS + LEAST_LEFT - 1), (0, 0)])
def test_a_small_terminal_is_the_scripts_alone(columns: int, height: int) -> None:
    assert divide(columns, height) is None
