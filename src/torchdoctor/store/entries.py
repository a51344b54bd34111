"""What the entries of run.json may be. Whatever else somebody has put there is left out where the file is read.

So nobody who uses an entry has to ask for its type, or whether it is a date, finite, or text that can be written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

MAX_DEPTH = 12
MAX_INTEGER = 2**1000
"""Larger ones are no float either."""
LATEST = 4_102_444_800.0
"""The year 2100, in seconds since 1970."""
LONGEST_WORD = 1000
"""Characters of what is a name or a word."""

Check = Callable[[Any], bool]


def clean_entries(data: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a run.json that are what they should be; those that this version does not know stay."""
    found = {}
    for name, value in data.items():
        entry = plain(value)
        check = _ENTRIES.get(name)
        if check is None or check(entry):
            found[clean_text(name)] = entry
        elif name == "sessions" and isinstance(entry, list):
            found[name] = [each for each in entry if _is_session(each)]
    return found


def plain(value: Any, depth: int = MAX_DEPTH, of_fact: bool = False) -> Any:
    """JSON without what cannot be written again. Facts may hold NaN and infinities; elsewhere those are None."""
    if isinstance(value, str):
        return clean_text(value) if of_fact else clean_text(value).replace("\0", "\N{REPLACEMENT CHARACTER}")
    if isinstance(value, float):
        return value if of_fact or math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) <= MAX_INTEGER else None
    if not isinstance(value, dict | list):
        return value
    if not depth:
        return None
    if isinstance(value, list):
        return [plain(each, depth - 1, of_fact) for each in value]
    return {clean_text(name): plain(each, depth - 1, of_fact) for name, each in value.items()}


def clean_text(value: str) -> str:
    """The text without halves of surrogate pairs, which cannot be written anywhere."""
    return value.encode("utf-8", "replace").decode()


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_WORD


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_date(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= LATEST


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _mapping_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _mapping(**checks: Check) -> Check:
    """With these entries of these types, where they are there."""

    def check(value: Any) -> bool:
        return isinstance(value, dict) and all(test(value[name]) for name, test in checks.items() if name in value)

    return check


_is_session = _mapping(number=_is_count, started=_is_date, ended=_is_date, status=_is_word)

_ENTRIES: dict[str, Check] = {
    "format": _is_count,
    "torchdoctor": _is_word,
    "name": _is_word,
    "status": _is_word,
    "started": _is_date,
    "ended": _is_date,
    "steps": _is_count,
    "rank": _is_count,
    "argv": _list_of(_is_text),
    "cwd": _is_text,
    "script_sha256": _is_word,
    "origin": _is_word,
    "platform": _is_word,
    "python": _mapping_of(_is_text),
    "packages": _mapping_of(_is_text),
    "environment": _mapping_of(_is_text),
    "hardware": _mapping(cpu=_is_word, cores=_optional(_is_count), memory_bytes=_is_number, gpus=_list_of(_is_word)),
    "git": _mapping(commit=_is_word, branch=_is_word, dirty=_is_flag, diff=_is_text, diff_cut=_is_flag),
    "process": _mapping(pid=_is_count, boot=_is_word, namespace=_is_word, begun=_optional(_is_count)),
    "sessions": _list_of(_is_session),
    "seeds": _mapping_of(_optional(lambda value: _is_number(value) or _is_text(value))),
    "torch_threads": _is_count,
    "overhead": _optional(_is_number),
    "overhead_budget": _is_number,
    "exception": _mapping(type=_is_text, message=_is_text, file=_optional(_is_text), line=_optional(_is_count)),
    "captures": _list_of(_mapping(step=_is_count, reason=_is_word, name=_is_word)),
    "dropped": _mapping_of(_is_count),
    "thinned": _mapping(),
    "options": _mapping(),
}
