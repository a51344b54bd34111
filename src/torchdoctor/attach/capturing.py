"""Taking a capture from a running session: one copy of what the step works on, then a thread that writes it.

Whatever goes wrong (no room, a read-only folder, no safetensors) is said once, and training goes on as if nothing
had been asked for.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchdoctor.attach.contents import Copies
from torchdoctor.attach.guard import contained, guarded
from torchdoctor.attach.inventory import Inventory, describe_code, plain
from torchdoctor.attach.options import EXCEPTION, NONFINITE, SPIKE
from torchdoctor.attach.past import Past
from torchdoctor.attach.shadowing import own_modules
from torchdoctor.interruptions import let_through
from torchdoctor.probes.memory import memory_left
from torchdoctor.store.captures import CAPTURES, REASON, CaptureName, has_place, write_capture

if TYPE_CHECKING:
    from torchdoctor.attach.session import Session

log = logging.getLogger("torchdoctor")

SPIKE_STEPS = 500
"""Steps between two captures of a high loss: a loss that keeps jumping would fill the disk with the same."""
PENDING = 2
"""Captures that may be under way at once; each holds a copy of the model in memory."""
JOIN_SECONDS = 10.0
"""How long the end of a run waits for a capture that is being written."""
MEMORY_SHARE = 0.5
"""Of the memory that is free, what a copy may take: the training goes on beside it."""
THREAD = "torchdoctor-capture"


class Capturing:
    """Decides whether a capture is taken, takes it, and knows those that were written."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._options = session.options
        self.taken: list[dict[str, Any]] = []
        """step, reason and either the folder's name or why it failed, of every capture"""
        self._scalers: dict[int, weakref.ref[Any]] = {}
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._last_spike: int | None = None
        self._refused: set[str] = set()

    def scaler(self, scaler: Any) -> None:
        """A gradient scaler is at work."""
        if id(scaler) not in self._scalers:
            self._scalers[id(scaler)] = weakref.ref(scaler)

    @property
    def scalers(self) -> list[Any]:
        return [scaler for ref in self._scalers.values() if (scaler := ref()) is not None]

    @contained("capture")
    def take(self, reason: str, step: int | None = None, loss: float | None = None) -> Path | None:
        """Copy the state now and write it beside the training; where it will be, or None if none is taken. `loss`: that
        of the step, where it is known.

        Called before the step's update it holds what the step began with, but for buffers, which the forward pass
        has moved on. On a device a failure is known later: then it holds the state before an earlier step, and the
        steps from there on (rolling.py).
        """
        session = self._session
        at = session.context.step if step is None else step
        reason = clean_reason(reason)
        if not self._is_due(reason, at) or not self._can_write(reason, at):
            return None
        if reason == SPIKE:
            self._last_spike = at
        begun = time.perf_counter()
        entry = {"step": at, "reason": reason}
        self.taken.append(entry)
        name = CaptureName(at, reason, session.rank)
        past = session.rolling.reach(at) if reason == NONFINITE else None
        inventory = Inventory(session, self.scalers, past)
        if reason == NONFINITE:
            session.rolling.close()  # there is no second capture of this kind
        if past is not None and not self._fits(inventory, past):
            past, inventory = None, Inventory(session, self.scalers)
        document, tensors = inventory.choose(self._room() if past is None else self._options.capture_bytes)
        copies = Copies(tensors, past.owns if past is not None else lambda _: False)
        document.update(
            step=at,
            taken_at_step=session.context.step,
            rank=session.rank,
            reason=reason,
            **({} if loss is None else {"losses": [plain(loss)]}),
            copy_seconds=round(time.perf_counter() - begun, 4),
        )
        thread = threading.Thread(target=self._write, args=(name, document, copies, entry), name=THREAD, daemon=True)
        self._threads.append(thread)
        thread.start()
        return session.directory / CAPTURES / str(name)

    @guarded("capture asked for")
    def ask(self, reason: str) -> Path | None:
        """The same from the user's own code."""
        return self.take(reason)

    def _is_due(self, reason: str, step: int) -> bool:
        """What the user wants, and no more of it than helps."""
        wanted = self._options.capture
        if not wanted or (reason in (NONFINITE, SPIKE, EXCEPTION) and reason not in wanted):
            return False
        if not self._session.record.started or os.getpid() != self._session.pid:
            return False
        if reason == NONFINITE:
            return not any(entry["reason"] == NONFINITE for entry in self.taken)
        if reason == SPIKE:
            return self._last_spike is None or step - self._last_spike >= SPIKE_STEPS
        return reason != EXCEPTION or not any(entry["step"] == step for entry in self.taken)

    def _can_write(self, reason: str, step: int) -> bool:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) >= PENDING:
            self._refuse(reason, step, "earlier captures are still being written")
            return False
        if not has_place(self._session.directory, self._options.keep_captures, self._session.rank):
            return False
        try:
            with own_modules():
                import safetensors.torch  # noqa: F401 - in this thread, since another may fork while it is imported
        except Exception as error:
            let_through(error)
            self._refuse(reason, step, f"safetensors cannot be imported ({error}); pip install safetensors")
            return False
        return True

    def _fits(self, inventory: Inventory, past: Past) -> bool:
        """On the disk, and in memory what has to be copied once more."""
        more = sum(t.numel() * t.element_size() for t in inventory.tensors() if not past.owns(t))
        return inventory.nbytes <= self._options.capture_bytes and more <= self._room()

    def _room(self) -> int:
        left = memory_left()
        return (
            self._options.capture_bytes if left is None else min(self._options.capture_bytes, int(left * MEMORY_SHARE))
        )

    def _write(self, name: CaptureName, document: dict[str, Any], copies: Copies, entry: dict[str, Any]) -> None:
        """In the thread."""
        try:
            copies.wait()
            document.update(describe_code())
            with self._lock:
                path = write_capture(
                    self._session.directory, name, document, copies.tensors, self._options.keep_captures
                )
            entry["name"] = path.name
        except Exception as error:
            entry["failed"] = f"{type(error).__name__}: {error}"
            self._warn(name.reason, name.step, entry["failed"])
        self._tell()

    def _refuse(self, reason: str, step: int, why: str) -> None:
        if why not in self._refused:
            self._refused.add(why)
            self.taken.append({"step": step, "reason": reason, "failed": why})
            self._warn(reason, step, why)
            self._tell()

    def _warn(self, reason: str, step: int, why: str) -> None:
        if sum("failed" in entry for entry in self.taken) <= 1:
            log.warning(
                "torchdoctor: no capture (%s) of step %d could be written (%s); training is not affected",
                reason,
                step,
                why,
            )

    def _tell(self) -> None:
        """run.json names the captures; one that the retention has removed since is not there any more."""
        self._session.record.update_info(captures=[dict(entry) for entry in self.taken])

    def wait(self, seconds: float = JOIN_SECONDS) -> bool:
        """Wait for what is being written; True if all of it is done."""
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, min(end - time.monotonic(), threading.TIMEOUT_MAX)))
        return not any(thread.is_alive() for thread in self._threads)

    @contained("capture: close")
    def close(self) -> None:
        if self._threads and not self.wait():
            for entry in self.taken:
                if "name" not in entry:
                    entry.setdefault("failed", "it was still being written when the run ended")
            self._tell()


def clean_reason(reason: str) -> str:
    """As it can stand in a folder's name."""
    word = re.sub(r"[^a-z0-9]+", "_", str(reason).lower()).strip("_")[:32]
    return word if REASON.fullmatch(word) else "asked"
