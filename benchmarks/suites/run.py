"""Other projects' test suites, bare and under `torchdoctor run`: every test must end the same.

    python benchmarks/suites/run.py [--sample] [--only NAME ...] [--write]

Installs pinned suites from the package index into an environment of its own (benchmarks/.cache/suites), runs each bare
and recorded in turn, and compares test by test. Exit status 1 where a test, or the exit status, differs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from collection import SUITES
from environment import prepare
from outcomes import Comparison, compare

import results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", action="store_true", help="a few files of each suite, for use while working")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these suites")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/RESULTS.md")
    arguments = parser.parse_args()
    suites = tuple(s for s in SUITES if not arguments.only or s.name in arguments.only)
    if not suites:
        parser.error(f"no such suite; there are {', '.join(s.name for s in SUITES)}")
    comparisons = []
    with results.progress() as bar:
        task = bar.add_task("suites", total=len(suites) + 1, now="installing")
        prepare(suites)
        for suite in suites:
            bar.update(task, advance=1, now=suite.name)
            comparisons.append(compare(suite, arguments.sample))
            bar.console.print(_row(comparisons[-1]), highlight=False)
            for line in comparisons[-1].differences[:20]:
                bar.console.print(f"    {line}", highlight=False)
            if not comparisons[-1].recorded.outcomes:
                bar.console.print(comparisons[-1].recorded.output, highlight=False, markup=False)
        bar.update(task, advance=1, now="")
    if arguments.write:
        results.write(_section(comparisons, arguments.sample), results.marks("suites"))
    return 1 if any(c.differences for c in comparisons) else 0


def _row(comparison: Comparison) -> str:
    bare, recorded = comparison.bare, comparison.recorded
    cells = (
        comparison.suite.requirement,
        bare.counts(),
        recorded.counts(),
        str(len(comparison.differences)),
        f"{bare.cpu_seconds:.0f} s",
        f"{recorded.cpu_seconds:.0f} s",
    )
    return f"| {' | '.join(cells)} |"


def _section(comparisons: list[Comparison], sample: bool) -> str:
    begin, end = results.marks("suites")
    command = "make bench-suites" + (" BENCH=--sample" if sample else "")
    lines = [
        begin,
        "## Other projects' test suites",
        "",
        f"`{command}`, commit {results.commit()}. Each suite runs bare and under `torchdoctor run`; tests that end",
        "differently in two bare runs are left out of the comparison. CPU time includes child processes.",
        "",
        "| suite | bare | recorded | differences | CPU bare | CPU recorded |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_row(comparison) for comparison in comparisons),
        "",
        *results.bullets([f"{c.suite.name}: {line}" for c in comparisons for line in c.differences]),
        end,
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
