"""Checking the labels without any tool: a healthy program keeps its promise, and a fault harms, with every seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from field.programs import CONFIRMED, HIGHER, Case
from field.projects import COUNTED, Project
from field.running import Result, run_bare

SEEDS = (0, 1, 2)
LONGEST = 30.0
"""CPU seconds that one program may take."""


@dataclass(frozen=True)
class Confirmation:
    """The metric of one case with every seed, and what speaks against its label."""

    label: str
    metrics: tuple[float | None, ...]
    cpu_seconds: float
    objections: tuple[str, ...]


def confirm(cases: Sequence[Case], jobs: int) -> int:
    """Run every case bare with several seeds, write what was measured beside the cases, and print objections."""
    with ThreadPoolExecutor(jobs) as pool:
        confirmations = list(pool.map(_confirm_one, cases))
    healthy = {(c.project.name, c.program.name): r for c, r in zip(cases, confirmations, strict=True) if not c.fault}
    checked = [_with_harm(c, r, healthy) for c, r in zip(cases, confirmations, strict=True)]
    for project in dict.fromkeys(case.project for case in cases):
        _write(project, [r for c, r in zip(cases, checked, strict=True) if c.project == project])
    for case, result in zip(cases, checked, strict=True):
        if result.objections and case.project.half != COUNTED:
            print(f"{result.label}: {'; '.join(result.objections)}")
    wrong = sum(bool(result.objections) for result in checked)
    print(f"{len(checked)} cases, {wrong} with objections")
    return 1 if wrong else 0


def _confirm_one(case: Case) -> Confirmation:
    results = [run_bare(case, seed) for seed in SEEDS]
    metrics = tuple(result.metric for result in results)
    seconds = max(result.cpu_seconds for result in results)
    objections = (
        [] if seconds <= LONGEST else [f"takes {seconds:.0f} s of CPU time, at most {LONGEST:.0f} s are allowed"]
    )
    if case.fault is None:
        objections += _broken_promises(case, results)
    return Confirmation(case.label, metrics, seconds, tuple(objections))


def _broken_promises(case: Case, results: Sequence[Result]) -> list[str]:
    objections = []
    for seed, result in zip(SEEDS, results, strict=True):
        if result.status != 0:
            objections.append(f"seed {seed} ends with status {result.status}: {result.output.strip()[-200:]}")
        elif result.metric is None:
            objections.append(f"seed {seed} prints no metric")
        elif not case.program.metric.is_reached(result.metric):
            objections.append(f"seed {seed} reaches {result.metric:.4g}, promised {case.program.metric.promise:g}")
    return objections


def _with_harm(case: Case, result: Confirmation, healthy: dict[tuple[str, str], Confirmation]) -> Confirmation:
    """A fault harms where each of its seeds ends worse than every seed of the healthy program, or ends at all badly."""
    sound = healthy.get((case.project.name, case.program.name))
    if case.fault is None or sound is None or any(m is None for m in sound.metrics):
        return result
    if case.fault.slower is not None:
        return _with_delay(case.fault.slower, result, sound)
    good = [m for m in sound.metrics if m is not None]
    higher = case.program.metric.better == HIGHER
    worst = min(good) if higher else max(good)
    harmless = [m for m in result.metrics if m is not None and (m >= worst if higher else m <= worst)]
    if not harmless:
        return result
    objection = f"does not harm: {', '.join(f'{m:.4g}' for m in harmless)}, healthy at worst {worst:.4g}"
    return Confirmation(result.label, result.metrics, result.cpu_seconds, (*result.objections, objection))


def _with_delay(slower: float, result: Confirmation, sound: Confirmation) -> Confirmation:
    ratio = result.cpu_seconds / sound.cpu_seconds
    if ratio >= slower:
        return result
    objection = f"takes {ratio:.2f} times the processor time of the healthy program, expected at least {slower:g}"
    return Confirmation(result.label, result.metrics, result.cpu_seconds, (*result.objections, objection))


def _write(project: Project, results: Sequence[Confirmation]) -> None:
    path: Path = project.folder / CONFIRMED
    known = json.loads(path.read_text()) if path.exists() else {}
    for result in results:
        known[result.label] = {
            "metrics": result.metrics,
            "cpu_seconds": round(result.cpu_seconds, 1),
            "objections": result.objections,
        }
    path.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
