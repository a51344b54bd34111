"""Where the runs of several seeds stand: one bar for all of them and a line for each that runs, on a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torchdoctor.console import BarColumn, Console, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from torchdoctor.experiments.seeds import FINISHED, Launch, Outcome


class Silent:
    """Where nobody looks."""

    def begun(self, launch: Launch) -> None: ...

    def moved(self, launch: Launch, steps: int) -> None: ...

    def ended(self, launch: Launch, outcome: Outcome) -> None: ...


class Bars:
    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._all = progress.add_task("seeds", total=total)
        self._tasks: dict[str, TaskID] = {}
        self._steps: int | None = None
        """of the first run that finished: what the others will take, too"""

    def begun(self, launch: Launch) -> None:
        words = f"  {launch.variant.name}, seed {launch.seed}"
        self._tasks[launch.name] = self._progress.add_task(words, total=self._steps)

    def moved(self, launch: Launch, steps: int) -> None:
        self._progress.update(self._tasks[launch.name], completed=steps, total=self._steps)

    def ended(self, launch: Launch, outcome: Outcome) -> None:
        task = self._tasks.pop(launch.name, None)
        if task is not None:
            self._progress.remove_task(task)
        if outcome.status == FINISHED:
            self._steps = max(self._steps or 0, outcome.steps) or None
        else:
            self._progress.console.print(f"{launch.variant.name}, seed {launch.seed}: {outcome.status}", markup=False)
        self._progress.advance(self._all)


@contextlib.contextmanager
def show_board(total: int, shown: bool = True) -> Iterator[Silent | Bars]:
    """On the error stream, if that is a terminal; gone when all are done."""
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield Silent()
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield Bars(progress, total)
