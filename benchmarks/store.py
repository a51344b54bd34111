"""What the run store costs: recording a step, diagnosing a long run, and a million steps on disk.

    python benchmarks/store.py [--write] [--quick] [--folder DIR]

With --write the figures go into benchmarks/RESULTS.md, between the store's own marks; the rest of it is left alone.
Every part runs in a process of its own, so that its memory is its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from torchdoctor import signals
from torchdoctor.facts import ModuleFact, OptimizerFact, ParameterFact, PhaseFact
from torchdoctor.signals import Scope
from torchdoctor.store.writer import Recorder

RESULTS = Path(__file__).with_name("RESULTS.md")
BEGIN, END = "<!-- store -->", "<!-- /store -->"

SCALARS = 20
PACE = (20, 0.002)
"""After so many steps, seconds of sleep: a loop of up to 10,000 steps a second, far faster than any training."""


STRETCHED = ("weak-slice/healthy-cnn", "healthy/char-transformer")


def names_of(scope: Scope) -> list[str]:
    return [s.name for s in signals.ALL.values() if s.scope is scope]


def describe_model(recorder: Recorder, columns: tuple[str, ...], steps: int) -> None:
    for order, name in enumerate(columns):
        module = name.rpartition(".")[0]
        recorder.fact(ParameterFact(name, [64, 64], "float32", "cpu", module, "Linear", order), 0, name)
    recorder.fact(OptimizerFact("0", "AdamW", [{"lr": 1e-3}], len(columns)), 0, "0")
    recorder.fact(PhaseFact(steps, steps, steps, 0, 0, 0, None), 0)


def train(recorder: Recorder, steps: int, columns: tuple[str, ...], scalars: list[str], matrices: list[str]) -> float:
    """Record a made-up training; the seconds of processor time that its own thread spent on recording."""
    random = np.random.default_rng(0)
    pool = [random.lognormal(size=(len(matrices), len(columns))).astype(np.float32) for _ in range(64)]
    describe_model(recorder, columns, steps)
    spent = 0.0
    for step in range(steps):
        loss = 2.3 / (1 + step / 1000) + 0.01 * (step % 7)
        row = dict(zip(matrices, pool[step % len(pool)], strict=True))
        begin = time.thread_time()
        for name in scalars:
            recorder.scalar(name, step, loss)
        recorder.matrix(step, columns, row)
        spent += time.thread_time() - begin
        if step % PACE[0] == 0:
            time.sleep(PACE[1])
    return spent


def tensor_names(count: int) -> tuple[str, ...]:
    return tuple(f"blocks.{i // 12}.layer{i % 12}.weight" for i in range(count))


def record(folder: Path, steps: int, tensors: int, cap_bytes: int) -> dict[str, Any]:
    """Losses and rates, and the eight statistics of gradients and weights, at every step."""
    recorder = Recorder.create(folder, {"argv": ["train.py"]}, cap_bytes=cap_bytes)
    matrices = [s.name for s in (*signals.GRADIENT.values(), *signals.WEIGHT.values())]
    before = time.process_time() - time.thread_time()
    spent = train(recorder, steps, tensor_names(tensors), names_of(Scope.STEP)[:SCALARS], matrices)
    recorder.close()
    writing = time.process_time() - time.thread_time() - before
    return {"caller_us": 1e6 * spent / steps, "thread_us": 1e6 * writing / steps, **outcome(recorder, folder)}


def record_all(folder: Path, steps: int, tensors: int) -> dict[str, Any]:
    """Every signal there is, at every step, with the limits that users get."""
    recorder = Recorder.create(folder, {"argv": ["train.py"]})
    matrices = names_of(Scope.PARAMETER) + names_of(Scope.MODULE)
    train(recorder, steps, tensor_names(tensors), names_of(Scope.STEP), matrices)
    largest = sum(p.stat().st_size for p in folder.iterdir())
    recorder.close()
    return {"signals": len(names_of(Scope.STEP)) + len(matrices), "before_close": largest, **outcome(recorder, folder)}


def stretch(folder: Path, case: str, steps: int, tensors: int) -> dict[str, Any]:
    """A real training made long and wide: each of its curves drawn out over so many steps, its tensors repeated until
    there are so many, with all its facts. Most rules have what they need in it."""
    from torchdoctor import zoo
    from torchdoctor.store.reader import open_run

    found = zoo.find(case)
    assert found is not None, case
    with tempfile.TemporaryDirectory() as runs:
        command = [sys.executable, "-m", "torchdoctor", "run", "--quiet", "--out", runs, str(found.path)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        source = open_run(next(Path(runs).iterdir()))
        recorder = Recorder.create(folder, dict(source.info))
        times, longer = -(-tensors // len(source.parameters)), steps / max(source.steps, 1)
        for seen in source.seen:
            recorder.fact(seen.fact, int(seen.step * longer), getattr(seen.fact, "name", ""))
            if isinstance(seen.fact, ParameterFact | ModuleFact):
                for copy in range(1, times):
                    again = replace(seen.fact, name=_copied(seen.fact.name, copy))
                    recorder.fact(again, int(seen.step * longer), again.name)
        scalars: list[tuple[str, str, list[float]]] = []
        matrices: dict[tuple[str, ...], dict[str, np.ndarray]] = {}
        for name, key in sorted(source.available):
            trace = source.load(name, key)
            if signals.ALL[name].scope is Scope.STEP:
                scalars.append((name, key, np.interp(np.arange(steps) / longer, trace.steps, trace.values).tolist()))
            elif len(trace):
                columns = tuple(_copied(c, copy) for copy in range(times) for c in trace.columns)
                matrices.setdefault(columns, {})[name] = np.tile(trace.values, (1, times))
    for step in range(steps):
        for name, key, drawn in scalars:
            recorder.scalar(name, step, drawn[step], key)
        for columns, tables in matrices.items():
            recorder.matrix(step, columns, {name: t[step * len(t) // steps] for name, t in tables.items()})
        if step % PACE[0] == 0:
            time.sleep(5 * PACE[1] * len(matrices))
    recorder.close()
    return {"signals": len(scalars) + sum(map(len, matrices.values())), **outcome(recorder, folder)}


def _copied(name: str, copy: int) -> str:
    return f"copy{copy}.{name}" if copy else name


def outcome(recorder: Recorder, folder: Path) -> dict[str, Any]:
    size = sum(p.stat().st_size for p in folder.iterdir())
    return {"bytes": size, "dropped": recorder.dropped, "peak_mb": peak_megabytes()}


def diagnose(folder: Path) -> dict[str, Any]:
    """Open, and ask every rule."""
    from torchdoctor.engine import examine
    from torchdoctor.store.reader import open_run

    begin = time.perf_counter()
    run = open_run(folder)
    opened = time.perf_counter()
    verdict = examine(run)
    end = time.perf_counter()
    found = {"open_s": opened - begin, "examine_s": end - opened, "rules": len(verdict.examined), "steps": run.steps}
    return {**found, "peak_mb": peak_megabytes()}


def read_all(folder: Path) -> dict[str, Any]:
    """Open, and read every signal once."""
    from torchdoctor.store.reader import open_run

    begin = time.perf_counter()
    run = open_run(folder)
    for name in run.available:
        run.load(*name)
    return {"read_s": time.perf_counter() - begin, "signals": len(run.available), "peak_mb": peak_megabytes()}


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024) / 1.048576


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "record": lambda folder, steps, tensors, cap: record(Path(folder), int(steps), int(tensors), int(cap)),
    "record_all": lambda folder, steps, tensors: record_all(Path(folder), int(steps), int(tensors)),
    "stretch": lambda folder, case, steps, tensors: stretch(Path(folder), case, int(steps), int(tensors)),
    "diagnose": lambda folder: diagnose(Path(folder)),
    "read_all": lambda folder: read_all(Path(folder)),
}


def run_part(name: str, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, __file__, "--part", name, *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    result = json.loads(done.stdout.splitlines()[-1])
    print(f"{name} {arguments}: {result}", file=sys.stderr)
    return result


def measure(folder: Path, quick: bool) -> list[tuple[str, str, str]]:
    """Rows of the table: what, how much, and what it should be."""
    steps, million = (20_000, 100_000) if quick else (100_000, 1_000_000)
    tensors = 150
    rows = []
    for label, cap in (("by default", 500_000_000), ("with a cap of 5 GB, so nothing is thinned", 5_000_000_000)):
        at = folder / f"cap{cap}"
        made = run_part("record", at, steps, tensors, cap)
        if cap == 500_000_000:
            rows.append(
                (
                    f"recording {SCALARS} scalars and a row of {tensors} x 8 x 2: the caller's thread",
                    f"{made['caller_us']:.1f} us a step",
                    "",
                )
            )
            rows.append(
                (
                    "the same: the recorder's thread, writing and digests included",
                    f"{made['thread_us']:.1f} us a step",
                    "",
                )
            )
        assert not made["dropped"], made["dropped"]
        size = f"{steps:,} steps x {tensors} tensors, {label}"
        rows.append((f"{size}: on disk", f"{made['bytes'] / 1e6:.0f} MB", "< 500 MB" if cap == 500_000_000 else ""))
        asked = run_part("diagnose", at)
        rows.append(
            (
                f"{size}: open and ask {asked['rules']} rules",
                f"{asked['open_s'] + asked['examine_s']:.2f} s, {asked['peak_mb']:.0f} MB",
                "< 5 s, < 1 GB",
            )
        )
        read = run_part("read_all", at)
        rows.append(
            (
                f"{size}: open and read all {read['signals']} signals",
                f"{read['read_s']:.2f} s, {read['peak_mb']:.0f} MB",
                "< 4 s, < 1 GB",
            )
        )
    for case in STRETCHED:
        made = run_part("stretch", folder / case.replace("/", "-"), case, steps, tensors)
        assert not made["dropped"], made["dropped"]
        asked = run_part("diagnose", folder / case.replace("/", "-"))
        rows.append(
            (
                f"{case} drawn out to {steps:,} steps x {tensors} tensors, all its {made['signals']} series on every "
                f"step ({made['bytes'] / 1e6:.0f} MB): open and ask {asked['rules']} rules",
                f"{asked['open_s'] + asked['examine_s']:.2f} s, {asked['peak_mb']:.0f} MB",
                "< 5 s, < 1 GB",
            )
        )
    made = run_part("record_all", folder / "million", million, 20)
    assert not made["dropped"], made["dropped"]
    rows.append(
        (
            f"{million:,} steps x 20 tensors, all {made['signals']} signals on every step: on disk",
            f"{made['bytes'] / 1e6:.0f} MB",
            "< 500 MB",
        )
    )
    rows.append(("the same: peak memory of the process that recorded it", f"{made['peak_mb']:.0f} MB", ""))
    asked = run_part("diagnose", folder / "million")
    rows.append(
        (
            f"the same: open and ask {asked['rules']} rules",
            f"{asked['open_s'] + asked['examine_s']:.2f} s, {asked['peak_mb']:.0f} MB",
            "< 5 s, < 1 GB",
        )
    )
    return rows


def render(rows: list[tuple[str, str, str]]) -> str:
    lines = [
        BEGIN,
        "## The run store",
        "",
        f"`python benchmarks/store.py --write`, {time.strftime('%Y-%m-%d')}, "
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}.",
        "",
        "| what | measured | wanted |",
        "|---|---|---|",
    ]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), END])


def write(section: str) -> None:
    """Put the section between its marks, or at the end where there are none."""
    text = RESULTS.read_text() if RESULTS.exists() else "# Measured\n"
    before, begin, rest = text.partition(BEGIN)
    after = rest.partition(END)[2] if begin else ""
    RESULTS.write_text(f"{before.rstrip()}\n\n{section}\n{after.lstrip() and chr(10) + after.lstrip()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="update benchmarks/RESULTS.md")
    parser.add_argument("--quick", action="store_true", help="a fifth of the steps and less")
    parser.add_argument("--folder", type=Path, help="where runs are written (a temporary folder by default)")
    parser.add_argument("--part", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        print(json.dumps(PARTS[given.part[0]](*given.part[1:])))
        return
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        section = render(measure(Path(folder), given.quick))
    print(section)
    if given.write:
        write(section)


if __name__ == "__main__":
    main()
