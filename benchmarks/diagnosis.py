"""How often the right cause is named first, and how often a sound training is alarmed: the zoo through the real tool.

    python benchmarks/diagnosis.py [--seeds 3] [--first-seed 0] [--grades mild,medium,severe] [--only GLOB]
                                   [--part zoo|untouched|all] [--resume] [--jobs N] [--timeout 240] [--no-fixes]
                                   [--records DIR [--again]] [--write]

Every case of src/torchdoctor/zoo and of benchmarks/untouched (written from the catalogue alone, by someone who had not
seen the rules) runs as `torchdoctor run --json` in a process of its own (forked from one that has torch imported: see
warm.py), one thread each, as many at a time as there are cores. A script that mentions SEED runs for every seed, one
that mentions GRADE for every grade. With --write the section goes into benchmarks/RESULTS.md. --resume takes up
outcomes of the same source and the same script. --records keeps what was recorded, and --again asks the rules about
those records instead of training anew: for work on rules, not for results, since a record knows nothing of changes in
the recorder.
"""

from __future__ import annotations

import os

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # asking for a device must not keep forks from using it

import argparse
import hashlib
import platform
import shlex
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

import fixes
import scores
import warm
from results import bullets, commit, marks, progress, write
from torchdoctor import zoo
from trials import GRADES, UNGRADED, Cache, Outcome, Trial, can_run, list_trials, perform, source_digest

HERE = Path(__file__).parent
UNTOUCHED = HERE / "untouched"
CACHE = HERE / ".cache" / "diagnosis.jsonl"
MARKS = marks("diagnosis")
PARTS = {"zoo": None, "untouched": UNTOUCHED}
DIAGNOSIS_HEAD = [
    *("diagnosis", "cases", "named first", "named at all", "mild: first", "mild: at all"),
    *("first told at step (median)", "healthy twins alarmed"),
]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each script that reads SEED; default 3")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--grades", type=lambda s: s.split(","), default=list(GRADES), help="default: all three")
    parser.add_argument("--only", metavar="GLOB", action="append", help="cases by name: 'dead-relu/*', '*/healthy-*'")
    parser.add_argument("--part", choices=("all", *PARTS), default="all")
    parser.add_argument("--resume", action="store_true", help="keep outcomes of the same source and script")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time; default: cores")
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for one run")
    parser.add_argument("--no-fixes", action="store_true", help="do not run repaired scripts")
    parser.add_argument("--records", type=Path, metavar="DIR", help="keep the records there")
    parser.add_argument("--again", action="store_true", help="examine the records in DIR; train only what has none")
    parser.add_argument("--write", action="store_true", help="update benchmarks/RESULTS.md")
    options = parser.parse_args()
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs are at least 1")
    if unknown := set(options.grades) - set(GRADES):
        parser.error(f"there is no grade {', '.join(sorted(unknown))}; choose from {', '.join(GRADES)}")
    if options.again and (options.records is None or options.write):
        parser.error("--again needs --records, and its figures are not to be written")
    return options


def choose(options: argparse.Namespace) -> list[Trial]:
    parts = PARTS if options.part == "all" else {options.part: PARTS[options.part]}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    trials = [t for part, folder in parts.items() for t in list_trials(part, folder, seeds, options.grades)]
    if options.only:
        trials = [t for t in trials if any(fnmatch(t.case, glob) for glob in options.only)]
    return trials


def run_all(
    trials: list[Trial], scripts: list[str | None], options: argparse.Namespace, cache: Cache, what: str
) -> list[Outcome]:
    """Every trial's outcome, in the order given; those in the cache are not run again."""
    source = source_digest()
    keys = [f"{t.key(source)}{'' if s is None else f'+{hash_text(s)}'}" for t, s in zip(trials, scripts, strict=True)]
    waiting = [i for i, key in enumerate(keys) if key not in cache.known]
    with progress() as shown, ProcessPoolExecutor(options.jobs, initializer=warm.preload) as pool:
        bar = shown.add_task(what, total=len(trials), completed=len(trials) - len(waiting), now="")
        futures: dict[Future[Outcome], int] = {
            pool.submit(perform, trials[i], options.timeout, scripts[i], options.records, options.again): i
            for i in waiting
        }
        try:
            for future in as_completed(futures):
                i = futures[future]
                cache.keep(keys[i], future.result())
                shown.update(bar, advance=1, now=trials[i].label)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [replace(cache.known[key], trial=trial) for key, trial in zip(keys, trials, strict=True)]


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def repair(outcomes: list[Outcome], first_seed: int) -> tuple[list[Trial], list[str], int]:
    """Sick zoo cases that were named first and have a mechanical fix: once each, medium or without a grade."""
    trials, scripts, asked = [], [], 0
    for outcome in outcomes:
        trial = outcome.trial
        if (
            trial.part != "zoo"
            or trial.truth is None
            or trial.seed not in (0, first_seed)
            or trial.grade not in (UNGRADED, "medium")
        ):
            continue
        if not outcome.named_first:
            continue
        asked += 1
        text = Path(trial.path).read_text(encoding="utf-8")
        repaired = fixes.apply(text, outcome.findings[0], fixes.twin_of(trial.path))
        if repaired is not None:
            trials.append(trial)
            scripts.append(repaired)
    return trials, scripts, asked


