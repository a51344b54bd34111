"""What recording costs a whole job: scripts from start to exit, bare and under `torchdoctor run`, in turns.

    python benchmarks/whole_jobs.py [--jobs many_tensors,one_second] [--rounds 3] [--threads 1] [--write]

Unlike overhead.py, which measures steps of a training that has settled, this counts everything: imports, the first
steps, the verdict at the end. Processor time is that of the process and all of its children, so that it also means
something on a machine that others use. A job passes if the processor time that recording adds, in the mean over all
rounds, is at most the job's bar.
"""

from __future__ import annotations

import argparse
import compileall
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch

import results
import torchdoctor

JOBS_FOLDER = Path(__file__).parent / "jobs"
ROUNDS = 3
ARMS = ("bare", "recorded")


@dataclass(frozen=True)
class Job:
    """A script, and what recording may add to it: a share of its time and seconds once."""

    script: str
    share: float = 0.0
    once: float = 1.0
    arguments: tuple[str, ...] = ()
    by_default: bool = True

    def allowed(self, bare: float) -> float:
        return self.share * bare + self.once

    @property
    def about(self) -> str:
        return (JOBS_FOLDER / f"{self.script}.py").read_text().partition('"""')[2].partition('"""')[0].strip()


JOBS: dict[str, Job] = {
    "one_second": Job("one_second"),
    "many_tensors": Job("many_tensors", share=0.1),
    "many_models": Job("many_models", share=0.15),
    "tiny_steps": Job("tiny_steps", share=0.15, once=0.0),
    "segmentation": Job("segmentation", share=0.03),
    "denoising": Job("denoising", share=0.03),
    "accumulation": Job("accumulation", share=0.03),
    "ten_thousand_tensors": Job("many_tensors", share=0.1, arguments=("5000", "20"), by_default=False),
    "five_thousand_layers": Job("many_tensors", share=0.1, arguments=("5000", "5"), by_default=False),
}


class Cost(NamedTuple):
    """Of one process with all its children."""

    wall: float
    processor: float
    memory: float
    """peak, in MB"""


def run_once(command: list[str], folder: Path, threads: int) -> Cost:
    environment = {**os.environ, "HOME": str(folder)}
    if threads:
        environment.update(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    output = folder / "output.txt"
    with output.open("w") as stream:
        start = time.perf_counter()
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=stream, stderr=stream)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}:\n{output.read_text()[-3000:]}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def command_of(arm: str, job: Job, folder: Path) -> list[str]:
    script = [str(JOBS_FOLDER / f"{job.script}.py"), *job.arguments]
    if arm == "bare":
        return [sys.executable, *script]
    return [sys.executable, "-m", "torchdoctor", "run", "--out", str(folder / "runs"), *script]


def measure(job: Job, rounds: int, threads: int) -> dict[str, list[Cost]]:
    costs: dict[str, list[Cost]] = {arm: [] for arm in ARMS}
    for number in range(rounds):
        for arm in ARMS if number % 2 == 0 else reversed(ARMS):
            with tempfile.TemporaryDirectory(prefix="whole-job-") as folder:
                costs[arm].append(run_once(command_of(arm, job, Path(folder)), Path(folder), threads))
    return costs


HEAD = [
    *("job", "bare, s", "recorded, s", "added, s", "added", "bar, s"),
    *("wall bare, s", "wall added, s", "memory, MB", ""),
]


def row_of(name: str, job: Job, costs: dict[str, list[Cost]]) -> list[str]:
    """Processor times as mean (median) over the rounds."""
    bare, recorded = ([cost.processor for cost in costs[arm]] for arm in ARMS)
    walls = [[cost.wall for cost in costs[arm]] for arm in ARMS]
    mean = statistics.mean(bare)
    added = statistics.mean(recorded) - mean
    median_added = statistics.median(recorded) - statistics.median(bare)
    memory = statistics.median(c.memory for c in costs["recorded"]) - statistics.median(c.memory for c in costs["bare"])
    return [
        name,
        f"{mean:.2f} ({statistics.median(bare):.2f})",
        f"{statistics.mean(recorded):.2f} ({statistics.median(recorded):.2f})",
        f"{added:+.2f} ({median_added:+.2f})",
        f"{100 * added / mean:+.1f}%",
        f"{job.allowed(mean):.2f}",
        f"{statistics.mean(walls[0]):.2f}",
        f"{statistics.mean(walls[1]) - statistics.mean(walls[0]):+.2f}",
        f"{memory:+.0f}",
        "passes" if added <= job.allowed(mean) else "over",
    ]


def section(rows: list[list[str]], options: argparse.Namespace) -> str:
    begin, end = results.marks("whole jobs")
    command = " ".join(["python", "benchmarks/whole_jobs.py", *sys.argv[1:]])
    lines = [begin, "## Overhead of whole jobs (cpu)", ""]
    lines += [
        f"`{command}` at {results.commit()}, torch {torch.__version__}, {os.cpu_count()} cores, "
        f"{options.threads or 'default number of'} threads. Processor time from start to exit with all children, "
        f"mean (median) of {options.rounds} rounds, bare and recorded in turns.",
        "",
    ]
    lines += results.bullets([f"**{name}**: {JOBS[name].about}" for name in options.jobs])
    table = [HEAD, ["---"] * len(HEAD), *rows]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in table), end])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = [name for name, job in JOBS.items() if job.by_default]
    parser.add_argument("--jobs", type=lambda s: s.split(","), default=usual, help=", ".join(JOBS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=1, help="torch's threads; 0 leaves them alone")
    parser.add_argument("--write", action="store_true", help="update benchmarks/RESULTS.md")
    options = parser.parse_args()
    for name in options.jobs:
        if name not in JOBS:
            parser.error(f"there is no job {name}; choose from {', '.join(JOBS)}")
    return options


def main() -> None:
    options = parse()
    compileall.compile_dir(Path(torchdoctor.__file__).parent, quiet=1)  # as pip does with what it installs
    rows = []
    for name in options.jobs:
        job = JOBS[name]
        rows.append(row_of(name, job, measure(job, options.rounds, options.threads)))
        print("  ".join(rows[-1]), flush=True)
    text = section(rows, options)
    if options.write:
        results.write(text, results.marks("whole jobs"))
    print(text)


if __name__ == "__main__":
    main()
