"""Learning rate schedulers: their settings, and after how many updates each of their calls came."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass, field
from typing import Any

from torchdoctor.attach.guard import contained
from torchdoctor.attach.places import Place
from torchdoctor.facts import SchedulerFact
from torchdoctor.probes.context import Context

CALLS_KEPT = 8
SETTINGS = (
    "step_size",
    "gamma",
    "milestones",
    "T_max",
    "eta_min",
    "total_steps",
    "total_iters",
    "factor",
    "patience",
    "T_0",
    "T_mult",
    "step_size_up",
    "total_size",
)
SCHEDULERS_KEPT = 64


@dataclass
class Watched:
    scheduler: weakref.ref[Any]
    key: str
    optimizer: str | None
    made: Place | None
    called: Place | None = None
    calls: int = 0
    called_at: list[int] = field(default_factory=list)
    last_at: int = 0
    nested: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


class ScheduleProbe:
    """Counts the calls of every scheduler; facts are written at calls 1, 2, 4, 8 ... and at the end."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._watched: dict[int, Watched] = {}

    def known(self, scheduler: Any) -> bool:
        """Whether its place in the user's code is on record."""
        watched = self._watched.get(id(scheduler))
        return watched is not None and watched.scheduler() is scheduler and watched.called is not None

    @contained("schedules: called")
    def called(self, scheduler: Any, optimizer: str | None, updates: int, place: Place | None) -> None:
        """Its step() ran after that many updates."""
        watched = self._watched.get(id(scheduler))
        if watched is None or watched.scheduler() is not scheduler:
            if len(self._watched) >= SCHEDULERS_KEPT:
                return
            watched = self._watch(scheduler, optimizer, place)
        if getattr(scheduler, "_is_initial", False):
            return
        watched.calls += 1
        watched.last_at = updates
        if watched.called is None:
            watched.called = place
            self._mark_nested(scheduler)
        if len(watched.called_at) < CALLS_KEPT:
            watched.called_at.append(updates)
        if watched.calls & (watched.calls - 1) == 0:
            self._write(watched)

    @contained("schedules: close")
    def close(self) -> None:
        for watched in self._watched.values():
            self._write(watched)

    def _watch(self, scheduler: Any, optimizer: str | None, place: Place | None) -> Watched:
        name = f"{type(scheduler).__name__}@{optimizer}"
        same = sum(w.key.partition("#")[0] == name for w in self._watched.values())
        watched = Watched(weakref.ref(scheduler), f"{name}#{same + 1}" if same else name, optimizer, place)
        self._watched[id(scheduler)] = watched
        self._write(watched)
        return watched

    def _mark_nested(self, scheduler: Any) -> None:
        for child in getattr(scheduler, "_schedulers", ()):
            if (watched := self._watched.get(id(child))) is not None:
                watched.nested = True
                self._write(watched)

    def _write(self, watched: Watched) -> None:
        scheduler = watched.scheduler()
        if scheduler is not None:
            watched.settings = settings_of(scheduler)
        fact = SchedulerFact(
            key=watched.key,
            type=watched.key.partition("@")[0],
            optimizer=watched.optimizer,
            file=watched.called.file if watched.called else None,
            line=watched.called.line if watched.called else None,
            settings=watched.settings,
            calls=watched.calls,
            called_at=list(watched.called_at),
            last_at=watched.last_at,
            nested=watched.nested,
            made_file=watched.made.file if watched.made else None,
            made_line=watched.made.line if watched.made else None,
        )
        self._context.record.fact(fact, self._context.step, watched.key)


def settings_of(scheduler: Any) -> dict[str, Any]:
    """The plain numbers that shape its curve."""
    found: dict[str, Any] = {}
    for name in SETTINGS:
        value = getattr(scheduler, name, None)
        if name == "milestones" and value is not None:
            found[name] = sorted(int(m) for m in value)[:64]
        elif isinstance(value, (int, float)) and math.isfinite(value):
            found[name] = value
    return found
