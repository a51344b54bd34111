"""The campaign of faults: kills, full disks, damaged and hostile runs, web attacks, and scripts in every style.

    python benchmarks/faults/run.py [NAME ...] [--only WORD] [--list] [--write]

NAME is the beginning of a test's name (`--list` shows all); without a name everything runs, in about an hour. Each test
prints one line with its counts and notes. Exit status 1 where anything failed that does not also fail bare (expected.py).
Needs root on Linux for the disk tests, gcc for `shim`, and Chromium for `xss`. Settings come from the environment:
KILLS, DAMAGE, KS, KINDS, STEPS (how many), WIDE=1 (reports of damaged runs, too), REAL=1 (a process for every script),
SHOW=1 (the output of every script), TD_WORK (folder to work in), TD_BIN (bin folder with python and torchdoctor).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

from expected import KNOWN, failing_bare
from harness import TESTS, WORK, Line, keep

import results

MODULES = ("kills", "endings", "disks", "damaged_runs", "hostile_runs", "web_server", "script_styles", "long_run")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginnings of test names; all without one")
    parser.add_argument("--only", metavar="WORD", help="cases of disk, bomb and style that contain this word")
    parser.add_argument("--list", action="store_true", help="print the names of the tests")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/RESULTS.md")
    arguments = parser.parse_args()
    if arguments.only:
        os.environ["ONLY"] = arguments.only
    for module in MODULES:
        importlib.import_module(module)
    names = [name for name in TESTS if not arguments.names or name.startswith(tuple(arguments.names))]
    if not names:
        parser.error(f"no such test; there are {', '.join(TESTS)}")
    if arguments.list:
        print("\n".join(names))
        return 0
    WORK.mkdir(parents=True, exist_ok=True)
    begun, lines = time.monotonic(), []
    for number, name in enumerate(names, 1):
        print(f"[{number} of {len(names)}, {(time.monotonic() - begun) / 60:.0f} min] {name}", flush=True)
        for line in TESTS[name]():
            keep(line)
            lines.append(line)
    unexpected = [x for x in lines if x.failed and not failing_bare(x.name) and x.name not in KNOWN]
    print(f"{sum(line.tried for line in lines)} tried, {sum(line.failed for line in lines)} failed")
    for line in unexpected:
        print(f"  FAILED {line.name}: {line.notes[0] if line.notes else ''}"[:400])
    if arguments.write:
        results.write(_section(lines), results.marks("faults"))
    return 1 if unexpected else 0


def _section(lines: list[Line]) -> str:
    begin, end = results.marks("faults")
    groups: dict[str, list[Line]] = {}
    for line in lines:
        groups.setdefault(line.name.partition(" ")[0].rstrip(":"), []).append(line)
    rows = [
        f"| {name} | {sum(x.tried for x in group)} | {sum(x.failed for x in group if not failing_bare(x.name))} |"
        for name, group in groups.items()
    ]
    failures = [
        f"{x.name}: {KNOWN.get(x.name) or (x.notes[0] if x.notes else '')}"[:300]
        for x in lines
        if x.failed and not failing_bare(x.name)
    ]
    bare = [f"{x.name}: {failing_bare(x.name)}" for x in lines if x.failed and failing_bare(x.name)]
    parts = [
        begin,
        "## Faults and attacks",
        "",
        f"`make bench-faults`, commit {results.commit()}.",
        "",
        "| test | tried | failed |",
        "| --- | --- | --- |",
        *rows,
        "",
    ]
    if failures:
        parts += ["Failed:", "", *results.bullets(failures)]
    if bare:
        parts += ["Not counted, since they differ from one bare run to the next as well:", "", *results.bullets(bare)]
    return "\n".join([*parts, end])


if __name__ == "__main__":
    sys.exit(main())
