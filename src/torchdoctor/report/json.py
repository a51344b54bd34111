"""A verdict as strict JSON: what `--json FILE` writes."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Set
from enum import Enum
from pathlib import Path
from typing import Any

from torchdoctor.errors import UsageError
from torchdoctor.findings import Verdict
from torchdoctor.scrubbing import scrub


def dump(verdict: Verdict) -> str:
    """The verdict under the public schema; NaN and infinities are null, so that any JSON parser reads it."""
    return encode(verdict.to_dict())


def write(verdict: Verdict, path: str | Path) -> None:
    """Write it to a file, whole or not at all; "-" is the standard output."""
    write_text(dump(verdict), path)


def encode(value: Any) -> str:
    """Any plain data as strict JSON, indented for people and without secrets."""
    return json.dumps(scrub(strict(value), names=False), indent=2, allow_nan=False) + "\n"


def strict(value: Any) -> Any:
    """The same data in types that JSON has; what it has no type for becomes its text."""
    if isinstance(value, Enum):
        return strict(value.value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    if isinstance(value, Set):
        return sorted((strict(v) for v in value), key=str)
    if hasattr(value, "tolist"):
        return strict(value.tolist())
    return str(value)


def write_text(text: str, path: str | Path) -> None:
    """Write a text to a file by renaming a finished copy over it; "-" is the standard output."""
    if str(path) == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    target = Path(path)
    if not target.parent.is_dir():
        raise UsageError(f"cannot write {target}: there is no folder {target.parent}; make it first")
    if target.is_dir():
        raise UsageError(f"cannot write {target}: it is a folder; name a file in it")
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
        else:
            _replace(target, text)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror or error}") from error


def _replace(target: Path, text: str) -> None:
    target = target.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
