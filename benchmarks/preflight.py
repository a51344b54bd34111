"""What `torchdoctor check` knows of the zoo before training: structural faults named, healthy twins left in peace.

    python benchmarks/preflight.py [--only GLOB] [--each N] [--after N] [--quick] [--jobs N] [--timeout 120] [--write]

Every script is checked as it is, in a process of its own with one thread. A fault counts as found where its name is
among the findings, whoever found it: a check, or a rule in the script's first steps. A healthy script counts as alarmed
where a finding or a failed check is an error or a warning. `--each` takes the first so many scripts of a diagnosis, or
so many after the first `--after`.
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
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from statistics import median

from results import commit, marks, progress, write
from torchdoctor import zoo
from trials import SINGLE_THREAD

MARKS = marks("preflight")
STRUCTURAL = (
    *("attention-mask-ineffective", "augmentation-on-validation", "autocast-not-applied", "bad-initialization-scale"),
    *("clipping-out-of-order", "constant-inputs", "dead-relu", "disconnected-parameters", "eval-mode-in-training"),
    *("frozen-layers-change", "frozen-parameters", "gradients-in-evaluation", "invalid-labels", "loss-sign-flipped"),
    *("misplaced-activation", "missing-nonlinearity", "missing-target-shift", "missing-zero-grad", "nan-in-inputs"),
    *("nan-in-targets", "no-parameter-update", "not-shuffled", "optimizer-misconfigured", "parameters-not-optimized"),
    *("repeated-batch", "saturated-activations", "scheduler-misuse", "shape-broadcast-in-loss"),
    *("sigmoid-before-bce-with-logits", "softmax-before-cross-entropy", "symmetric-initialization"),
    *("train-mode-in-evaluation", "train-validation-mismatch", "train-validation-overlap", "unnormalized-inputs"),
    *("weights-overwritten", "wrong-loss-for-task"),
)
"""Diagnoses of what a program is, not of how its training goes."""


@dataclass(frozen=True)
class Answer:
    case: zoo.Case
    named: tuple[str, ...]
    alarms: tuple[str, ...]
    seconds: float
    problem: str | None

    @property
    def found(self) -> bool:
        return self.case.truth in self.named


def ask(case: zoo.Case, quick: bool, timeout: float) -> Answer:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-preflight-") as folder:
        told = Path(folder) / "told.json"
        command = [sys.executable, "-m", "torchdoctor", "check", "--json", str(told), *(["--quick"] if quick else [])]
        environment = {**os.environ, **SINGLE_THREAD}
        try:
            subprocess.run(
                [*command, str(case.path)], cwd=folder, env=environment, capture_output=True, timeout=timeout
            )
            found = json.loads(told.read_text())
        except (subprocess.TimeoutExpired, OSError, ValueError) as error:
            return Answer(case, (), (), time.monotonic() - began, type(error).__name__)
    failed = [c for c in found["checks"] if c["passed"] is False]
    alarms = [f["name"] for f in found["findings"] if f["severity"] != "info"]
    alarms += [c["name"] for c in failed if c["severity"] != "info" and c["diagnosis"] not in alarms]
    named = tuple(f["name"] for f in found["findings"])
    return Answer(case, named, tuple(alarms), time.monotonic() - began, found.get("problem"))


def choose(options: argparse.Namespace) -> list[zoo.Case]:
    taken: dict[tuple[str, bool], int] = defaultdict(int)
    chosen = []
    for case in zoo.cases():
        if case.diagnosis not in (*STRUCTURAL, zoo.NO_DIAGNOSIS) or case.needs_cuda:
            continue
        if not fnmatch(case.name, options.only):
            continue
        taken[case.diagnosis, case.healthy] += 1
        if options.after < taken[case.diagnosis, case.healthy] <= options.after + options.each:
            chosen.append(case)
    return chosen


def section(answers: list[Answer], arguments: str) -> str:
    sick, healthy = [a for a in answers if not a.case.healthy], [a for a in answers if a.case.healthy]
    found = sum(a.found for a in sick)
    missed = ", ".join(f"{a.case.name}" for a in sick if not a.found) or "none"
    alarmed = [a for a in healthy if a.alarms]
    told = "; ".join(f"{a.case.name} ({', '.join(a.alarms)})" for a in alarmed) or "none"
    times = [a.seconds for a in answers]
    begin, end = MARKS
    lines = [
        *(
            begin,
            "## The pre-flight on the zoo",
            "",
            f"`python benchmarks/preflight.py {arguments}` at {commit()}.",
            "",
        ),
        *("| what | measured |", "| --- | --- |"),
        f"| structural faults named before training | {found}/{len(sick)} ({found / max(1, len(sick)):.0%}) |",
        f"| healthy scripts with an error or a warning | {len(alarmed)}/{len(healthy)} |",
        f"| scripts of which nothing could be checked | {sum(a.problem is not None for a in answers)} |",
        f"| seconds a script, median and most | {median(times):.0f} and {max(times):.0f} |",
        *("", f"Missed: {missed}.", "", f"Alarmed: {told}.", end),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", metavar="GLOB", help="cases by name: 'dead-relu/*'")
    parser.add_argument("--each", type=int, default=1000, help="scripts of a diagnosis, sick and healthy each")
    parser.add_argument("--after", type=int, default=0, help="leave out the first so many of each")
    parser.add_argument("--quick", action="store_true", help="check --quick")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one script")
    parser.add_argument("--write", action="store_true", help="update benchmarks/RESULTS.md")
    options = parser.parse_args()
    cases = choose(options)
    answers = []
    with progress() as bar, ThreadPoolExecutor(options.jobs) as pool:
        task = bar.add_task("preflight", total=len(cases), now="")
        for done in as_completed([pool.submit(ask, case, options.quick, options.timeout) for case in cases]):
            answers.append(done.result())
            bar.update(task, advance=1, now=answers[-1].case.name)
    answers.sort(key=lambda a: a.case.name)
    text = section(answers, shlex.join(sys.argv[1:]))
    print(text)
    if options.write:
        write(text, MARKS)


if __name__ == "__main__":
    main()
