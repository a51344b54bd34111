"""Findings while it trains: the same rules on the live record, in a thread of their own.

Rules run at steps that grow by a quarter, so a run of any length has few examinations, and at once when values stop
being finite or the loss stands out. A structural finding is told at once; a statistical one when two examinations in a
row had it, and it is withdrawn when it goes away.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchdoctor.errors import StopTraining
from torchdoctor.findings import Finding, Proof, Verdict

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session

log = logging.getLogger("torchdoctor")

FIRST_STEPS = (3, 10, 25)
GROWTH = 1.25
CONFIRMATIONS = 2
ALARMS = 12
"""Examinations out of turn, in all: a loss that jumps every epoch is not worth one each time."""
ALARM_SPACING = 10
"""Steps from one of them to the next."""


class LiveEngine:
    """Wakes at chosen steps, asks the rules, and tells whoever listens."""

    def __init__(self, session: Session, examine: Callable[[Any], Verdict]) -> None:
        self._session = session
        self._examine = examine
        self._next = float(FIRST_STEPS[0])
        self._alarms_left, self._alarmed, self._alarm_from = ALARMS, False, 0
        self._in_turn = False
        """the examination that is asked for is not only an alarm's"""
        self._wake = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None
        self._seen: dict[str, int] = {}
        self.told: dict[str, Finding] = {}
        self.listeners: list[Callable[[Finding], None]] = []
        self.at_start: Callable[[], None] | None = None
        """called once the record is there, from the engine's own thread"""
        self.stop_on: frozenset[str] = frozenset(session.options.stop_on)
        self.stop_for: Finding | None = None

    @property
    def wanted(self) -> bool:
        return bool(self.listeners or self.stop_on)

    def alarm(self) -> None:
        """Something happened that should not wait its turn."""
        self._alarmed = True

    def tick(self, step: int) -> None:
        """Called at each new step by the training thread; returns at once."""
        if not self.wanted or not self._session.record.started:
            return
        if step >= self._next:
            self._next = next((float(s) for s in FIRST_STEPS if s > step), max(step + 10, step * GROWTH))
            self._in_turn = True
        elif self._alarmed and self._alarms_left > 0 and step >= self._alarm_from:
            self._alarms_left -= 1
            self._alarm_from = step + ALARM_SPACING
        else:
            return
        self._alarmed = False
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="torchdoctor-live", daemon=True)
            self._thread.start()
        self._wake.set()

    def _work(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._ended:
                return
            try:
                if self.at_start is not None:
                    tell, self.at_start = self.at_start, None
                    tell()
                in_turn, self._in_turn = self._in_turn, False
                verdict = self._examine(self._session.record.run())
                if self._ended:
                    return
                self.consider(verdict, in_turn)
            except Exception:
                log.exception("torchdoctor: live examination failed; the verdict at the end is not affected")
                return

    def consider(self, verdict: Verdict, in_turn: bool = True) -> None:
        """Tell what is new and sure enough; forget what is gone. Out of turn little has been added since the last time:
        that confirms nothing."""
        standing = {f.name: f for f in verdict.findings}
        for name in [n for n in self._seen if n not in standing]:
            del self._seen[name]
            self.told.pop(name, None)
        for name, finding in standing.items():
            self._seen[name] = self._seen.get(name, 0) + in_turn
            sure = finding.proof is Proof.STRUCTURE or self._seen[name] >= CONFIRMATIONS
            if not sure or name in self.told:
                continue
            self.told[name] = finding
            if name in self.stop_on:
                self.stop_for = finding
            for listener in self.listeners:
                try:
                    listener(finding)
                except Exception:
                    log.exception("torchdoctor: on_finding raised")

    def check(self) -> None:
        """In the training thread, after an update: end the run if the user asked for it."""
        if self.stop_for is not None:
            finding, self.stop_for = self.stop_for, None
            raise StopTraining(f"stopped on {finding.name}: {finding.title}")

    def stop(self) -> None:
        self._ended = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)