def describe_fixes(asked: int, outcomes: list[Outcome]) -> list[str]:
    if not outcomes:
        return []
    stays = [o for o in outcomes if any(f["name"] == o.trial.truth for f in o.grave)]
    others = [o for o in outcomes if o.grave and o not in stays]
    gone = len(outcomes) - len(stays)
    text = (
        f"`fix.code` could be put into {len(outcomes)} of {asked} scripts without thought (see benchmarks/fixes.py; "
        "the rest names things otherwise than the script does, or needs a choice). Run again, the diagnosis is gone in "
        f"{gone} of them; nothing graver than info is left in {gone - len(others)}."
    )
    said = [f"still there: {line}" for line in scores.false_alarms([as_healthy(o) for o in stays])]
    said += [f"something else: {line}" for line in scores.false_alarms([as_healthy(o) for o in others])]
    return ["#### Fixes applied", "", text, "", *bullets(said)]


def as_healthy(outcome: Outcome) -> Outcome:
    return replace(outcome, trial=replace(outcome.trial, truth=None))


def report(part: str, outcomes: list[Outcome]) -> Iterator[str]:
    """One part's tables."""
    title = "The zoo" if part == "zoo" else "Untouched: written from the catalogue alone, never tuned on"
    yield from (f"### {title}", "")
    if not outcomes:
        yield from ("No cases.", "")
        return
    cases = {o.trial.case for o in outcomes}
    seconds = sum(o.seconds for o in outcomes)
    yield from (f"{len(cases)} cases, {len(outcomes)} runs, {seconds / 60:.0f} minutes of one core.", "")
    left_out = [c.name for c in zoo.cases(PARTS[part]) if not can_run(c)]
    if left_out:
        yield from (f"Left out for want of a CUDA device: {', '.join(left_out)}.", "")
    yield from (scores.table(["what", "measured"], scores.summary(outcomes)), "")
    yield from (scores.table(DIAGNOSIS_HEAD, scores.by_diagnosis(outcomes)), "")
    yield (
        "Stated confidence of errors and warnings that stand by themselves, against the share that named the planted "
        "fault (a second, real fault beside it counts as wrong here):"
    )
    yield ""
    yield from (scores.table(["stated", "mean", "right"], scores.calibration(outcomes)), "")
    for heading, lines in (
        ("Misses", scores.misses(outcomes)),
        ("False alarms", scores.false_alarms(outcomes)),
        ("Failures of our own", scores.failures(outcomes)),
    ):
        if lines:
            yield from (f"#### {heading}", "", *bullets(lines))


def report_peers(outcomes: list[Outcome]) -> Iterator[str]:
    yield from ("### Peers' published rules on the same runs (our reading)", "")
    yield (
        "None of their code ran: benchmarks/peers.py evaluates the published thresholds over the signals that "
        "torchdoctor recorded, and credits a rule with every diagnosis that it could kindly be taken to name. Most of "
        "the catalogue lies outside what these tools set out to find."
    )
    yield ""
    yield scores.table(["tool", "faults named, of all", "healthy runs with any alarm"], scores.peers_together(outcomes))
    yield ""
    head = ["tool", "rule", "on the faults it means", "on other faults", "on healthy runs"]
    yield from (scores.table(head, scores.by_peer(outcomes)), "")


def section(outcomes: list[Outcome], repaired: list[str], options: argparse.Namespace, source: str) -> str:
    begin, end = MARKS
    words = shlex.join(["python", "benchmarks/diagnosis.py", *sys.argv[1:]])
    today = time.strftime("%Y-%m-%d")
    lines = [
        begin,
        "## Diagnosis",
        "",
        f"`{words}`, {today}, commit {source}, Python {platform.python_version()}.",
        "",
    ]
    lines += [
        "Named first: the planted fault is the first finding, as an error or a warning (as an info "
        "where the catalogue has it so: clipping-by-value). Named at all: it is among the "
        "findings, whatever its severity. Both over medium, severe and ungraded faults; mild ones apart. First told: "
        "the step at which the live engine would have told it, from the record cut at the engine's own steps, with the "
        "median length of the run. A healthy run must have no error and no warning.",
        "",
    ]
    for part in PARTS:
        if options.part in ("all", part):
            lines += report(part, [o for o in outcomes if o.trial.part == part])
        if part == "zoo":
            lines += repaired
    return "\n".join([*lines, *report_peers(outcomes), end])


def main() -> None:
    options = parse()
    trials = choose(options)
    if not trials:
        raise SystemExit("no case fits; names are as in `torchdoctor demo --list`, such as 'dead-relu/mlp'")
    source, cache = commit(), Cache(CACHE, options.resume)
    try:
        outcomes = run_all(trials, [None] * len(trials), options, cache, "cases")
        fixed: list[str] = []
        if not options.no_fixes:
            again, scripts, asked = repair(outcomes, options.first_seed)
            fixed = describe_fixes(asked, run_all(again, list(scripts), options, cache, "fixes") if again else [])
    except KeyboardInterrupt:
        raise SystemExit("interrupted; --resume goes on from here") from None
    text = section(outcomes, fixed, options, source)
    if options.write:
        write(text, MARKS)
    print(text)


if __name__ == "__main__":
    main()
