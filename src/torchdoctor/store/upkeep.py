"""Keeping a run under its cap: when to compact, when to thin, what to refuse. All in the writer's thread.

The cap is shared out. Scalars and matrices may take 60 %: when half of what a digest leaves them is used, or after
`thin_steps` steps, a digest is written, and the segments that the digest before it covers are deleted. So every
moment's rows, extremes included, stay in a digest, and the more recent ones in full. Histograms may take 10 %;
beyond that every second one is dropped, then every fourth. Facts are rewritten when they have grown by 2 %. Where
earlier sessions of the same run have left much, a digest takes its place before anything else is done.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from torchdoctor.store import compaction
from torchdoctor.store import format as fmt
from torchdoctor.store.columns import numbers
from torchdoctor.store.compaction import MATRIX_TABLES, Job
from torchdoctor.store.condensing import condense_earlier
from torchdoctor.store.intake import Intake, Write
from torchdoctor.store.names import FACTS, HISTOGRAMS, SERIES
from torchdoctor.store.segments import Closed, SegmentSet

MATRIX_SHARE = 0.60
DIGEST_SHARE = 0.20
LEAST_SHARE = 0.05
HISTOGRAM_SHARE = 0.10
FACT_SHARE = 0.02
REFUSE_SHARE = 0.95
EARLIER_SHARE = 0.40
"""What sessions before this one may keep of the cap; a digest replaces what they have beyond that."""


class Upkeep:
    """Decides on jobs after a flush and advances them until the next."""

    def __init__(self, segments: SegmentSet, cap_bytes: int, limits: fmt.Limits) -> None:
        self.thinned: dict[str, Any] = {}
        self._segments = segments
        self._limits = limits
        self._whole_cap = cap_bytes
        self._thinning: deque[Job] = deque()
        self._compactions: deque[Job] = deque()
        self._current: Job | None = None
        self._stride = 1
        self._cuts = [0, 0]
        """segment numbers of the last two digests"""
        self._cut_steps = [0, 0]
        self._ledger_cut = 0

    def condense_earlier(self) -> None:
        """Make room if sessions before this one have left little."""
        most = EARLIER_SHARE * self._whole_cap
        if self._segments.earlier_size() > most:
            self._thinning.append(condense_earlier(self._segments, most))

    @property
    def _cap(self) -> float:
        """What earlier sessions leave to this one."""
        return max(self._whole_cap - self._segments.earlier_size(), LEAST_SHARE * self._whole_cap)

    def accepts(self, write: Write) -> bool:
        """Whether there is room for it. Facts, which are few and say the most, are refused last."""
        share = 1.0 if write.table in (FACTS, SERIES) else REFUSE_SHARE
        return self._segments.total() + write.batch.nbytes <= share * self._cap

    def skips(self, write: Write) -> bool:
        """Whether it is a histogram that would be thinned out at once."""
        return write.table == HISTOGRAMS and numbers(write.batch.column(0))[0] % self._stride != 0

    def note(self, closed: Closed | None) -> None:
        if closed is not None and closed.small and closed.name.table != HISTOGRAMS:
            self._compactions.append(compaction.compact(self._segments, closed.name))

    def plan(self, intake: Intake) -> None:
        """Start what is due. Called with everything written and nothing coming in, so that a digest is exact."""
        if self._thinning:
            return
        if self._digest_is_due(intake):
            self._thinning.append(self._digest(intake))
        if self._segments.size((HISTOGRAMS,)) > HISTOGRAM_SHARE * self._cap:
            self._stride *= 2
            self._segments.retire((HISTOGRAMS,))
            self._thinning.append(compaction.thin_histograms(self._segments, self._stride))
        if self._segments.size((FACTS,), self._ledger_cut) > FACT_SHARE * self._cap:
            self._ledger_cut = self._segments.retire((FACTS,))
            facts = intake.facts
            kept = (facts.first, facts.last)
            self._thinning.append(compaction.write_ledger(self._segments, facts.entries(), kept, self._ledger_cut))

    def _digest_is_due(self, intake: Intake) -> bool:
        fresh = self._segments.size(MATRIX_TABLES, self._cuts[-1])
        many = intake.steps - self._cut_steps[-1] >= self._limits.thin_steps
        if not fresh or (fresh < LEAST_SHARE * self._cap and not many):
            return False
        most = DIGEST_SHARE * self._cap
        if intake.least_nbytes() > most:
            return False
        return many or fresh >= max(MATRIX_SHARE * self._cap / 2 - min(intake.nbytes(), most), LEAST_SHARE * self._cap)

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
        """Work on jobs, one piece at least, until told to stop. An error ends the job it came from."""
        self._segments.close_ended()
        while self._current or self._thinning or self._compactions:
            if self._current is None:
                self._current = (self._thinning or self._compactions)[0]
            try:
                next(self._current)
            except StopIteration:
                self._end_current()
            except Exception:
                self._end_current()
                raise
            if until():
                return

    def _end_current(self) -> None:
        for queue in (self._thinning, self._compactions):
            if queue and queue[0] is self._current:
                queue.popleft()
        self._current = None

    def stop(self) -> None:
        if self._current is not None:
            self._current.close()
        self._thinning.clear()
        self._compactions.clear()


def deadline(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
