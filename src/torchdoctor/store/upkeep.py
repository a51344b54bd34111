"""Keeping a run under its cap: when to compact, when to thin, what to refuse. All in the writer's thread.

The cap is shared out. Scalars and matrices may take 60 %: when half of what a digest leaves them is used, or after
`thin_steps` steps, a digest is written, and the segments that the digest before it covers are deleted. So every
moment's rows, extremes included, stay in a digest, and the more recent ones in full. Histograms may take 10 %;
beyond that every second one is dropped, then every fourth. Facts are rewritten when they have grown by 2 %.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from torchdoctor.store import compaction
from torchdoctor.store import format as fmt
from torchdoctor.store.compaction import MATRIX_TABLES, Job
from torchdoctor.store.intake import Intake, Write
from torchdoctor.store.segments import Closed, SegmentSet
from torchdoctor.store.streams import numbers

MATRIX_SHARE = 0.60
DIGEST_SHARE = 0.20
LEAST_SHARE = 0.05
HISTOGRAM_SHARE = 0.10
FACT_SHARE = 0.02
REFUSE_SHARE = 0.95


class Upkeep:
    """Decides on jobs after a flush and advances them until the next."""

    def __init__(self, segments: SegmentSet, cap_bytes: int, limits: fmt.Limits) -> None:
        self.thinned: dict[str, Any] = {}
        self._segments = segments
        self._cap = cap_bytes
        self._limits = limits
        self._jobs: deque[Job] = deque()
        self._stride = 1
        self._cuts = [0, 0]
        """segment numbers of the last two digests"""
        self._cut_steps = [0, 0]
        self._ledger_cut = 0

    def accepts(self, write: Write) -> bool:
        """Whether there is room for it. Facts, which are few and say the most, are refused last."""
        share = 1.0 if write.table in (fmt.FACTS, fmt.SERIES) else REFUSE_SHARE
        return self._segments.total() + write.batch.nbytes <= share * self._cap

    def skips(self, write: Write) -> bool:
        """Whether it is a histogram that would be thinned out at once."""
        return write.table == fmt.HISTOGRAMS and numbers(write.batch.column(0))[0] % self._stride != 0

    def note(self, closed: Closed | None) -> None:
        if closed is not None and closed.small:
            self._jobs.append(compaction.compact(self._segments, closed.name))

    def plan(self, intake: Intake) -> None:
        """Start what is due. Called with everything written and nothing coming in, so that a digest is exact."""
        if self._jobs:
            return
        if self._digest_is_due(intake):
            self._jobs.append(self._digest(intake))
        if self._segments.size((fmt.HISTOGRAMS,)) > HISTOGRAM_SHARE * self._cap:
            self._stride *= 2
            self._segments.retire((fmt.HISTOGRAMS,))
            self._jobs.append(compaction.thin_histograms(self._segments, self._stride))
        if self._segments.size((fmt.FACTS,), self._ledger_cut) > FACT_SHARE * self._cap:
            self._ledger_cut = self._segments.retire((fmt.FACTS,))
            facts = intake.facts
            kept = (facts.first, facts.last)
            self._jobs.append(compaction.write_ledger(self._segments, facts.entries(), kept, self._ledger_cut))

    def _digest_is_due(self, intake: Intake) -> bool:
        fresh = self._segments.size(MATRIX_TABLES, self._cuts[-1])
        if not fresh:
            return False
        if intake.steps - self._cut_steps[-1] >= self._limits.thin_steps:
            return True
        if fresh < LEAST_SHARE * self._cap:
            return False
        digest = min(intake.nbytes(), DIGEST_SHARE * self._cap)
        return fresh >= max((MATRIX_SHARE * self._cap - 2 * digest) / 2, LEAST_SHARE * self._cap)

    def _digest(self, intake: Intake) -> Job:
        while intake.nbytes() > DIGEST_SHARE * self._cap and intake.shrink():
            pass
        states = intake.states()
        before, cut = self._cuts[-1], self._segments.retire(MATRIX_TABLES)
        steps = (intake.first_step, intake.steps - 1)
        self._cuts, self._cut_steps = [before, cut], [self._cut_steps[-1], intake.steps]
        thinned_to = self._cut_steps[0]

        def job() -> Job:
            yield from compaction.digest(self._segments, states, cut, before, steps)
            if thinned_to:
                merged = max(2**state.level for state in states.values())
                self.thinned = {"before_step": thinned_to, "looks_per_row": merged}

        return job()

    def advance(self, until: Callable[[], bool]) -> None:
        """Work on jobs, one piece at least, until told to stop. An OSError ends the job it came from."""
        self._segments.close_ended()
        while self._jobs:
            try:
                next(self._jobs[0])
            except StopIteration:
                self._jobs.popleft()
            except Exception:
                self._jobs.popleft()
                raise
            if until():
                return

    def stop(self) -> None:
        for job in self._jobs:
            job.close()  # type: ignore[attr-defined]
        self._jobs.clear()


def deadline(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
