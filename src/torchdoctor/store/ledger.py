"""Facts in bounded memory: of each subject the first and the last ones. The same live and afterwards."""

from __future__ import annotations

import json
import math
import types
import typing
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from torchdoctor.facts import KINDS, Fact
from torchdoctor.run import Seen
from torchdoctor.store.documents import write_json
from torchdoctor.store.entries import MAX_INTEGER, clean_text, plain

KEEP_FIRST, KEEP_LAST = 32, 96
"""Facts of one kind and subject that are kept, at either end: what changes more often is not a fact but a signal."""
MAX_BYTES = 16_000_000
MAX_SUBJECTS = 100_000
MAX_TEXT = 1_000_000
"""Characters of one fact's JSON."""


@dataclass(frozen=True)
class Entry:
    """A fact as it lies on disk, and as read."""

    step: int
    time: float
    kind: str
    subject: str
    data: str
    fact: Fact


@dataclass
class _Subject:
    first: deque[int] = field(default_factory=deque)
    last: deque[int] = field(default_factory=deque)
    text: str = ""


class FactLog:
    """Facts in the order in which they came, the middle ones of a long series left out."""

    def __init__(self, first: int = KEEP_FIRST, last: int = KEEP_LAST) -> None:
        self.first, self.last = first, last
        self._entries: dict[int, Entry] = {}
        self._subjects: dict[tuple[str, str], _Subject] = {}
        self._next = 0
        self._bytes = 0
        self._seen: tuple[Seen, ...] | None = ()

    def holds(self, kind: str, subject: str, data: str) -> bool:
        """Whether the last fact of that kind and subject says the same."""
        known = self._subjects.get((kind, subject))
        return known is not None and known.text == data

    def add(self, entry: Entry) -> bool:
        """Keep the fact; False if there are too many subjects."""
        key = (entry.kind, entry.subject)
        if key not in self._subjects:
            if len(self._subjects) >= MAX_SUBJECTS:
                return False
            self._subjects[key] = _Subject()
        subject = self._subjects[key]
        subject.text = entry.data
        self._entries[self._next] = entry
        self._bytes += len(entry.data)
        self._seen = None
        (subject.first if len(subject.first) < self.first else subject.last).append(self._next)
        self._next += 1
        self._trim(subject)
        while self._bytes > MAX_BYTES and self.last > 1:
            self.first, self.last = max(1, self.first // 2), self.last // 2
            for each in self._subjects.values():
                self._trim(each)
        return True

    def limit(self, first: int, last: int) -> None:
        """Keep no more of a subject than another log did."""
        self.first, self.last = min(self.first, first), min(self.last, last)

    def _trim(self, subject: _Subject) -> None:
        while len(subject.first) > self.first:
            subject.last.appendleft(subject.first.pop())
        while len(subject.last) > self.last:
            self._bytes -= len(self._entries.pop(subject.last.popleft()).data)

    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries.values())

    def seen(self) -> tuple[Seen, ...]:
        if self._seen is None:
            self._seen = tuple(Seen(e.step, e.fact) for e in self._entries.values())
        return self._seen


def write_fact(fact: Fact) -> str:
    """Return a fact's fields as JSON text; NaN and infinities are written as Python's json writes them."""
    return write_json(fact.to_dict())


def read_fact(kind: str, text: str) -> Fact | None:
    """The fact, or None where the kind is unknown (a newer version wrote it) or a field is not what it should be."""
    cls = KINDS.get(kind)
    if cls is None or len(text) > MAX_TEXT:
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    hints = _hints(cls)
    try:
        return cls.from_dict({k: read_value(v, hints[k]) for k, v in data.items() if k in hints})
    except (TypeError, ValueError):
        return None


def read_facts(rows: Iterable[tuple[int, float, str, str, str]]) -> Iterator[Entry]:
    for step, time, kind, subject, data in rows:
        fact = read_fact(kind, data)
        if fact is not None:
            yield Entry(step, time, kind, subject, data, fact)


@cache
def _hints(cls: type[Fact]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {name: hint for name, hint in hints.items() if typing.get_origin(hint) is not typing.ClassVar}


def read_value(value: Any, hint: Any) -> Any:
    """Return a value read from JSON as the type that a field declares; TypeError where it is of another type.

    A null where a number must stand is a number that was not measured, so NaN: one such number is no reason to lose
    the whole fact.
    """
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return plain(value, of_fact=True)
    if origin in (typing.Union, types.UnionType):
        return _read_union(value, args)
    if origin is list and isinstance(value, list):
        return [read_value(v, args[0]) for v in value]
    if origin is dict and isinstance(value, dict):
        return {clean_text(k): read_value(v, args[1]) for k, v in value.items()}
    if hint is float and value is None:
        return math.nan
    is_flag = isinstance(value, bool) and hint is not bool  # a bool is an int to Python, but no number here
    if isinstance(value, str) and hint is str:
        return clean_text(value)
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise TypeError("a number that no float holds")
    if origin is None and not is_flag and isinstance(value, int | float if hint is float else hint):
        return value
    raise TypeError(f"expected {hint}, not {type(value).__name__}")


def _read_union(value: Any, options: tuple[Any, ...]) -> Any:
    if value is None and type(None) in options:
        return None
    for option in options:
        try:
            return read_value(value, option)
        except TypeError:
            continue
    raise TypeError(f"expected one of {options}, not {type(value).__name__}")
