"""Runs by their names: what `runs`, `diagnose` and `diff` take beside a path."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path("torchdoctor-runs")


def find_named(path: Path) -> Path:
    """The path, or the run of that name in the usual folder."""
    return FOLDER / path if not path.exists() and (FOLDER / path).is_dir() else path
