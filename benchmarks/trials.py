"""One case of the zoo, run once through the real tool: its verdict, when it could have been told, and what peers say.

    case x seed x grade  --torchdoctor run-->  verdict.json and a record  --read again-->  Outcome

Outcomes are kept in a JSON-lines file under a hash of the script, of torchdoctor's source and of seed and grade, so
that a run that was broken off can be resumed, and nothing stale is ever reused. Records can be kept, too: then rules
that changed are asked again without training again.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import peers
import warm
from torchdoctor import rules, zoo
from torchdoctor.attach.live import ALARMS, CONFIRMATIONS, FIRST_STEPS, GROWTH
from torchdoctor.engine import examine
from torchdoctor.facts import NonfiniteFact
from torchdoctor.findings import Finding, Proof, Severity
from torchdoctor.run import Run, Trace
from torchdoctor.store.reader import open_run

SOURCE = Path(zoo.__file__).parents[1]
GRADES = ("mild", "medium", "severe")
UNGRADED = ""
SINGLE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
LOOKS_MOST = 60
"""Examinations of a growing record; the live engine's own cadence reaches a million steps with as many."""

REMARKS = ("clipping-by-value",)
"""What the catalogue itself ranks as an info."""


@dataclass(frozen=True)
class Trial:
    """A script, a seed and a grade. `part` is "zoo" or "untouched"."""

    part: str
    case: str
    diagnosis: str
    kind: str
    truth: str | None
    path: str
    seed: int
    grade: str

    @property
    def label(self) -> str:
        return f"{self.case} seed {self.seed}{' ' + self.grade if self.grade else ''}"

    def key(self, source: str = "") -> str:
        """By the source of torchdoctor that examines it; without it, the key of the record."""
        script = Path(self.path).read_bytes()
        return _digest([source.encode(), script, f"{self.part} {self.case} {self.seed} {self.grade}".encode()])


@dataclass(frozen=True)
class Outcome:
    """What came of a trial. `error` says why there is no verdict, where there is none."""

    trial: Trial
    seconds: float
    findings: list[dict[str, Any]] = field(default_factory=list)
    ruled_out: list[str] = field(default_factory=list)
    failed_rules: list[str] = field(default_factory=list)
    steps: int = 0
    told_at: int | None = None
    """the step at which the live engine, asking at its own cadence, would have told the truth"""
    peers: dict[str, list[str]] = field(default_factory=dict)
    """peer -> its rules that fire on the same record"""
    status: int = 0
    error: str | None = None

    @property
    def grave(self) -> list[dict[str, Any]]:
        return [f for f in self.findings if f["severity"] != Severity.INFO.value]

    @property
    def named_first(self) -> bool:
        told = bool(self.grave) or self.trial.truth in REMARKS
        return told and bool(self.findings) and self.findings[0]["name"] == self.trial.truth

    @property
    def named(self) -> bool:
        return any(f["name"] == self.trial.truth for f in self.findings)


def list_trials(part: str, folder: Path | None, seeds: range, grades: Sequence[str]) -> list[Trial]:
    """Every case of a folder for its seeds and grades; a script that reads neither runs once.

    Cases that need a CUDA device are left out where there is none: nothing can be told from them.
    """
    found = []
    for case in zoo.cases(folder):
        if not can_run(case):
            continue
        text = case.path.read_text(encoding="utf-8")
        for grade in grades if "GRADE" in text else (UNGRADED,):
            for seed in seeds if "SEED" in text else (0,):
                found.append(Trial(part, case.name, case.diagnosis, case.kind, case.truth, str(case.path), seed, grade))
    return found


def can_run(case: zoo.Case) -> bool:
    return not case.needs_cuda or torch.cuda.is_available()


def source_digest() -> str:
    """Of torchdoctor's own code, the zoo's scripts left out: each of those counts for itself alone."""
    files = sorted(p for p in SOURCE.rglob("*.py") if p.relative_to(SOURCE).parts[:1] != ("zoo",))
    return _digest(part for p in files for part in (str(p.relative_to(SOURCE)).encode(), p.read_bytes()))


