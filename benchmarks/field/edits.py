"""Small changes of a text, from which faults are made. Each raises where it does not apply, so no fault is lost."""

from __future__ import annotations

import re
from collections.abc import Callable


class EditError(Exception):
    """The text is not the one that the edit was written for."""


def replace(old: str, new: str, times: int = 1) -> Callable[[str], str]:
    """Replace a piece of text that occurs exactly so many times."""

    def edit(text: str) -> str:
        if text.count(old) != times:
            raise EditError(f"{old!r} occurs {text.count(old)} times, expected {times}")
        return text.replace(old, new)

    return edit


def drop_line(containing: str, times: int = 1) -> Callable[[str], str]:
    """Remove the lines that contain a piece of text; a line that is alone in its block becomes `pass`."""

    def edit(text: str) -> str:
        lines = text.split("\n")
        places = [i for i, line in enumerate(lines) if containing in line]
        if len(places) != times:
            raise EditError(f"{containing!r} is on {len(places)} lines, expected {times}")
        for place in places:
            indent = lines[place][: len(lines[place]) - len(lines[place].lstrip())]
            lines[place] = f"{indent}pass"
        return "\n".join(lines)

    return edit


def insert_after(containing: str, new: str) -> Callable[[str], str]:
    """Put lines after the only line that contains a piece of text, at its indentation."""

    def edit(text: str) -> str:
        lines = text.split("\n")
        places = [i for i, line in enumerate(lines) if containing in line]
        if len(places) != 1:
            raise EditError(f"{containing!r} is on {len(places)} lines, expected 1")
        line = lines[places[0]]
        indent = line[: len(line) - len(line.lstrip())]
        lines[places[0] + 1 : places[0] + 1] = [f"{indent}{added}" for added in new.split("\n")]
        return "\n".join(lines)

    return edit


def substitute(pattern: str, new: str, times: int = 1) -> Callable[[str], str]:
    """Replace what a regular expression matches exactly so many times."""

    def edit(text: str) -> str:
        changed, count = re.subn(pattern, new, text)
        if count != times:
            raise EditError(f"{pattern!r} matches {count} times, expected {times}")
        return changed

    return edit


def in_turn(*edits: Callable[[str], str]) -> Callable[[str], str]:
    """Make several edits of one file."""

    def edit(text: str) -> str:
        for one in edits:
            text = one(text)
        return text

    return edit
