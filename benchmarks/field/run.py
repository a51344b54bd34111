"""torchdoctor on training code by others: how often the right cause is named first, and healthy programs alarmed.

    python benchmarks/field/run.py [PROJECT[/PROGRAM[/FAULT]] ...] [--half learning|counted] [--sample] [--jobs 2]
                                   [--build DIR] [--compare DIR] [--write] [--list]
    python benchmarks/field/run.py --tool PEER               # the same programs under a peer
    python benchmarks/field/run.py --peers                   # torchdoctor and every peer, in one table
    python benchmarks/field/run.py --timing [--tool PEER] [--rounds 3] [--all]
    python benchmarks/field/run.py --confirm [NAME ...]      # bare, three seeds: does each fault harm?
    python benchmarks/field/run.py --draw PROJECT ...        # draw new projects into a half
    python benchmarks/field/run.py --second [1-10] [--half HALF]     # show cases to label a second time, blind
    python benchmarks/field/run.py --answer NUMBER NAME[,NAME ...]|healthy|none [REMARK] [--answer ...] [--half HALF]
    python benchmarks/field/run.py --agreement [--write]     # do the first and the second labels agree?

Every case runs bare once (kept for good) and recorded once for each build (kept until its source changes), so a run
that was stopped goes on where it was. --sample takes ten minutes and a share of every kind. --build is the `src` folder
of another checkout; --compare shows such a build beside this one. --timing runs bare and recorded in turns, one program
at a time, over the sample (--all: everything); nothing else should run on the machine. --write puts each table between
marks of its own into RESULTS.md. Cases and verdicts of the counted half are never printed, only counts;
`--second --half counted` is for its labeller.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import results
from field import agreement, confirming, second_labels, tables, timing, tools
from field.outcomes import Outcome
from field.programs import Case, read_cases
from field.projects import HALVES, LEARNING, register
from field.runs import run_cases, sample

SOURCE = Path(__file__).parents[2] / "src"
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
        text = agreement.report(cases, [options.half] if options.half else HALVES)
        return show("field agreement", text, options.write)
    return show(*measure(cases, options), options.write)


def show(section: str, text: str, is_written: bool) -> int:
    """Print a section of RESULTS.md, and put it there."""
    print(text)
    if is_written:
        begin, end = results.marks(section)
        results.write(f"{begin}\n{text}\n{end}", (begin, end))
    return 0


def measure(cases: Sequence[Case], options: argparse.Namespace) -> tuple[str, str]:
    """Return the name of a section of RESULTS.md and its text."""
    build = tools.torchdoctor(options.build)
    tool = tools.peer(options.tool) if options.tool else build
    if options.timing:
        measured = [build, tool] if options.tool else [build]
        timings = timing.measure(cases, measured, options.rounds)
        return "field-timing", timing.report(timings, [t.title for t in measured], options.rounds)
    if options.peers:
        compared = [build, *map(tools.peer, tools.PEERS)]
        return "field-peers", report_peers({t.title: run_cases(cases, t, options.jobs) for t in compared})
    outcomes = run_cases(cases, tool, options.jobs)
    text = report(outcomes, tool.title, options.tool)
    if options.compare:
        other = tools.torchdoctor(options.compare)
        before = run_cases(cases, other, options.jobs)
        text += "\n\n### Compared\n\n" + tables.comparison(before, outcomes, (other.title, tool.title))
    return f"field-{options.tool}" if options.tool else "field", text


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="projects, programs or faults; all without one")
    parser.add_argument("--half", choices=HALVES, help="one half only")
    parser.add_argument("--sample", action="store_true", help="ten minutes, a share of every kind")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="programs at a time; default: cores")
    parser.add_argument("--build", type=Path, default=SOURCE, metavar="DIR", help="`src` folder of a checkout to run")
    parser.add_argument("--compare", type=Path, metavar="DIR", help="`src` folder of a build to compare with")
    parser.add_argument("--tool", choices=tools.PEERS, help="run the programs under a peer")
    parser.add_argument("--peers", action="store_true", help="run the programs under torchdoctor and every peer")
    parser.add_argument("--timing", action="store_true", help="measure time and memory, one program at a time")
    parser.add_argument("--rounds", type=int, default=3, help="of --timing; default: 3")
    parser.add_argument("--all", action="store_true", help="with --timing: every program instead of the sample")
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
    if options.jobs < 1 or options.rounds < 1:
        parser.error("--jobs and --rounds are at least 1")
    if (options.timing and options.peers) or (options.compare and (options.tool or options.peers or options.timing)):
        parser.error("--timing and --peers are runs of their own, and --compare compares builds of torchdoctor")
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
    is_sample = options.sample or (options.timing and not options.all and not options.names)
    return sample(cases) if is_sample else cases


def report(outcomes: Sequence[Outcome], tool: str, peer: str | None) -> str:
    """Return every table of one tool."""
    parts = [
        f"## The field: training code by others{f', under {peer}' if peer else ''}",
        "",
        f"`python benchmarks/field/run.py{f' --tool {peer}' if peer else ''}`, {tool}, {len(outcomes)} programs"
        + (f", attached to {sum(o.verdict.is_attached for o in outcomes)}." if peer else "."),
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


def report_peers(outcomes: dict[str, list[Outcome]]) -> str:
    """Return the table of all tools, on the programs that ran under each."""
    common = set.intersection(*({o.label for o in part} for part in outcomes.values()))
    compared = {title: [o for o in part if o.label in common] for title, part in outcomes.items()}
    return "\n".join(
        [
            "## The field: torchdoctor and its peers",
            "",
            f"`python benchmarks/field/run.py --peers`, {len(common)} programs.",
            "Intervals hold 90% of the draws of a bootstrap over projects.",
            "A finding of a peer counts as right if it may stand for an accepted diagnosis (`benchmarks/field/peers`).",
            "Where a peer could not be attached, a fault counts as missed and a healthy program as not alarmed.",
            "Times are rough, since programs ran side by side.",
            "",
            tables.by_tool(compared),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
