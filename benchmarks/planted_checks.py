"""Whether each pre-flight check finds its planted fault in several kinds of model, and leaves sound ones in peace.

    python benchmarks/planted_checks.py [--only GLOB] [--seeds N] [--write]

A fault is one thing broken in a sound program of `check_programs.py`; it counts as found where the check it was planted
for fails with an error or a warning, or gives it a right name. Every sound program gets all checks, with a few seeds;
a check counts as quiet where it says no error and no warning. `two-starts` is asked of scripts, by the command line;
what a full run takes is measured by `estimates.py`. `--only` takes 'CHECK/FAULT/KIND' or 'healthy/KIND'.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import check_faults_data  # noqa: F401
import check_faults_model  # noqa: F401
import check_faults_procedure  # noqa: F401  each lists its faults
from check_planting import FAULTS, Change, Fault
from check_programs import KINDS, build
from results import HERE, bullets, commit, marks, progress, write
from torchdoctor.checks.performing import choose
from torchdoctor.errors import TorchdoctorError
from trials import SINGLE_THREAD

MARKS = marks("planted checks")
STARTS = "two-starts"
ELSEWHERE = ("run-cost", STARTS)
"""Not asked of programs: measured by another benchmark, and of scripts only."""
CHECKS = tuple(c.check.name for c in choose(False, ()))
KINDS_PROMISED = 4
"""Of model that each check finds its fault in; causality and a few others have no more to offer."""
SCRIPT_SECONDS = 300
REVISED = (
    "The faults were written without a look at the checks, and 327 of them asked once (266 found, commit d1324bc); the "
    "61 missed were then looked at again, and the list is not blind since. Taken out: a constant layer between random "
    "ones (3) and Adam at 1.5 in the segmenter, which train as well as their twins; new noise for a denoiser and "
    "targets that are a series itself, which may be meant so; words unknown in the tagger, which still sees lengths. "
    "Moved or written anew: summed losses (3, now under useful-rate), a deep and loud decoder (now under "
    "initialisation), generators seeded once by the system (4, now at each step), two constant layers instead of one, "
    "layers in a plain list. Added: every word unknown (2), a class of 99 %, two more scripts."
)
"""How the list came about: whoever reads the figures has to know."""

SCRIPT = """
import os, random, sys, time
sys.path.insert(0, {here!r})
import numpy as np, torch
from check_programs import KINDS
{seeding}
program = KINDS[{kind!r}]()
{change}
model = program.model
train, validation = program.loaders()
optimizer = program.optimizer(model)
for epoch in range(program.epochs):
    for batch in train:
        optimizer.zero_grad()
        loss = program.loss_of(batch)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
SEEDED = "torch.manual_seed(0); np.random.seed(0); random.seed(0)"
JITTER = "jitter = np.random.default_rng()\nprogram.train.augment = lambda x, y: "
STARTED: dict[tuple[str, str], tuple[str, str]] = {
    ("torch-not-seeded", "images"): ("np.random.seed(0); random.seed(0)", ""),
    ("nothing-seeded", "denoiser"): ("", ""),
    ("seeded-by-the-clock", "siamese"): ("torch.manual_seed(time.time_ns() % 2**31)", ""),
    ("only-torch-seeded", "segmenter"): (
        "torch.manual_seed(0)",
        "order = list(range(len(program.train)))\nrandom.shuffle(order)\n"
        "program.train = torch.utils.data.Subset(program.train, order[:300])",
    ),
    ("numpy-not-seeded", "tabular"): (
        "torch.manual_seed(0)",
        "program.train.columns[0] += 0.1 * torch.from_numpy(np.random.randn(650, 6)).float()",
    ),
    ("augmented-by-an-unseeded-generator", "regressor"): (
        SEEDED,
        f"{JITTER}(x + 0.01 * torch.from_numpy(jitter.standard_normal(10)).float(), y)",
    ),
    ("vocabulary-in-the-order-of-a-set", "topics"): (
        SEEDED,
        "order = torch.tensor([0, *(int(w) for w in {str(i) for i in range(1, 60)})])\n"
        "for part in (program.train, program.validation): part.columns[0] = order[part.columns[0]]",
    ),
}
"""Faults of scripts: how they seed, and what else they do."""


@dataclass(frozen=True)
class Said:
    """What one check said of one program."""

    check: str
    kind: str
    passed: bool | None
    severity: str | None
    diagnosis: str | None
    text: str

    @property
    def alarms(self) -> bool:
        return self.passed is False and self.severity != "info"

    def __str__(self) -> str:
        how = {True: "passed", False: "a note", None: "not examined"}[self.passed]
        return f"{how}: {self.text}"


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    check: str | None
    """that the fault was planted for; none for a sound program"""
    names: tuple[str, ...]
    ask: Callable[[], list[dict[str, Any]]]


@dataclass(frozen=True)
class Answer:
    case: Case
    said: tuple[Said, ...]

    @property
    def found(self) -> bool:
        return any(s.alarms or (s.passed is False and s.diagnosis in self.case.names) for s in self.said)


def ask_program(kind: str, seed: int, changes: tuple[Change | None, ...], only: tuple[str, ...]) -> list[Any]:
    program = build(kind, seed)
    for change in changes:
        if change is not None:
            change(program)
    return program.check(only).to_dict()["checks"]


