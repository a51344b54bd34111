"""JSON as the store writes it: whatever goes into a run folder as JSON comes through here and holds no secrets."""

from __future__ import annotations

import json
import sys
from typing import Any

from torchdoctor.scrubbing import may_hold_secret, scrub


def write_json(data: Any, *, indent: int | None = None, strict: bool = False, names: bool = False) -> str:
    """The data as JSON text, without secrets. `strict`: ValueError for NaN and what JSON has no type for; `names`: the
    names below the first level are the user's own, as in a configuration, and those of secrets hide their values.

    Where the text gives no sign of a secret it is taken as it is, since most of what is written is numbers and names.
    """
    options: dict[str, Any] = {"allow_nan": False} if strict else {"default": _plain}
    separators = (",", ":") if indent is None else None
    text = json.dumps(data, indent=indent, separators=separators, **options)
    if not may_hold_secret(text):
        return text
    plain = json.loads(text)  # so that what `default` made of an object is looked at, too
    clean = {k: scrub(v, names) for k, v in plain.items()} if isinstance(plain, dict) else scrub(plain, names)
    return json.dumps(clean, indent=indent, separators=separators, **options)


def _plain(value: Any) -> Any:
    """Return NumPy scalars and arrays as numbers and lists, and other objects as text."""
    numpy = sys.modules.get("numpy")  # not imported for those who write none of its numbers
    is_numpy = numpy is not None and isinstance(value, numpy.generic | numpy.ndarray)
    return value.tolist() if is_numpy else str(value)
