"""The cost of tools: each program runs bare and under each tool in turns, one job at a time, for several rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from field.environment import CACHE
from field.outcomes import Records
from field.programs import Case
from field.running import Result, run_bare
from field.runs import SEED, for_each, key_of
from field.scoring import estimate
from field.tools import Tool
from scores import table

BARE = "bare"
MEASURES: dict[str, Callable[[Result], float]] = {
    "wall time": lambda result: result.seconds,
    "CPU time": lambda result: result.cpu_seconds,
    "memory": lambda result: result.megabytes,
}


@dataclass(frozen=True)
class Timing:
    """One case, measured in several rounds."""

    project: str
    rounds: tuple[dict[str, Result], ...]
    """results by the title of the tool, with those of the bare program"""

    def is_complete(self, title: str) -> bool:
        """Return whether the program ended well in every round, bare and under the tool, so that times compare."""
        return all(round_[name].status == 0 for round_ in self.rounds for name in (BARE, title))

    def ratio(self, title: str, measure: Callable[[Result], float]) -> float:
        """Return the median of a measure over the rounds under a tool, divided by its median over the bare rounds."""
        under, bare = ([measure(round_[name]) for round_ in self.rounds] for name in (title, BARE))
        return float(np.median(under) / np.median(bare))


def measure(cases: Sequence[Case], tools: Sequence[Tool], rounds: int) -> list[Timing]:
    """Measure cases that are not on record. The order of the tools changes from round to round."""
    records = Records(CACHE / "timing" / f"{'+'.join(tool.records for tool in tools)}.jsonl")
    runs: dict[str, Callable[[Case], Result]] = {BARE: lambda case: run_bare(case, SEED)}
    for tool in tools:
        runs[tool.title] = lambda case, tool=tool: tool.run(case, SEED)[0]

    def measure_one(case: Case) -> Timing:
        for number in range(rounds):
            key = f"{key_of(case)} {number}"
            if key not in records.known:
                order = [*list(runs)[number % len(runs) :], *list(runs)[: number % len(runs)]]
                records.keep(key, {name: asdict(runs[name](case)) for name in order})
        measured = (records.known[f"{key_of(case)} {number}"] for number in range(rounds))
        return Timing(case.project.name, tuple({n: Result(**data[n]) for n in runs} for data in measured))

    return for_each(cases, measure_one, "timing", jobs=1)


def report(timings: Sequence[Timing], titles: Sequence[str], rounds: int) -> str:
    """Return the table: the median and the mean over programs of each measure beside bare, for each tool."""
    rows = []
    for title in titles:
        complete = [t for t in timings if t.is_complete(title)]
        for name, of_result in MEASURES.items():
            median, mean = (
                estimate(complete, lambda t, m=of_result, tool=title: t.ratio(tool, m), center)
                for center in (np.median, np.mean)
            )
            rows.append([title, name, median.ratio(), mean.ratio(), f"{len(complete)} of {len(timings)}"])
    return "\n".join(
        [
            "## The field: time and memory beside bare",
            "",
            f"`python benchmarks/field/run.py --timing`, {rounds} rounds, one program at a time, bare and recorded in"
            " turns.",
            "Of each program, the medians over the rounds are compared. Programs that failed in a round are left out.",
            "Intervals hold 90% of the draws of a bootstrap over projects.",
            "",
            table(["tool", "measure", "median", "mean", "programs"], rows),
        ]
    )
