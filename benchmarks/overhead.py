"""What watching a training costs: the same training bare, under torchdoctor and under its peers, side by side.

    python benchmarks/overhead.py [--device cpu|cuda] [--workloads mlp,cnn] [--arms bare,torchdoctor,...]
                                  [--rounds 20] [--processes 2] [--steps N] [--threads 1] [--clock wall|cpu] [--quick]
                                  [--write]

Every arm trains in a process of its own that stays attached and warm, and all others are stopped (with the processes
they started) while it trains, so that one thing runs at a time. In a round every arm is measured between two blocks of
the same process with the arm lifted (bare, arm, arm, bare): the machine drifts within seconds, and where memory
happens to lie makes a process faster or slower for its whole life. That gives one ratio. All processes are started
anew a few times all the same. torchdoctor spends a quarter of a second on the beginning of a run whatever its length,
and is measured after that. The table has the median of all ratios with a 95 % bootstrap interval (over the sets of
processes, then over their rounds), and the ratio of the sums of all blocks, in which rare dear steps count in full.
"Own clock" is the share that an arm can tell itself: the time of its code in the loop and of its threads, on average,
without what it does to caches. It separates arms that the machine's noise does not. With --write the table goes into
benchmarks/RESULTS.md, between marks of its own for each device."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import platform
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import torch

import results
from arms import ARMS, DEFAULT_ARMS, Watching, nothing
from workloads import WORKLOADS, Training, Workload

SETTLE_PARTS, WARM_PARTS = 40, 2
"""Blocks of at most LONGEST_BLOCK seconds in which an arm settles; few if it costs the same from the start on."""
ROUNDS, QUICK_ROUNDS = 20, 5
PROCESSES, QUICK_PROCESSES = 2, 1
RESAMPLES = 4_000
PR_SET_PDEATHSIG = 1
BARE = Watching(nothing, nothing)
SEED = 0
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
"""The second for a machine that others use, too: seconds of its own processor, all threads of the process together."""
LONGEST_BLOCK, SLICE = 1.5, 5
"""Seconds after which a block ends early, looked at every so many steps: arms many times slower need fewer of them."""
WARM = {"cpu": 3, "cuda": 6}
"""Untimed steps at the start of a block: the caches were another process's; on a GPU its memory was given back, too."""


def work(arm: str, workload: str, device_name: str, threads: int, clock: str) -> None:
    """Train as told over stdin, {"steps": n, "warm": n, "bare": bool} a line; answer with the seconds of the timed
    steps."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    if threads:
        torch.set_num_threads(threads)
    torch.manual_seed(SEED)
    device = torch.device(device_name)
    training = WORKLOADS[workload].build(device)
    number = 0
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=f"overhead-{arm}-"))
        watching = stack.enter_context(ARMS[arm].attach(training, Path(folder)))
        answers.write(json.dumps({"ready": True}) + "\n")
        for line in sys.stdin:
            order = json.loads(line)
            with watching.lifted() if order["bare"] else contextlib.nullcontext():
                arm_or_bare = BARE if order["bare"] else watching
                number = _train(training, arm_or_bare, number, order["warm"])
                _settle(device)
                spent = arm_or_bare.spent
                first, before, start = number, spent() if spent else 0.0, CLOCKS[clock]()
                number = _train(training, arm_or_bare, number, order["steps"])
                _settle(device)
                seconds = CLOCKS[clock]() - start
                spending = spent() - before if spent else None
            answers.write(json.dumps({"seconds": seconds, "spent": spending, "steps": number - first}) + "\n")
            if device.type == "cuda":
                torch.cuda.empty_cache()


def _train(training: Training, watching: Watching, number: int, steps: int) -> int:
    """Up to so many steps, fewer if they take long; the number of the step after the last."""
    step, between, after = training.step, watching.between, watching.after
    end, late = number + steps, time.perf_counter() + LONGEST_BLOCK
    while number < end and time.perf_counter() < late:
        for current in range(number, min(number + SLICE, end)):
            step(current, between)
            after(current)
        number = min(number + SLICE, end)
    return number


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _die_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Block(NamedTuple):
    """Seconds a step, and those of them that the arm knows to be its own."""

    seconds: float
    spent: float | None


class Worker:
    """A process that trains under one arm, stopped whenever it is not its turn."""

    def __init__(self, arm: str, workload: str, options: argparse.Namespace) -> None:
        self.arm = arm
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker
        threads = str(options.threads)
        environment = dict(os.environ)
        if options.threads:
            environment.update(OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads)
        command = [sys.executable, __file__, "--worker", arm, workload, options.device, threads, options.clock]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        self._answer()
        self._signal(signal.SIGSTOP)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self._signal(signal.SIGCONT)
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self.process.wait()
        self.errors.close()

    def run(self, steps: int, warm: int, bare: bool = False) -> Block:
        """Train so many steps, under the arm or with it lifted."""
        self._signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps({"steps": steps, "warm": warm, "bare": bare}) + "\n")  # type: ignore[union-attr]
        self.process.stdin.flush()  # type: ignore[union-attr]
        answer = self._answer()
        self._signal(signal.SIGSTOP)
        steps = max(answer["steps"], 1)
        return Block(answer["seconds"] / steps, None if answer["spent"] is None else answer["spent"] / steps)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def _answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            self.process.wait()
            self.errors.seek(0)
            raise SystemExit(f"the arm {self.arm} ended with {self.process.returncode}:\n{self.errors.read()[-3000:]}")
        return json.loads(line)


class Pair(NamedTuple):
    """Seconds a step of an arm, and of its process without it right before and after."""

    own: float
    bare: float
    spent: float | None
    """of the arm's, by its own clock"""


