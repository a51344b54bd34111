"""What benchmarks share in telling their results: a section of RESULTS.md between its marks, a bar, the commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS.md"


def marks(name: str) -> tuple[str, str]:
    return f"<!-- {name} -->", f"<!-- /{name} -->"


def write(text: str, marks: tuple[str, str], path: Path = RESULTS) -> None:
    """Put the section between its marks, or at the end where there are none."""
    begin, end = marks
    old = path.read_text() if path.exists() else "# Measured\n"
    before, found, rest = old.partition(begin)
    after = rest.partition(end)[2].strip() if found else ""
    path.write_text(f"{before.rstrip()}\n\n{text}\n" + (f"\n{after}\n" if after else ""))


def bullets(lines: list[str]) -> list[str]:
    return [*(f"- {line}" for line in lines), ""] if lines else []


def progress() -> Progress:
    """With a field `now` for what was done last."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[now]}", style="dim"),
        console=Console(stderr=True),
    )


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"
