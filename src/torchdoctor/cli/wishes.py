"""Checks of what `torchdoctor run` was asked for, made before the script starts and without importing numpy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchdoctor.errors import UsageError
from torchdoctor.findings import Severity
from torchdoctor.settings import Settings, discover, find_name, read
from torchdoctor.view.panel import LEAST_ROWS

PAGES = (".html", ".htm")


def read_severity(text: str | None) -> Severity | None:
    if text is None:
        return None
    try:
        return Severity(text.lower())
    except ValueError:
        raise UsageError(f"--fail-on takes error, warning or info, not {text!r}") from None


def read_view_rows(rows: int | None, live: bool) -> int | None:
    if rows is not None and not live:
        raise UsageError("--view-rows is for the view that --live draws; give --live, too")
    if rows and rows < LEAST_ROWS:
        raise UsageError(f"--view-rows takes {LEAST_ROWS} or more, or 0 for no view in this terminal, not {rows}")
    return rows


def read_run_name(name: str) -> str:
    if name in ("", ".", "..") or any(c in "/\\\0" for c in name):
        raise UsageError(f"--name must be the name of a folder, not {name!r}; --out says where that folder is made")
    return name


def check_folder(folder: Path) -> Path:
    """It is there, or can be made, and files can be made in it; nothing is made yet."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        raise UsageError(f"cannot write runs to {folder}: {existing} is a file; give another folder with --out")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write runs to {folder}: {existing} is read-only; give another folder with --out")
    return folder


def check_output(text: str, option: str) -> Path:
    if text == "-":
        raise UsageError(f"{option} needs a file, since the standard output belongs to the script")
    path = Path(text).absolute()
    if path.is_dir():
        raise UsageError(f"cannot write the verdict to {path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write the verdict to {path}: there is no folder {path.parent}; make it first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"cannot write the verdict to {path}: it is read-only; give another file with {option}")
    return path


def check_page(text: str) -> Path:
    """For a figure: a picture's name would give a file that no viewer opens."""
    if Path(text).suffix.lower() not in PAGES:
        raise UsageError(f"--plot writes a page to open in a browser: name it {Path(text).stem or 'picture'}.html")
    return check_output(text, "--plot")


def read_names(given: Sequence[str]) -> tuple[str, ...]:
    """Names of diagnoses, from names or codes; several may be joined by commas."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(find_name(name, "--stop-on") for name in names))


def read_settings(
    config: str | None,
    select: Sequence[str],
    ignore: Sequence[str],
    severity: Sequence[str],
    threshold: Sequence[str],
    folders: Sequence[Path],
) -> Settings:
    """What the project's file says, and the command line over it."""
    here = Path.cwd()
    settings = read(here / config) if config is not None else discover(here)
    settings = settings.updated(select=select, ignore=ignore, severity=severity, thresholds=threshold)
    return replace(settings, folders=tuple(dict.fromkeys(str(f) for f in (here, *folders))))
