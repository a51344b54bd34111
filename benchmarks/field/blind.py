"""A case as a second labeller sees it: what runs and what it measures, without its name, its label or its source."""

from __future__ import annotations

import difflib
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path

from field.environment import BASE, place, prepare
from field.programs import SCRIPT, Case

CONTEXT = 12
"""Unchanged lines around an edit. The whole script is shown anyway, but not what lies beside it."""


def describe(case: Case, number: int) -> str:
    """Return everything that one labels a case from, under a neutral number."""
    healthy = Case(case.project, case.environment, case.program)
    parts = [f"{'=' * 30} Case {number} {'=' * 30}", _question(case), f"--- {SCRIPT}", case.script.read_text()]
    parts += [f"arguments: {_quoted(healthy.arguments)}", _measured(healthy)]
    if case.fault is not None:
        parts += ["--- with the change", f"arguments: {_quoted(case.arguments)}", _measured(case), _diff(healthy, case)]
    return "\n".join(parts)


def _question(case: Case) -> str:
    if case.fault is None:
        return "Is anything wrong with this program?"
    return "What is wrong with this program after the change?"


def _quoted(arguments: Sequence[str]) -> str:
    return shlex.join(arguments) or "(none)"


def _measured(case: Case) -> str:
    """Describe the confirmed metrics of the script with each seed."""
    known = case.confirmed()
    if known is None:
        return "not measured yet"
    values = ", ".join("none" if value is None else f"{value:.4g}" for value in known["metrics"])
    return (
        f"last metric with each seed ({case.program.metric.better} is better): {values}; {known['cpu_seconds']} CPU s"
    )


def _diff(healthy: Case, changed: Case) -> str:
    files = sorted(changed.fault.edits) if changed.fault else []
    before, after = (_texts(case, files) for case in (healthy, changed))
    return "\n".join(
        line
        for name in files
        for line in difflib.unified_diff(before[name], after[name], name, name, n=CONTEXT, lineterm="")
    )


def _texts(case: Case, files: Sequence[str]) -> dict[str, list[str]]:
    """Return the lines of some of a case's files as they would run."""
    own = prepare(case.project, case.environment) if case.program.copies else BASE
    with tempfile.TemporaryDirectory(prefix="field-") as name:
        folder = Path(name)
        place(case, own, folder)
        return {file: (folder / file).read_text(encoding="utf-8").split("\n") for file in files}
