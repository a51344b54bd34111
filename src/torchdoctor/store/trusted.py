"""Small records in JSON that strangers may have written: only what has the declared types, and of a sensible size."""

from __future__ import annotations

import typing
from functools import cache
from typing import Any

from torchdoctor.store.ledger import read_value

T = typing.TypeVar("T")


def build(kind: type[T], data: Any, longest: int, most: int, beside: tuple[str, ...] = ()) -> T | None:
    """The dataclass, if the data are a mapping of such fields; those `beside` are read by the caller."""
    if not isinstance(data, dict):
        return None
    hints = {name: hint for name, hint in _hints(kind).items() if name in data and name not in beside}
    try:
        known = {name: read_value(data[name], hint) for name, hint in hints.items()}
        return kind(**shortened(known, longest, most))
    except TypeError:
        return None


def shortened(value: Any, longest: int, most: int) -> Any:
    """Texts of at most `longest` characters, lists of at most `most` entries."""
    if isinstance(value, str):
        return value[:longest]
    if isinstance(value, list | tuple):
        return [shortened(each, longest, most) for each in value[:most]]
    return {k: shortened(v, longest, most) for k, v in value.items()} if isinstance(value, dict) else value


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)
