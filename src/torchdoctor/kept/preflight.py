"""The newest `torchdoctor check` of a run's script, in words: how old it is, whether the script is still the same."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

from torchdoctor.kept.captures import near
from torchdoctor.report.replayed import moment
from torchdoctor.report.text import clean, count
from torchdoctor.run import Run
from torchdoctor.store.checked import Checked, Made, find_check

PARTS = {"model": "Model", "data": "Data", "procedure": "Procedure", "cost": "Cost"}
USUAL_FOLDER = "torchdoctor-runs"
"""Where checks are kept without being told."""
CHANGED = "The script is not the same: it changed between the check and this run."
SPANS = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"))


def describe_preflight(runs: Path, run: Run) -> dict[str, Any]:
    """Beside a run in that folder; `parts` is empty where the script was never checked."""
    checked = find_check(runs, run.info)
    told: dict[str, Any] = {"command": check_command(runs, run), "parts": [], "said": "", "warning": ""}
    told |= {"faults": [], "problem": ""}
    if checked is None:
        return told
    parts = [
        {"name": heading, "checks": [_check(c) for c in checked.checks if c.part == part]}
        for part, heading in PARTS.items()
    ]
    same = _same(checked, run)
    return told | {
        "parts": [part for part in parts if part["checks"]],
        "said": f"{_summary(checked)} {_age(checked, run)}" + (" The script is still the same." if same else ""),
        "warning": CHANGED if same is False else "",
        "faults": [clean(title) for title in checked.faults],
        "problem": clean(checked.problem or ""),
    }


def check_command(runs: Path, run: Run) -> str:
    argv = run.info.get("argv")
    words = [str(word) for word in argv] if isinstance(argv, list) and argv else ["train.py"]
    out = [] if runs.name == USUAL_FOLDER else ["--out", near(runs)]
    return clean(shlex.join(["torchdoctor", "check", *out, *words]))


def _check(check: Made) -> dict[str, str]:
    bad = check.severity if check.severity in ("error", "warning", "info") else "error"
    mark = "healthy" if check.passed else "unknown" if check.passed is None else bad
    return {
        "mark": mark,
        "asks": clean(check.asks),
        "text": clean(check.text),
        "diagnosis": clean(check.diagnosis or ""),
    }


def _summary(checked: Checked) -> str:
    passed = sum(c.passed is True for c in checked.checks)
    failed = sum(c.passed is False for c in checked.checks)
    unmade = len(checked.checks) - passed - failed
    kind = "torchdoctor check --quick" if checked.quick else "torchdoctor check"
    return f"{kind}: {count(passed, 'check')} passed, {failed} failed, {unmade} could not be made."


def _age(checked: Checked, run: Run) -> str:
    began = run.info.get("started")
    at = f"Made on {moment(checked.when)}" if moment(checked.when) else "Made at an unknown time"
    if not isinstance(began, int | float) or not math.isfinite(began - checked.when):
        return f"{at}."
    away = abs(began - checked.when)
    size = next((count(int(away // s), unit) for s, unit in SPANS if away >= s), "less than a minute")
    return f"{at}, {size} {'before' if checked.when <= began else 'after'} this run began."


def _same(checked: Checked, run: Run) -> bool | None:
    """Whether the script was the same, by its digest; None where that is not known."""
    mine = run.info.get("script_sha256")
    return mine == checked.digest if checked.digest and isinstance(mine, str) and mine else None
