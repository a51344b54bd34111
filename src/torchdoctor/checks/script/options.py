"""A script's options as if it had been asked to go on from a checkpoint of ours."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import os
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

PATH = re.compile(
    r"path|file|fname|dir|folder|ckpt|checkpoint|resume|weights|snapshot|load_from|save_to|output|^f$", re.I
)
"""Names of what holds a path."""
RESUME = re.compile(r"resum|continue_|restart|warm_start|recover", re.I)
"""What people call it to go on with a training."""


class PathText(str):
    """A path as a text, which is also joined as a Path is."""

    def __truediv__(self, other: Any) -> PathText:
        return PathText(os.path.join(self, other))  # noqa: PTH118 - texts stay texts


def asked_to_resume(names: dict[str, Any], path: PathText) -> dict[str, Any]:
    """With copies of what holds options, in which those that would name a checkpoint and are not set name ours."""
    return {name: _asked(value, path) for name, value in names.items()}


def _asked(options: Any, path: PathText) -> Any:
    if not isinstance(options, argparse.Namespace | SimpleNamespace) and not _is_settings(options):
        return options
    unset = [name for name, value in _entries(options) if _would_name(name, value)]
    if not unset:
        return options
    changed = copy.copy(options)
    for name in unset:
        if isinstance(changed, dict):
            changed[name] = path
        else:
            object.__setattr__(changed, name, path)
    return changed


def _is_settings(value: Any) -> bool:
    return type(value) is dict or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _entries(options: Any) -> Iterator[tuple[str, Any]]:
    held = options if isinstance(options, dict) else getattr(options, "__dict__", {})
    yield from ((name, value) for name, value in held.items() if isinstance(name, str))


def _would_name(name: str, value: Any) -> bool:
    if value is None or (value == "" and isinstance(value, str)):
        return bool(PATH.search(name) or RESUME.search(name))
    return value is False and bool(RESUME.search(name))
