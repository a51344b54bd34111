"""Running many cases. A case that is on record is not run again, so a run that was stopped goes on where it was."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from typing import TypeVar

import results
from environments import InstallError
from field.outcomes import Outcome, Records, bare_records, from_data, outcome_of, recorded_records, to_data
from field.programs import Case
from field.projects import COUNTED, HALVES
from field.running import Result, run_bare
from field.tools import Tool

SEED = 0
SAMPLE_SECONDS = 600.0
T = TypeVar("T")


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
                data = known.get(key_of(case))
                left -= 2 * (data["result"]["seconds"] if data else 10.0)
                chosen.append(case)
    return chosen


def run_cases(cases: Sequence[Case], tool: Tool, jobs: int) -> list[Outcome]:
    """Return the outcome of every case under a tool, beside the same case bare."""
    bare = bare_records()
    recorded = {half: recorded_records(half, tool.records) for half in HALVES}

    def run_one(case: Case) -> Outcome:
        result = _bare_of(case, bare)
        records = recorded[case.project.half]
        if key_of(case) not in records.known:
            records.keep(key_of(case), to_data(*tool.run(case, SEED)))
        recorded_result, verdict = from_data(records.known[key_of(case)])
        return outcome_of(case, result, recorded_result, tool.translate(verdict))

    return sorted(for_each(cases, run_one, tool.title, jobs), key=lambda o: o.label)


def for_each(cases: Sequence[Case], work: Callable[[Case], T], title: str, jobs: int) -> list[T]:
    """Do something with every case, in random order, showing progress. Cases that cannot be installed are named."""
    done: list[T] = []
    order = random.Random(SEED).sample(list(cases), len(cases))
    with results.progress() as shown, ThreadPoolExecutor(jobs) as pool:
        bar = shown.add_task(title, total=len(cases), now="")
        futures = {pool.submit(work, case): case for case in order}
        try:
            for future in as_completed(futures):
                try:
                    done.append(future.result())
                except InstallError as error:
                    shown.console.print(f"{futures[future].project.name}: {error}", style="red")
                label = futures[future].label if futures[future].project.half != COUNTED else "(counted half)"
                shown.update(bar, advance=1, now=label)
        except BaseException:  # a kill or an error: the next run does the cases that have not begun
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return done


def _bare_of(case: Case, records: Records) -> Result:
    if key_of(case) not in records.known:
        records.keep(key_of(case), {"result": asdict(run_bare(case, SEED))})
    return Result(**records.known[key_of(case)]["result"])


def key_of(case: Case) -> str:
    """Return the key of a case's records, which changes with everything that decides what the program does."""
    return f"{case.label} {case.digest()} {SEED}"