def ask_script(kind: str, seeding: str, change: str) -> list[Any]:
    with tempfile.TemporaryDirectory(prefix="bench-starts-") as folder:
        script, told = Path(folder) / "train.py", Path(folder) / "told.json"
        script.write_text(SCRIPT.format(here=str(HERE), kind=kind, seeding=seeding, change=change))
        command = [sys.executable, "-m", "torchdoctor", "check", "--only", STARTS, "--json", str(told), str(script)]
        subprocess.run(
            command, cwd=folder, env={**os.environ, **SINGLE_THREAD}, capture_output=True, timeout=SCRIPT_SECONDS
        )
        return json.loads(told.read_text())["checks"]


def healthy(seeds: int) -> Iterator[Case]:
    asked = tuple(name for name in CHECKS if name not in ELSEWHERE)
    for kind in KINDS:
        for seed in range(seeds):
            yield Case(f"healthy/{kind}/{seed}", kind, None, (), partial(ask_program, kind, seed, (), asked))
    twins = {(fault.check, fault.kind): fault for fault in FAULTS if fault.twin is not None}
    for (check, kind), fault in twins.items():
        ask = partial(ask_program, kind, 0, (fault.twin,), (check,))
        yield Case(f"healthy/{kind}/{check}", kind, None, (), ask)
    for _, kind in STARTED:
        yield Case(f"healthy/{kind}/{STARTS}", kind, None, (), partial(ask_script, kind, SEEDED, ""))


def sick() -> Iterator[Case]:
    def case(fault: Fault) -> Case:
        ask = partial(ask_program, fault.kind, 0, (fault.twin, fault.plant), (fault.check,))
        return Case(str(fault), fault.kind, fault.check, fault.names, ask)

    yield from map(case, FAULTS)
    for (name, kind), (seeding, change) in STARTED.items():
        yield Case(f"{STARTS}/{name}/{kind}", kind, STARTS, (), partial(ask_script, kind, seeding, change))


def answer(case: Case) -> Answer:
    try:
        told = case.ask()
    except (TorchdoctorError, subprocess.TimeoutExpired, OSError) as error:
        refused = Said(case.check or "all", case.kind, None, None, None, f"refused: {error}")
        return Answer(case, (refused,))
    kept = (c for c in told if case.check in (None, c["name"]))
    keys = ("name", "passed", "severity", "diagnosis", "text")
    return Answer(case, tuple(Said(*((v := [c[k] for k in keys])[0], case.kind), *v[1:]) for c in kept))


def rows(answers: list[Answer]) -> Iterator[str]:
    by_check: dict[str, list[Answer]] = defaultdict(list)
    sound: dict[str, list[Said]] = defaultdict(list)
    for one in answers:
        if one.case.check:
            by_check[one.case.check].append(one)
        else:
            for said in one.said:
                sound[said.check] += [said] if said.passed is not None else []
    for check in CHECKS:
        if not (by_check[check] or sound[check]):
            continue
        found = [a for a in by_check[check] if a.found]
        kinds, of = ({a.case.kind for a in some} for some in (found, by_check[check]))
        quiet = sum(not s.alarms for s in sound[check])
        counts = f"{len(found)}/{len(by_check[check])} | {len(kinds)}/{len(of)} | {quiet}/{len(sound[check])}"
        yield f"| {check} | {counts} |"


def section(answers: list[Answer], seconds: float, arguments: str) -> str:
    planted, sound = [a for a in answers if a.case.check], [a for a in answers if not a.case.check]
    missed = [f"{a.case.name}: {'; '.join(map(str, a.said))}" for a in planted if not a.found]
    alarms = [f"{a.case.name}, {s.check}: {s.text}" for a in sound for s in a.said if s.alarms]
    begin, end = MARKS
    lines = [
        *(begin, "## Each pre-flight check on planted faults", ""),
        f"`python benchmarks/planted_checks.py {arguments}`".replace(" `", "`"),
        f"at {commit()}, {seconds / 60:.0f} minutes on one thread: {len(planted)} faults in {len(KINDS)} kinds of "
        f"training, {sum(a.found for a in planted)} found; {len(sound)} sound programs, "
        f"{sum(not any(s.alarms for s in a.said) for a in sound)} without an error or a warning. Promised: each check "
        f"finds its fault in {KINDS_PROMISED} kinds. Quiet: of the sound programs on which the check had something to "
        "examine.",
        *(
            "",
            "| check | faults found of planted | kinds found of planted | healthy quiet |",
            "| --- | --- | --- | --- |",
        ),
        *rows(answers),
        *("", REVISED),
        *("", "Missed:" if missed else "Missed: none.", "", *bullets(missed)),
        *("Alarmed:" if alarms else "Alarmed: none.", "", *bullets(alarms)),
        end,
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", metavar="GLOB", help="'causality/*', '*/tagger', 'healthy/*'")
    parser.add_argument("--seeds", type=int, default=2, help="of each sound program")
    parser.add_argument("--write", action="store_true", help="update benchmarks/RESULTS.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # torch's own about shapes and schedules: the faults are meant
    cases = [case for case in (*sick(), *healthy(options.seeds)) if fnmatch(case.name, options.only)]
    answers, began = [], time.monotonic()
    with progress() as bar:
        task = bar.add_task("planted checks", total=len(cases), now="")
        for case in cases:
            bar.update(task, now=case.name)
            answers.append(answer(case))
            bar.update(task, advance=1)
    text = section(answers, time.monotonic() - began, shlex.join(sys.argv[1:]))
    print(text)
    if options.write:
        write(text, MARKS)


if __name__ == "__main__":
    main()
