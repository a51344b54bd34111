"""torchdoctor on training code by others: how often the right cause is named first, and healthy programs alarmed.

    python benchmarks/field/run.py [PROJECT[/PROGRAM[/FAULT]] ...] [--half learning|counted] [--sample] [--jobs 2]
                                   [--build DIR] [--compare DIR] [--write] [--list]
    python benchmarks/field/run.py --confirm [NAME ...]      # bare, three seeds: does each fault harm?
    python benchmarks/field/run.py --draw PROJECT ...        # draw new projects into a half
    python benchmarks/field/run.py --second [1-10] [--half HALF]     # show cases to label a second time, blind
    python benchmarks/field/run.py --answer NUMBER NAME[,NAME ...]|healthy|none [REMARK] [--answer ...] [--half HALF]
    python benchmarks/field/run.py --agreement [--write]     # do the first and the second labels agree?

Every case runs bare once (kept for good) and recorded once for each build (kept until its source changes), so a run
that was stopped goes on where it was. --sample takes ten minutes and a share of every kind. --build is the `src` folder
of another checkout; --compare shows such a build beside this one. Cases and verdicts of the counted half are never
printed, only counts; `--second --half counted` is for its labeller.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import results
from environments import InstallError
from field import agreement, confirming, second_labels, tables
from field.outcomes import (
    Outcome,
    Records,
    bare_records,
    from_data,
    name_of_build,
    outcome_of,
    recorded_records,
    to_data,
)
from field.programs import Case, read_cases
from field.projects import HALVES, LEARNING, register
from field.running import Result, run_bare, run_recorded

SOURCE = Path(__file__).parents[2] / "src"
SEED = 0
SAMPLE_SECONDS = 600.0
SECOND = "show cases of a half (default: learning) without their labels, by number; all without a number"
ANSWER = "store the second label of a case: its number, diagnoses (or healthy, or none), and a remark"


def main() -> int:
    options = parse()
    if options.draw:
        register(options.names)
        return 0
    if options.second is not None or options.answer:
        return second_labels.session(options.half or LEARNING, options.second or range(0), options.answer)
    cases = choose(options)
    if options.list:
        print("\n".join(case.label for case in cases if case.project.half == "learning"))
        print(f"{len(cases)} cases of {len({case.project.name for case in cases})} projects")
        return 0
    if options.confirm:
        return confirming.confirm(cases, options.jobs)
    if options.agreement:
        show("field agreement", agreement.report(cases, [options.half] if options.half else HALVES), options.write)
        return 0
    outcomes = run_cases(cases, options.build, options.jobs)
    text = report(outcomes, options.build)
    if options.compare:
        before = run_cases(cases, options.compare, options.jobs)
        names = name_of_build(options.compare), name_of_build(options.build)
        text += "\n\n### Compared\n\n" + tables.comparison(before, outcomes, names)
    show("field", text, options.write)
    return 0


def show(section: str, text: str, is_written: bool) -> None:
    """Print a section of RESULTS.md, and put it there."""
    print(text)
    if is_written:
        begin, end = results.marks(section)
        results.write(f"{begin}\n{text}\n{end}", (begin, end))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="projects, programs or faults; all without one")
    parser.add_argument("--half", choices=HALVES, help="one half only")
    parser.add_argument("--sample", action="store_true", help="ten minutes, a share of every kind")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="programs at a time; default: cores")
    parser.add_argument("--build", type=Path, default=SOURCE, metavar="DIR", help="`src` folder of a checkout to run")
    parser.add_argument("--compare", type=Path, metavar="DIR", help="`src` folder of a build to compare with")
    parser.add_argument("--confirm", action="store_true", help="run bare with several seeds: do the faults harm?")
    parser.add_argument("--draw", action="store_true", help="draw the named projects into a half, before writing cases")
    parser.add_argument(
        "--second", nargs="?", type=parse_numbers, const=range(sys.maxsize), metavar="1-10", help=SECOND
    )
    parser.add_argument("--answer", nargs="+", action="append", default=[], metavar="WORD", help=ANSWER)
    parser.add_argument("--agreement", action="store_true", help="compare the first and the second labels")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/RESULTS.md")
    parser.add_argument("--list", action="store_true", help="print the cases of the learning half")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error("--jobs is at least 1")
    if options.draw and not options.names:
        parser.error("--draw needs the names of projects")
    for path in (options.build, options.compare):
        if path is not None and not (path / "torchdoctor" / "__init__.py").is_file():
            parser.error(f"there is no torchdoctor in {path}; name the `src` folder of a checkout")
    return options


def parse_numbers(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def choose(options: argparse.Namespace) -> list[Case]:
    cases = read_cases(options.half)
    if options.names:
        cases = [c for c in cases if any(c.label == n or c.label.startswith(f"{n}/") for n in options.names)]
        if not cases:
            sys.exit(f"no case is called {' or '.join(options.names)}; --list shows them")
    return sample(cases) if options.sample else cases


def sample(cases: Sequence[Case]) -> list[Case]:
    """Return a share of every half, kind and sort of case that takes about ten minutes on two cores."""
    known = bare_records().known
    strata: dict[tuple[str, str, bool], list[Case]] = {}
    for case in random.Random(SEED).sample(list(cases), len(cases)):
        strata.setdefault((case.project.half, case.program.kind, case.fault is None), []).append(case)
    chosen: list[Case] = []
    left = 2 * SAMPLE_SECONDS
    while any(strata.values()) and left > 0:
        for stratum in strata.values():
            if stratum and left > 0:
                case = stratum.pop()
                data = known.get(_key(case))
                left -= 2 * (data["result"]["seconds"] if data else 10.0)
                chosen.append(case)
    return chosen


def run_cases(cases: Sequence[Case], build: Path, jobs: int) -> list[Outcome]:
    """Return the outcome of every case, running what is not on record. Cases that cannot be installed are named."""
    bare = bare_records()
    build_name = name_of_build(build)
    recorded = {half: recorded_records(half, build_name) for half in HALVES}

    def run_one(case: Case) -> Outcome:
        result = _bare_of(case, bare)
        records = recorded[case.project.half]
        if _key(case) not in records.known:
            records.keep(_key(case), to_data(*run_recorded(case, SEED, build)))
        return outcome_of(case, result, *from_data(records.known[_key(case)]))

    outcomes: list[Outcome] = []
    order = random.Random(SEED).sample(list(cases), len(cases))
    with results.progress() as shown, ThreadPoolExecutor(jobs) as pool:
        bar = shown.add_task(build_name, total=len(cases), now="")
        futures = {pool.submit(run_one, case): case for case in order}
        try:
            for future in as_completed(futures):
                try:
                    outcomes.append(future.result())
                except InstallError as error:
                    shown.console.print(f"{futures[future].project.name}: {error}", style="red")
                label = futures[future].label if futures[future].project.half != "counted" else "(counted half)"
                shown.update(bar, advance=1, now=label)
        except KeyboardInterrupt:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return sorted(outcomes, key=lambda o: o.label)


def _bare_of(case: Case, records: Records) -> Result:
    if _key(case) not in records.known:
        records.keep(_key(case), {"result": asdict(run_bare(case, SEED))})
    return Result(**records.known[_key(case)]["result"])


def _key(case: Case) -> str:
    return f"{case.label} {case.digest()} {SEED}"


def report(outcomes: Sequence[Outcome], build: Path) -> str:
    parts = [
        "## The field: training code by others",
        "",
        f"`python benchmarks/field/run.py`, build {name_of_build(build)}, {len(outcomes)} programs.",
        "Intervals hold 90% of the draws of a bootstrap over projects.",
        "",
        tables.summary(outcomes),
    ]
    for text in (tables.by_category, tables.by_kind, tables.by_style, tables.by_diagnosis):
        parts += ["", text(outcomes)]
    for title, lines in (
        ("Misses of the learning half", tables.misses(outcomes)),
        ("Healthy programs of the learning half that were alarmed", tables.alarms(outcomes)),
        ("Programs that ended otherwise than bare", tables.unequal(outcomes)),
    ):
        if lines:
            parts += ["", f"### {title}", "", *results.bullets(lines)]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
