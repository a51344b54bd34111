"""Connections that end: uvicorn waits for ever for a request that never comes, or comes a byte an hour."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD, BODY, ANSWER = "head", "body", "answer"
SECONDS = {HEAD: 10.0, BODY: 20.0, ANSWER: 300.0}
"""That each part of a request may take: a form of ours is some kilobytes, a page of a large run some megabytes."""
MOST = 100
"""Connections at a time. A browser opens six for each server."""


class Connection(H11Protocol):
    """One connection, closed when a part of a request takes too long, or to make room for a newer one."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._part = ""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._note_part()
        self._make_room()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note_part()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_part()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def _note_part(self) -> None:
        """The time of a part begins with it: bytes that trickle in give no more of it."""
        part = self._current_part()
        if part == self._part and self._timer is not None and not self._timer.cancelled():
            return
        if self._timer is not None:
            self._timer.cancel()
        self._part = part
        self._timer = self.loop.call_later(SECONDS[part], self.transport.abort)

    def _current_part(self) -> str:
        if self.cycle is None or self.cycle.response_complete:
            return HEAD
        return BODY if self.cycle.more_body else ANSWER

    def _make_room(self) -> None:
        """Whoever has waited longest with half a request goes, or else the one that has just come."""
        held = [each for each in self.connections if isinstance(each, Connection) and not each.transport.is_closing()]
        if len(held) > MOST:
            waiting = [each for each in held if each._part != ANSWER]
            min(waiting, key=Connection._begun, default=self).transport.abort()

    def _begun(self) -> float:
        return self._timer.when() - SECONDS[self._part] if self._timer is not None else 0.0
