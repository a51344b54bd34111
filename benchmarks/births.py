"""Where the first NaN was born: is the operation, file and line right, beside what anomaly mode says, and at what cost.

    python benchmarks/births.py [--only GLOB] [--at 1,300] [--seed 0] [--jobs N] [--timeout 120] [--no-anomaly]
                                [--no-replay] [--no-cost] [--rounds 8] [--processes 1] [--write]

Every script of benchmarks/planted, unmodified, fails at the update that AT says. It runs once as
`torchdoctor run --quiet --json` and once under `torch.autograd.set_detect_anomaly(True)`, each in a process of its own
with one thread. The truths are in planted/truths.py, checked by verify_truths.py. A propagator counts as named where
the answer is wrong and what it names had been given something bad, or is itself a tensor that was spoilt before. The
cost is that of steps in which nothing fails, measured as benchmarks/overhead.py measures. With --write the section goes
into benchmarks/RESULTS.md.
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
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import anomaly
import birth_scores
import overhead
import scores
from birth_scores import Case, Outcome
from planted.truths import TRUTHS
from results import bullets, commit, marks, progress, write
from torchdoctor.facts import BirthFact
from torchdoctor.store.reader import open_run
from trials import SINGLE_THREAD
from workloads import WORKLOADS

MARKS = marks("births")
TOOL = [sys.executable, "-m", "torchdoctor"]
UPDATES = (1, 300)
COST_WORKLOADS = ("mlp", "cnn", "transformer")
COST_ARMS = ("torchdoctor", "birth-watch", "anomaly")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="GLOB", action="append", help="scripts by name: 'hf_*'")
    parser.add_argument("--at", type=lambda s: [int(n) for n in s.split(",")], default=list(UPDATES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time; default: cores")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for one run")
    parser.add_argument("--no-anomaly", action="store_true", help="do not run anomaly mode")
    parser.add_argument("--no-replay", action="store_true", help="do not replay the captures")
    parser.add_argument("--no-cost", action="store_true", help="do not measure the time of a step")
    parser.add_argument("--rounds", type=int, default=8, help="of the cost; see overhead.py")
    parser.add_argument("--processes", type=int, default=1, help="of the cost; see overhead.py")
    parser.add_argument("--write", action="store_true", help="update benchmarks/RESULTS.md")
    return parser.parse_args()


def choose(options: argparse.Namespace) -> list[Case]:
    globs = options.only or ["*"]
    chosen = [t for t in TRUTHS if any(fnmatch(t.script, glob) for glob in globs)]
    return [Case(truth, at, options.seed) for truth in chosen for at in options.at]


def perform(case: Case, timeout: float, with_anomaly: bool = True, with_replay: bool = True) -> Outcome:
    environment = {**SINGLE_THREAD, "AT": str(case.at), "SEED": str(case.seed)}
    outcome = _under_torchdoctor(case, environment, timeout, with_replay)
    if not with_anomaly:
        return outcome
    return replace(outcome, anomaly=anomaly.run(case.truth.path, environment, timeout))


def _under_torchdoctor(case: Case, environment: dict[str, str], timeout: float, with_replay: bool) -> Outcome:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-births-") as name:
        folder = Path(name)
        command = [*TOOL, *("run", "--quiet", "--out", "runs", "--name", "run", "--json", "verdict.json")]
        try:
            done = subprocess.run(
                [*command, str(case.truth.path)], cwd=folder, env={**os.environ, **environment}, capture_output=True,
                text=True, timeout=timeout, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Outcome(case, error=f"no verdict within {timeout:.0f} s", seconds=timeout)
        seconds = time.monotonic() - began
        try:
            verdict = json.loads((folder / "verdict.json").read_text())
            found = open_run(folder / "runs" / "run").facts_at(BirthFact)
        except Exception as error:
            last = (done.stderr.strip().splitlines() or [str(error)])[-1]
            return Outcome(case, error=f"no verdict: {last}", seconds=seconds)
        replayed = _replay(folder, case, environment, timeout) if with_replay else None
    step, birth = found[0] if found else (None, None)
    return Outcome(case, birth, step, [f["code"] for f in verdict["findings"]], seconds=seconds, replayed=replayed)


def _replay(folder: Path, case: Case, environment: dict[str, str], timeout: float) -> str:
    """What `torchdoctor replay` says: same, what differs, or why there is nothing."""
    command = [*TOOL, "replay", "runs/run", "--json", "replay.json", "--", str(case.truth.path)]
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip
        told = json.loads((folder / "replay.json").read_text())
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout:.0f} s"
    except OSError:
        return (done.stderr.strip().splitlines() or ["no answer"])[-1]
    if told["birth"] is None:
        return told["reason"] or "nothing"
    if told["recorded"] is None:
        return "nothing to compare with"
    return f"{', '.join(told['differs'])} differ" if told["differs"] else birth_scores.SAME


def run_all(cases: list[Case], options: argparse.Namespace) -> list[Outcome]:
    done: dict[Case, Outcome] = {}
    with progress() as shown, ThreadPoolExecutor(options.jobs) as pool:
        bar = shown.add_task("births", total=len(cases), now="")
        futures = {
            pool.submit(perform, c, options.timeout, not options.no_anomaly, not options.no_replay): c for c in cases
        }
        try:
            for future in as_completed(futures):
                done[futures[future]] = future.result()
                shown.update(bar, advance=1, now=futures[future].label)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [done[case] for case in cases]


def cost(options: argparse.Namespace) -> list[list[str]]:
    """Rows as in overhead.py: ms a step of each arm, and what it adds to the bare one."""
    settings = argparse.Namespace(
        device="cpu", rounds=options.rounds, processes=options.processes, steps=None, threads=1, clock="wall",
        quick=False,
    )  # fmt: skip
    rows = []
    for name in COST_WORKLOADS:
        workload = WORKLOADS[name]
        rows += overhead.rows_of(workload, overhead.measure(workload, list(COST_ARMS), settings), options.processes)
    return rows


def section(outcomes: list[Outcome], costs: list[list[str]], with_anomaly: bool = True) -> str:
    """Without anomaly mode its columns, the last ones, are left out: it was not asked."""
    shown = None if with_anomaly else -1
    begin, end = MARKS
    words = shlex.join(["python", "benchmarks/births.py", *sys.argv[1:]])
    scripts = {o.truth.script for o in outcomes}
    lines = [
        begin,
        "## Where the first NaN was born",
        "",
        f"`{words}`, {time.strftime('%Y-%m-%d')}, commit {commit()}.",
    ]
    lines += [
        "",
        f"{len(outcomes)} planted failures in {len(scripts)} unmodified scripts. For NaN in the data the source has to "
        "be named instead of an operation; for a parameter that its update broke, either. Anomaly mode sees the "
        "backward pass alone and NaN alone; autograd's name of the forward operation counts as right for it.",
        "",
        scores.table(
            ["what", "torchdoctor", "anomaly mode"][:shown], [row[:shown] for row in birth_scores.summary(outcomes)]
        ),
        "",
    ]
    if costs:
        lines += ["Steps in which nothing fails (measured as under Overhead):", "", overhead.table(costs), ""]
    head = ["case", "planted", "torchdoctor", "first diagnosis", "anomaly mode"]
    lines += [scores.table(head[:shown], [row[:shown] for row in birth_scores.by_case(outcomes)]), ""]
    apart = [f"{o.case.label}: {o.replayed}" for o in outcomes if o.replayed not in (None, birth_scores.SAME)]
    lines += ["Replays that were not the same to the bit:", "", *bullets(apart)] if apart else []
    broken = [f"{o.case.label}: {o.error}" for o in outcomes if o.error]
    lines += ["#### Failures of our own", "", *bullets(broken)] if broken else []
    return "\n".join([*lines, end])


def main() -> None:
    options = parse()
    cases = choose(options)
    if not cases:
        raise SystemExit("no script fits; names are those of the files in benchmarks/planted, such as 'siamese'")
    outcomes = run_all(cases, options)
    text = section(outcomes, [] if options.no_cost else cost(options), not options.no_anomaly)
    if options.write:
        write(text, MARKS)
    print(text)


if __name__ == "__main__":
    main()
