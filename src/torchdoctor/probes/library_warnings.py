"""Warnings that libraries raised during the run, read from where Python itself notes which warnings it has shown.

A module's `__warningregistry__` is read, never written: filters, `showwarning` and `catch_warnings(record=True)` of the
script work as without us. What filters ignore, or show each time, is not noted there, and so not known.
"""

from __future__ import annotations

import linecache
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from torchdoctor.attach.guard import contained
from torchdoctor.facts import LibraryWarningFact
from torchdoctor.probes.context import Context

KEPT = 8
TEXT = 300
"""Characters of a warning that are quoted."""
OWN = "torchdoctor"
_NUMBER = re.compile(r"(?<![\w:])\d[\d.,e+-]*(?!\w)")
"""One that stands alone: float16 and cuda:1 are names."""
ABOUT_CODE = (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning)
"""Categories that say nothing about a training."""

Shown = tuple[str, str, int, type[Warning]]
"""file, text, line, category"""


class LibraryWarnings:
    """Writes the warnings that were not there when it was made."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known = set(_shown())
        self._said: set[tuple[str, int, str]] = set()
        """file, line and words of what was written"""
        self._written = 0

    @contained("warnings: look")
    def look(self) -> None:
        """Write what was shown since the last time; a registry is emptied when filters change, so look now and then."""
        for file, text, line, category in _shown():
            shown = (file, text, line, category)
            if shown in self._known or self._written >= KEPT:
                continue
            self._known.add(shown)
            if issubclass(category, ABOUT_CODE) or ("warn" in linecache.getline(file, line) and _is_script(file)):
                continue  # the script's own
            said = (file, line, _NUMBER.sub("", text))
            if said in self._said:
                continue  # the same again, with another number
            self._said.add(said)
            self._written += 1
            fact = LibraryWarningFact(_quote(text), category.__name__, file, line)
            self._context.record.fact(fact, self._context.step, f"{file}:{line}/{self._written}")


def _quote(text: str) -> str:
    """One line, cut between words where that leaves most of it."""
    line = " ".join(text.split())
    short = textwrap.shorten(line, TEXT, placeholder=" ...")
    return short if len(short) > min(len(line), TEXT) / 2 else f"{line[: TEXT - 3]}..."


def _shown() -> Iterator[Shown]:
    for name, module in list(sys.modules.items()):
        try:
            held: dict[str, Any] = object.__getattribute__(module, "__dict__")  # a lazy module must stay unloaded
        except AttributeError:
            continue
        registry = held.get("__warningregistry__")
        if not registry or name.partition(".")[0] == OWN:
            continue
        for key in list(registry):
            if isinstance(key, tuple) and len(key) == 3 and isinstance(key[1], type):
                yield str(held.get("__file__") or name), str(key[0]), int(key[2]), key[1]


def _is_script(file: str) -> bool:
    return "site-packages" not in file and "dist-packages" not in file
