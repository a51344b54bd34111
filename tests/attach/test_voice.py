"""What is said on a terminal stands on a line of its own, and nothing that the script wrote is lost by it."""

from __future__ import annotations

import sys

import pytest

from terminals import terminal

COLUMNS = 40
SAID = "torchdoctor: hello"


def shown(before: str, after: str, width: int = COLUMNS) -> list[str]:
    """The rows of a terminal on which a script writes something, then we do, then the script again."""
    code = f"""
import sys
from torchdoctor.attach.voice import say
sys.stdout.write({before!r}); sys.stdout.flush()
say("hello")
sys.stdout.write({after!r}); sys.stdout.flush()
"""
    with terminal(command=[sys.executable, "-c", code], width=width, height=10) as opened:
        assert opened.finish() == 0
        return [row for row in opened.rows if row]


@pytest.mark.parametrize("half", ["x", "epoch 1 ...", "x" * (COLUMNS - 1), "x" * COLUMNS])
def test_half_a_line_of_the_script_stays(half: str) -> None:
    assert shown(half, "done\n") == [half, SAID, "done"]


def test_behind_whole_lines_no_row_is_left_free() -> None:
    with terminal(
        command=[sys.executable, "-c", "from torchdoctor.attach.voice import say; print('a'); say('hello'); print('b')"]
    ) as opened:
        assert opened.finish() == 0
        assert opened.rows[:3] == ["a", SAID, "b"]


def test_a_bar_that_returns_to_the_start_of_its_line_is_not_mixed_with_it() -> None:
    assert shown("50 % of something\r", "60 % of something\r") == [SAID, "60 % of something"]


def test_a_terminal_that_does_not_tell_its_size_loses_nothing() -> None:
    forget = "import fcntl, termios; fcntl.ioctl(2, termios.TIOCSWINSZ, bytes(8))"
    code = f"{forget}; from torchdoctor.attach.voice import say; print('half', end=' ', flush=True); say('hello')"
    with terminal(command=[sys.executable, "-c", code]) as opened:
        assert opened.finish() == 0
        assert f"half {SAID}" in opened.rows


def test_in_a_file_there_are_lines_alone(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from torchdoctor.attach.voice import say

    monkeypatch.setattr(sys, "__stderr__", sys.stderr)
    say("hello")
    assert capfd.readouterr().err == f"{SAID}\n"