def _digest(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(hashlib.sha256(part).digest())
    return total.hexdigest()[:24]


def perform(
    trial: Trial, timeout: float, script: str | None = None, records: Path | None = None, again: bool = False
) -> Outcome:
    """Run it in a process of its own and read what it left; `script` stands in for the case's own text.

    With `records` its record is kept there; with `again` a record that is there is examined instead of a new run.
    """
    began = time.monotonic()
    kept = records / trial.key() if records is not None and script is None else None
    if kept is not None and again and kept.is_dir():
        verdict = json.loads(json.dumps(examine(open_run(kept)).to_dict(), default=str))
        return _read(trial, time.monotonic() - began, 0, verdict, kept)
    with tempfile.TemporaryDirectory(prefix="bench-diagnosis-") as name:
        folder = Path(name)
        path = Path(trial.path)
        if script is not None:
            path = folder / path.name
            path.write_text(script, encoding="utf-8")
        command = ["run", "--quiet", "--out", "runs", "--name", "run", "--json", "verdict.json", str(path)]
        environment = {**SINGLE_THREAD, "SEED": str(trial.seed), "GRADE": trial.grade or "medium"}
        status, said = warm.run(command, folder, environment, timeout)
        if status is None:
            return Outcome(trial, time.monotonic() - began, error=f"no verdict within {timeout:.0f} s")
        seconds = time.monotonic() - began
        verdict = folder / "verdict.json"
        if not verdict.exists():
            last = said.strip().splitlines()[-1:] or ["nothing was said"]
            return Outcome(trial, seconds, status=status, error=f"no verdict: {last[0]}")
        record = folder / "runs" / "run"
        if kept is not None and record.is_dir():
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(record, kept)
        return _read(trial, seconds, status, json.loads(verdict.read_text()), record)


def _read(trial: Trial, seconds: float, status: int, verdict: dict[str, Any], record: Path) -> Outcome:
    try:
        run = open_run(record)
    except Exception as error:
        return Outcome(trial, seconds, verdict["findings"], status=status, error=f"record: {error}")
    broken = [n for n in verdict["not_examined"] if any(need.startswith("rule failed") for need in n["needs"])]
    return Outcome(
        trial,
        seconds,
        findings=verdict["findings"],
        ruled_out=[r["name"] for r in verdict["ruled_out"]],
        failed_rules=[f"{n['name']}: {n['needs'][0]}" for n in broken],
        steps=run.steps,
        told_at=told_at(run, trial.truth) if trial.truth else None,
        peers=peers.read(run),
        status=status,
    )


def told_at(run: Run, name: str) -> int | None:
    """The step at which the rule, asked as the live engine asks, would have been told as an error or a warning.

    The record is cut at each of the engine's steps; a structural finding counts at once, a statistical one when two
    examinations in a row have it. The finished record is the last examination.
    """
    loaded = rules.find(name)
    if loaded is None:
        return None
    confirmed = 0
    for step in _examinations(run):
        part = until(run, step)
        found = None if loaded.rule.missing(part) else _ask(loaded, part)
        confirmed = confirmed + 1 if found else 0
        if found and (found.proof is Proof.STRUCTURE or confirmed >= CONFIRMATIONS):
            return step
    return run.steps if not loaded.rule.missing(run) and _ask(loaded, run) else None


def _ask(loaded: rules.LoadedRule, run: Run) -> Finding | None:
    try:
        said = list(loaded.detect(run))
    except Exception:
        return None
    return next((f for f in said if isinstance(f, Finding) and f.severity is not Severity.INFO), None)


def _examinations(run: Run) -> list[int]:
    """The engine's own steps, and the ones after values were first not finite."""
    steps = run.steps
    chosen, at = [s for s in FIRST_STEPS if s < steps], float(FIRST_STEPS[-1])
    while len(chosen) < LOOKS_MOST:
        at = max(at + 10, at * GROWTH)
        if at >= steps:
            break
        chosen.append(int(at))
    alarms = {step + 1 for step, _ in run.facts_at(NonfiniteFact) if step + 1 < steps}
    return sorted({*chosen, *sorted(alarms)[:ALARMS]})


def until(run: Run, step: int) -> Run:
    """The same run as it stood when that step had been done."""

    def load(name: str, key: str) -> Trace:
        trace = run.load(name, key)
        cut = trace.between(0, step)
        parts = [t for t in (trace.head, trace.tail) if t is not None]
        if trace.merged > 1 and parts and step <= int(parts[0].steps[-1]):
            cut = parts[0].between(0, step)
        return cut

    return Run(run.info, run.available, load, [s for s in run.seen if s.step <= step], steps=step, finished=False)


class Cache:
    """Outcomes by key, one JSON object a line, appended as they come."""

    def __init__(self, path: Path, resume: bool) -> None:
        self.path = path
        self.known: dict[str, Outcome] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        if resume and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                self._take(line)
        elif path.exists():
            path.unlink()

    def _take(self, line: str) -> None:
        try:
            data = json.loads(line)
            key = data.pop("key")
            self.known[key] = Outcome(**{**data, "trial": Trial(**data["trial"])})
        except (ValueError, TypeError, KeyError):
            return

    def keep(self, key: str, outcome: Outcome) -> None:
        self.known[key] = outcome
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, **asdict(outcome)}) + "\n")
