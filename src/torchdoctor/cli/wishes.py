"""Checks of what `torchdoctor run` was asked for, made before the script starts and without importing numpy."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torchdoctor.errors import UsageError
from torchdoctor.findings import Severity
from torchdoctor.launching import own_module
from torchdoctor.opening import NOWHERE, absolute, current_folder
from torchdoctor.settings import Settings, discover, find_name, read
from torchdoctor.view.panel import LEAST_ROWS

PAGES = (".html", ".htm")
TRIAL_BYTES = 1 << 16
"""What the beginning of a record takes on the disk."""
REQUIRED = "--require-recording"


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
    """The folder, if runs can be written to it; UsageError otherwise. Nothing is made yet."""
    obstacle = find_obstacle(folder)
    if obstacle is not None:
        raise UsageError(f"{obstacle}; give another folder with --out")
    return folder


def find_obstacle(folder: Path) -> str | None:
    """Why no run can be written to a folder, as far as that is known without making anything."""
    existing = folder
    try:
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        if folder.is_relative_to(NOWHERE):
            return f"cannot write runs to {folder.relative_to(NOWHERE)}: the current folder has been deleted"
        if not existing.is_dir():
            return f"cannot write runs to {folder}: {existing} is a file"
        if not os.access(existing, os.W_OK | os.X_OK):
            return f"cannot write runs to {folder}: {existing} is read-only"
    except OSError as error:
        return f"cannot write runs to {folder}: {error.strerror or error}"
    return None


def prove_recordable(run: Path) -> None:
    """UsageError unless this run can be recorded: its folder is made, some data are written to it and removed again,
    and what records is imported in a process of its own."""
    folder = next((p for p in run.parents if p.exists()), run.parent)
    try:
        run.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=run) as file:
            file.write(bytes(TRIAL_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UsageError(f"this run cannot be recorded in {run}: {error.strerror or error} ({REQUIRED})") from error
    finally:
        _remove_empty(run, folder)
    done = subprocess.run(own_module("torchdoctor.store.writer"), capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise UsageError(f"this run cannot be recorded, because the recorder cannot be imported: {reason} ({REQUIRED})")


def _remove_empty(run: Path, end: Path) -> None:
    """Folders that are empty, from one up to another that stays."""
    with contextlib.suppress(OSError):
        while run != end:
            run.rmdir()
            run = run.parent


def check_output(text: str, option: str) -> Path:
    """The file, if a verdict can be written to it; UsageError otherwise."""
    path = name_output(text, option)
    if not is_writable(path):
        raise UsageError(f"cannot write the verdict to {path}: it is read-only; give another file with {option}")
    return path


def name_output(text: str, option: str) -> Path:
    """The file that an option names; UsageError where it cannot be meant."""
    if text == "-":
        raise UsageError(f"{option} needs a file, since the standard output belongs to the script")
    path = absolute(text)
    if path.is_dir():
        raise UsageError(f"cannot write the verdict to {path}: it is a folder; name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"cannot write the verdict to {path}: there is no folder {path.parent}; make it first")
    return path


def is_writable(path: Path) -> bool:
    return os.access(path if path.exists() else path.parent, os.W_OK)


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
    here = current_folder()
    settings = read(here / config) if config is not None else discover(here)
    settings = settings.updated(select=select, ignore=ignore, severity=severity, thresholds=threshold)
    return replace(settings, folders=tuple(dict.fromkeys(str(f) for f in (here, *folders))))
