"""Calls in the middle of training that hold it up: writing checkpoints, collecting garbage, emptying the cache."""

from __future__ import annotations

from dataclasses import dataclass

from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place
from torchdoctor.facts import PauseFact
from torchdoctor.probes.context import Context

KINDS_KEPT = 32
GROWTH = 1.5


@dataclass
class Tally:
    count: int = 0
    seconds: float = 0.0
    updates: int = 0
    next: float = 1.0
    """count at which it is written again"""


class PauseProbe:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._tallies: dict[tuple[str, Place | None], Tally] = {}

    @contained("pauses: ended")
    def ended(self, call: str, seconds: float, updates: int, place: Place | None) -> None:
        key = (call, place)
        if not updates or (key not in self._tallies and len(self._tallies) >= KINDS_KEPT):
            return
        tally = self._tallies.setdefault(key, Tally())
        tally.count += 1
        tally.seconds += seconds
        tally.updates = updates
        if tally.count >= tally.next:
            tally.next = tally.count * GROWTH
            self._write(key, tally)

    @contained("pauses: close")
    def close(self) -> None:
        for key, tally in self._tallies.items():
            self._write(key, tally)

    def _write(self, key: tuple[str, Place | None], tally: Tally) -> None:
        call, place = key
        fact = PauseFact(
            call=call,
            count=tally.count,
            seconds=tally.seconds,
            updates=tally.updates,
            file=place.file if place else None,
            line=place.line if place else None,
            library=place.library if place else None,
        )
        self._context.record.fact(fact, self._context.step, f"{call}@{place}")
