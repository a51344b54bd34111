"""An instrument measures a script's training in a process of its own."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torchdoctor.attach.target import Target
from torchdoctor.takeover.process import Attempt, explain, take_over

AGAIN = 3
"""Processes at most."""


@dataclass(frozen=True)
class Request:
    target: Target
    instrument: str
    options: dict[str, Any] = field(default_factory=dict)
    """as takeover.measures takes them"""
    checkpoint: str | None = None
    """weights that the model gets first"""
    draws: bool = False
    timeout: float = 600.0


@dataclass
class Measurement:
    """What came of it, as plain data."""

    text: str | None = None
    """None where nothing came of it"""
    result: dict[str, Any] = field(default_factory=dict)
    figure: str | None = None
    """Plotly's JSON, if it was asked for"""
    subject: dict[str, Any] | None = None
    """what was measured"""
    problem: str | None = None
    why_not: str | None = None
    """the loop cannot be driven"""
    over: str | None = None
    """the script's loop ended before the instrument was done"""
    output: str = ""
    """the end of what the script printed, where it failed"""


def measure_script(request: Request, tell: Callable[[dict[str, Any]], None] = lambda _: None) -> Measurement:
    """`tell` gets every line as it comes: {"subject": {...}}, {"doing": text, "total": n, "parts": n} and the like."""
    with tempfile.TemporaryDirectory(prefix="torchdoctor-") as folder:
        return _measure(request, tell, Path(folder))


def _measure(request: Request, tell: Callable[[dict[str, Any]], None], held: Path) -> Measurement:
    to = request.options.get("to")
    asked: dict[str, Any] = {
        "instrument": request.instrument,
        "options": request.options | ({"to": _hold(to, held / "to")} if to is not None else {}),
        "checkpoint": request.checkpoint,
        "weights": _hold(request.checkpoint, held / "from") if request.checkpoint is not None else None,
        "draws": request.draws,
    }
    # A validation comes later than the first steps.
    at_once = not request.options.get("validation")
    found, attempt = Measurement(), Attempt(early=at_once, quick=at_once)
    waited = False
    """more batches were waited for; a script that ends before they come is measured with the few it has"""

    def hear(line: dict[str, Any]) -> None:
        for name in ("text", "result", "figure", "subject", "why_not", "over"):
            if line.get(name) is not None:
                setattr(found, name, line[name])
        tell(line)

    deadline = time.monotonic() + request.timeout
    for _ in range(AGAIN):
        seconds, asked["few"] = deadline - time.monotonic(), waited and attempt.early
        last, output = take_over("torchdoctor.takeover.instrument", request.target, attempt, asked, seconds, hear)
        if found.text is not None:
            return found
        if last.get("later"):
            attempt, waited = replace(attempt, early=False), True
            continue
        found.problem = found.why_not or found.over or last.get("refused")
        if found.problem is None and "killed" in last:
            found.problem = last["killed"]
        if found.problem is not None:
            found.output = output if found.over and "failed" in found.over else ""
            return found
        following = attempt.after(last) if found.subject is None else None
        if following is None:
            stopped = last.get("failed") or "its process ended before the instrument was done"
            found.problem = stopped if found.subject is not None else explain(last)
            found.output = output
            return found
        attempt = following
    found.problem = explain(last)
    return found


def _hold(file: str, folder: Path) -> str:
    """The same file by another name: by its own the script would find what it has just saved there itself."""
    folder.mkdir()
    held = folder / Path(file).name
    source = Path(file).resolve()
    try:
        os.link(source, held)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, held)
    return str(held)