def measure(workload: Workload, arms: list[str], options: argparse.Namespace) -> dict[str, list[Pair]]:
    """A pair for every arm and round."""
    pairs: dict[str, list[Pair]] = {arm: [] for arm in arms}
    order = random.Random(SEED)
    for process in range(options.processes):
        with contextlib.ExitStack() as stack:
            workers = {a: stack.enter_context(Worker(a, workload.name, options)) for a in arms}
            settle = max(workload.settle // 4, 10) if options.quick else workload.settle
            for arm, worker in workers.items():
                for _ in range(SETTLE_PARTS if ARMS[arm].eager_at_first else WARM_PARTS):
                    worker.run(0, settle // SETTLE_PARTS)
            for turn in range(options.rounds):
                for arm in order.sample(arms, len(arms)):
                    pairs[arm].append(_compare(workers[arm], workload, options))
                _tell(f"{workload.name}: processes {process + 1} of {options.processes}, round {turn + 1}")
    return pairs


def _compare(worker: Worker, workload: Workload, options: argparse.Namespace) -> Pair:
    steps = options.steps or (max(workload.steps // 4, 5) if options.quick else workload.steps)
    blocks = [worker.run(steps, WARM[options.device], bare) for bare in (True, False, False, True)]
    seconds = [block.seconds for block in blocks]
    spent = None if blocks[1].spent is None or blocks[2].spent is None else (blocks[1].spent + blocks[2].spent) / 2
    return Pair(own=(seconds[1] + seconds[2]) / 2, bare=(seconds[0] + seconds[3]) / 2, spent=spent)


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text} ", end="", file=sys.stderr, flush=True)


def interval(ratios: list[float], processes: int) -> tuple[float, float]:
    """95 % bootstrap interval of the median; rounds of one set of processes stay together, as they share its luck."""
    rng = random.Random(SEED)
    rounds = len(ratios) // processes
    sets = [ratios[i * rounds : (i + 1) * rounds] for i in range(processes)]

    def resample() -> float:
        drawn = rng.choices(sets, k=processes)
        return statistics.median(ratio for one in drawn for ratio in rng.choices(one, k=rounds))

    medians = sorted(resample() for _ in range(RESAMPLES))
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def rows_of(workload: Workload, pairs: dict[str, list[Pair]], processes: int) -> list[list[str]]:
    bare = statistics.median(pair.bare for of_arm in pairs.values() for pair in of_arm)
    rows = [[workload.name, "bare", ARMS["bare"].about, f"{bare * 1e3:.3f}", "", "", "", "", ""]]
    for arm, of_arm in pairs.items():
        ratios = [pair.own / pair.bare for pair in of_arm]
        low, high = interval(ratios, processes)
        whole = sum(pair.own for pair in of_arm) / sum(pair.bare for pair in of_arm)
        spent = [pair.spent for pair in of_arm if pair.spent is not None]
        rows.append(
            [
                workload.name,
                arm,
                ARMS[arm].about,
                f"{statistics.median(pair.own for pair in of_arm) * 1e3:.3f}",
                f"{statistics.median(pair.own - pair.bare for pair in of_arm) * 1e6:+.0f}",
                f"{100 * (statistics.median(ratios) - 1):+.1f} %",
                f"{100 * (low - 1):+.1f} to {100 * (high - 1):+.1f}",
                f"{100 * (whole - 1):+.1f} %",
                f"{100 * statistics.mean(spent) / bare:.2f} %" if spent else "",
            ]
        )
    return rows


HEAD = ["workload", "arm", "what it does", "ms a step", "us added", "overhead", "95 % interval", "of sums", "own clock"]


def table(rows: list[list[str]]) -> str:
    lines = [HEAD, ["---"] * len(HEAD), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def machine(options: argparse.Namespace) -> str:
    host = (
        f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"
    )
    if options.device == "cuda":
        return f"{torch.cuda.get_device_name()}; {host}"
    return f"{_processor()}; {host}; {options.threads or 'default number of'} threads"


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def section(text: str, options: argparse.Namespace, missing: list[str]) -> str:
    begin, end = marks(options.device)
    lines = [begin, f"## Overhead ({options.device})", ""]
    lines += [f"`{' '.join(['python', 'benchmarks/overhead.py', *sys.argv[1:]])}` on {machine(options)}.", ""]
    clock = "wall clock" if options.clock == "wall" else "seconds of the training process's own processor"
    rounds = f"{options.rounds} rounds in each of {options.processes} sets of processes"
    lines += [
        f"Medians of {rounds}, {clock}; one runs at a time, every arm between two bare blocks of its process.",
        "",
    ]
    lines += [f"Not installed here, so left out: {', '.join(missing)}.", ""] if missing else []
    workloads = (f"- **{name}**: {WORKLOADS[name].about}" for name in options.workloads)
    return "\n".join([*lines, *workloads, "", text, end])


def marks(device: str) -> tuple[str, str]:
    return results.marks("overhead" if device == "cpu" else f"overhead {device}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--workloads", type=lambda s: s.split(","), help="default: mlp,cnn,transformer; cuda: gpt2")
    parser.add_argument("--arms", type=lambda s: s.split(","), default=list(DEFAULT_ARMS), help=", ".join(ARMS))
    parser.add_argument("--rounds", type=int, help="in each set of processes")
    parser.add_argument("--processes", type=int, help="how often all arms are started anew")
    parser.add_argument("--steps", type=int, help="timed steps in a block; default: the workload's own")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads on a CPU; 0 leaves them alone")
    parser.add_argument("--clock", default="wall", choices=tuple(CLOCKS), help="cpu: on a machine that is busy")
    parser.add_argument("--quick", action="store_true", help="few and short rounds: a look, not a result")
    parser.add_argument("--write", action="store_true", help="update benchmarks/RESULTS.md")
    options = parser.parse_args()
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    options.processes = options.processes or (QUICK_PROCESSES if options.quick else PROCESSES)
    options.threads = 0 if options.device == "cuda" else options.threads
    options.workloads = options.workloads or (["gpt2"] if options.device == "cuda" else ["mlp", "cnn", "transformer"])
    for name, known in [(w, WORKLOADS) for w in options.workloads] + [(a, ARMS) for a in options.arms]:
        if name not in known:
            parser.error(f"there is no {name}; choose from {', '.join(known)}")
    if not set(options.arms) - {"bare"}:
        parser.error("the bare arm is what the others are compared with; name another")
    if unfit := [w for w in options.workloads if options.device not in WORKLOADS[w].devices]:
        parser.error(f"{', '.join(unfit)} cannot run on {options.device}")
    return options


def choose_arms(wanted: list[str]) -> tuple[list[str], list[str]]:
    """Those that can run beside the bare one, and those whose package is missing."""
    missing = [name for name in wanted if ARMS[name].missing()]
    chosen = [name for name in wanted if name not in missing]
    if "wandb" in missing:
        chosen.append("wandb-way")
    return [name for name in dict.fromkeys(chosen) if name != "bare"], missing


def main() -> None:
    options = parse()
    arms, missing = choose_arms(options.arms)
    rows: list[list[str]] = []
    for name in options.workloads:
        found = rows_of(WORKLOADS[name], measure(WORKLOADS[name], arms, options), options.processes)
        print("\n".join(["", *("  ".join((r[0], r[1], r[3] + " ms", *r[4:])) for r in found)]), flush=True)
        rows += found
    text = section(table(rows), options, missing)
    if options.write:
        results.write(text, marks(options.device))
    print(text)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--worker":
        work(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), sys.argv[6])
    else:
        main()
