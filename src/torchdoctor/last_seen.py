"""How the processes of a run ended, rank by rank: what a process said itself, or what another observed of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

FINISHED, CRASHED, INTERRUPTED, RUNNING, DIED = "finished", "crashed", "interrupted", "running", "died"
"""How a run stands or ended, in the words of the run directory."""

LAUNCHERS_SIGNALS = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})
"""With which a launcher ends the other ranks once one is gone."""
BROKEN_CONNECTION = re.compile(
    r"connection (was )?(reset|closed|refused|aborted)|broken pipe|by peer|remote process|timed? ?out|timeout|"
    r"heartbeat|socket|\bstore\b|NCCL",
    re.IGNORECASE,
)
"""What collective operations raise in a rank that has lost another one."""
STANDSTILL = 5.0
"""Seconds at one step above which it is worth saying that a rank stood still."""
FLUSHED = 2.0
"""Seconds after which every step that a living process has done is recorded."""


@dataclass(frozen=True)
class ProcessEnding:
    """What another process observed of the end of one that could not say so itself; all empty where it disappeared."""

    signal: str | None = None
    """of the signal that killed it, such as SIGTERM"""
    status: int | None = None
    """with which it left, without closing its record"""
    replaced: bool = False
    """by another program (os.exec)"""
    out_of_memory: bool = False
    """the kernel killed processes for lack of memory at the same time"""


@dataclass(frozen=True)
class LastSeen:
    """One rank's end, or where it is if it still runs. None where the record does not say."""

    rank: int
    status: str
    """finished, interrupted, crashed, died or running"""
    last_step: int | None = None
    """last recorded step"""
    time: float | None = None
    """when the rank ended or was last seen, in seconds since 1970"""
    stood: float | None = None
    """seconds for which it had been at that step by then"""
    file: str | None = None
    line: int | None = None
    error: str | None = None
    """type of the exception that ended the script"""
    message: str | None = None
    ending: ProcessEnding | None = None

    def to_dict(self) -> dict[str, Any]:
        """As in the JSON of a verdict, without what is not known."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def after(self, step: int) -> LastSeen:
        """Where its data reach this step: the process may have ended between writing them and its sign of life."""
        if self.last_step is None or step <= self.last_step:
            return self
        return replace(self, last_step=step, stood=None)

    @property
    def is_lost(self) -> bool:
        """It ended, and not because it had done its work."""
        return self.status not in (FINISHED, RUNNING)

    @property
    def is_recorded_to_the_end(self) -> bool:
        """Its last recorded step is the last one that it did."""
        return self.status not in (DIED, RUNNING) or (self.stood or 0.0) >= FLUSHED

    @property
    def was_ended_by_launcher(self) -> bool:
        return self.ending is not None and self.ending.signal in LAUNCHERS_SIGNALS

    @property
    def lost_connection(self) -> bool:
        """The error that ended it is one that follows from the loss of another rank."""
        return bool(self.error and BROKEN_CONNECTION.search(f"{self.error} {self.message}"))


@dataclass(frozen=True)
class Ranks:
    """The ranks of one run side by side."""

    seen: tuple[LastSeen, ...] = ()
    world_size: int | None = None
    """how many there are in all, on this machine or others"""

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Ranks:
        """From a run's info, as the store's reader gives it."""
        size = info.get("world_size")
        return cls(tuple(_from_dict(each) for each in info.get("ranks") or ()), size if type(size) is int else None)

    @property
    def are_several(self) -> bool:
        return len(self.seen) > 1 or (self.world_size or 1) > 1

    @property
    def unseen(self) -> int:
        """Ranks that left no record here."""
        return max(0, (self.world_size or 0) - len(self.seen)) if self.seen else 0

    @property
    def first_lost(self) -> LastSeen | None:
        """The rank whose end the others followed; None where no rank was lost, or no order can be told."""
        lost = sorted((s for s in self.seen if s.is_lost), key=lambda s: (s.time is None, s.time or 0.0))
        own = [s for s in lost if not s.lost_connection]
        unasked = [s for s in own if not s.was_ended_by_launcher]
        return next(iter(unasked or ([] if lost[:1] != own[:1] else own)), None)

    @property
    def furthest_behind(self) -> LastSeen | None:
        """The one rank with the fewest steps, where ranks were lost and not all got equally far."""
        known = sorted((s for s in self.seen if s.last_step is not None), key=lambda s: s.last_step or 0)
        apart = len(known) > 1 and known[0].last_step != known[1].last_step and known[0].is_recorded_to_the_end
        return known[0] if apart and any(s.is_lost for s in self.seen) else None


def _from_dict(data: Mapping[str, Any]) -> LastSeen:
    seen = LastSeen(**data)
    return replace(seen, ending=ProcessEnding(**seen.ending)) if isinstance(seen.ending, Mapping) else seen
