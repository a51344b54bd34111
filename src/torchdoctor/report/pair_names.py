"""Two runs by names that tell: where theirs are a script and a time, with what differs between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from torchdoctor.compare.records import Difference
from torchdoctor.report.text import clean, cut_middle

MOST = 2
"""Differences that a label holds; more are a table's."""
LETTERS = 40
TIMED = re.compile(r"-\d{8}-\d{6}(-\d+)*$")
"""What `torchdoctor run` puts after the script's name."""


class Labels(NamedTuple):
    whole: tuple[str, str]
    """the runs' names, and what differs"""
    short: tuple[str, str]
    """for a picture, without the time where what differs tells"""


def label_runs(names: tuple[str, str], differences: Sequence[Difference]) -> Labels:
    plain = (clean(names[0]), clean(names[1]))
    stems = [TIMED.sub("", name) for name in plain]
    if stems[0] != stems[1]:
        return Labels(plain, plain)
    for part in ("arguments", "configuration"):
        held = [d for d in differences if d.part == part]
        if 1 <= len(held) <= MOST:
            good, bad = _say([(d.name, d.good) for d in held]), _say([(d.name, d.bad) for d in held])
            if good != bad:  # what is cut may be what differs
                whole = f"{plain[0]} ({good})", f"{plain[1]} ({bad})"
                return Labels(whole, (f"{stems[0]} ({good})", f"{stems[1]} ({bad})"))
    return Labels(plain, plain)


def _say(held: Sequence[tuple[str, object]]) -> str:
    """--lr 0.3; --amp or no --amp for a flag, and for what only the other run has."""
    return cut_middle(", ".join(clean(_entry(name, value)) for name, value in held), LETTERS)


def _entry(name: str, value: object) -> str:
    if value is None or value is False:
        return f"no {name}"
    return name if value is True else f"{name} {value}"
