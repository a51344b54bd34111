"""Names of layers on an axis: short, and no two of them alike, since Plotly draws equal ones over each other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

ROOM = 34
"""Letters of a label that leave most of a page to the picture."""
CUT = "..."


def label(names: Sequence[str], room: int = ROOM) -> list[str]:
    """All in their room if they can be told apart in it, else in up to twice of it: without what all begin with, then
    cut as near to the beginning as can be, since a name's end tells more."""
    if all(len(name) <= room for name in names):
        return list(names)
    apart = len(set(names))
    rest = _without_common(names)
    for length in range(room, 2 * room + 1):
        for head in range(length - len(CUT)):
            found = [_cut(name, head, length) for name in rest]
            if len(set(found)) == apart:
                return found
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names), start=1)}
    return [f"{numbers[name]}: {_cut(short, 0, room)}" for name, short in zip(names, rest, strict=True)]


def _without_common(names: Sequence[str]) -> list[str]:
    """Without the modules that hold all of them; one alone keeps its own."""
    if len(set(names)) < 2:
        return list(names)
    parts = [name.split(".") for name in names]
    levels = zip(*(part[:-1] for part in parts), strict=False)
    common = len(list(takewhile(lambda level: len(set(level)) == 1, levels)))
    return [".".join(part[common:]) for part in parts]


def _cut(name: str, head: int, length: int) -> str:
    return name if len(name) <= length else name[:head] + CUT + name[head + len(CUT) - length :]
