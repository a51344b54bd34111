"""Outcomes of `torchdoctor check`, beside the runs: RUNS/checks/NAME.json, the newest of them kept.

A run's page shows the newest check of its own script. Reading trusts nothing: what is not exactly what `keep_check`
writes is left out, and no path in it is followed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchdoctor.opening import open_plain
from torchdoctor.store.documents import write_json
from torchdoctor.store.environment import without_home
from torchdoctor.store.files import replace_file
from torchdoctor.store.trusted import build, shortened

CHECKS = "checks"
MOST = 50
"""Checks that are kept in a folder of runs, the newest of them."""
MAX_BYTES = 1_000_000
MOST_MADE = 500
LONGEST = 2000
"""Characters of any one text in it."""
_NAME = re.compile(r"check-(\d{1,12})-(\d{1,10})\.json")


@dataclass(frozen=True)
class Made:
    """One check, as it stands in the JSON of `torchdoctor check`."""

    name: str
    part: str
    asks: str
    text: str
    passed: bool | None = None
    severity: str | None = None
    diagnosis: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Checked:
    """One `torchdoctor check` of a script."""

    when: float
    script: str
    """where it lies; the home folder as ~"""
    digest: str
    """SHA-256 of the script then; empty where it could not be read"""
    command: list[str]
    quick: bool = False
    problem: str | None = None
    """why nothing, or too little, could be checked"""
    checks: list[Made] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """what the rules found in the first steps, a title each"""


def keep_check(runs: Path, checked: Checked) -> Path:
    """Write it and remove the oldest beyond those that are kept. OSError where the folder cannot be written to."""
    folder = runs / CHECKS
    if folder.is_symlink():
        raise OSError(f"{folder} is a link")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"check-{int(checked.when)}-{os.getpid()}.json"
    replace_file(path, write_json(shortened(dataclasses.asdict(checked), LONGEST, MOST_MADE), indent=1).encode())
    for old in _names(folder)[MOST:]:
        with contextlib.suppress(OSError):
            (folder / old).unlink()
    return path


def find_check(runs: Path, info: Mapping[str, Any], most: int = MOST) -> Checked | None:
    """The newest check of the script that recorded the run; `info` is the run's."""
    wanted = script_of(info)
    folder = runs / CHECKS
    if not wanted or folder.is_symlink():
        return None
    found = (_read(folder / name) for name in _names(folder)[:most])
    return next((checked for checked in found if checked is not None and checked.script == wanted), None)


def script_of(info: Mapping[str, Any]) -> str:
    """Where the script of a run lies, by its record alone: nothing is looked for there. Empty where it does not say."""
    argv, cwd = info.get("argv"), info.get("cwd")
    if not isinstance(argv, list) or not argv or not isinstance(argv[0], str) or not isinstance(cwd, str):
        return ""
    try:
        joined = os.path.join(os.path.expanduser(cwd), os.path.expanduser(argv[0]))  # noqa: PTH111, PTH118
        return without_home(Path(os.path.normpath(joined)))
    except (ValueError, RuntimeError):
        return ""


def _names(folder: Path) -> list[str]:
    """The newest first."""
    try:
        held = [entry.name for entry in os.scandir(folder) if _NAME.fullmatch(entry.name)]
    except OSError:
        return []
    return sorted(held, key=lambda name: [int(part) for part in _NAME.fullmatch(name).groups()], reverse=True)  # type: ignore[union-attr]


def _read(path: Path) -> Checked | None:
    try:
        descriptor = open_plain(path)
        if descriptor is None:
            return None
        with os.fdopen(descriptor, "rb") as file:
            text = file.read(MAX_BYTES + 1)
        data = json.loads(text) if len(text) <= MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    made = data.pop("checks", [])
    if not isinstance(made, list):
        return None
    checks = [check for each in made[:MOST_MADE] if (check := build(Made, each, LONGEST, MOST_MADE)) is not None]
    found = build(Checked, data, LONGEST, MOST_MADE, beside=("checks",))
    return dataclasses.replace(found, checks=checks) if found is not None else None
