"""Listens, says where, and serves until Ctrl-C."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from torchdoctor.errors import UsageError
from torchdoctor.settings import Settings
from torchdoctor.ui.app import build_app
from torchdoctor.ui.connections import Connection
from torchdoctor.ui.guard import Access
from torchdoctor.ui.library import Library

HOST = "127.0.0.1"
BYTES = 16
"""Of the token: nobody guesses them, and the address fits into a line of a terminal."""
LAST_REQUESTS = 1
"""Seconds that open requests get at the end: a page that waits for news must not hold up Ctrl-C."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any free one. UsageError where that is not to be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(64)
        except OSError:
            bound.close()
            raise
    except (OSError, OverflowError) as error:
        where = f"port {port} of {host}" if port else host
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot listen on {where}: {reason}; without --port a free one is taken") from None
    return bound


class Page:
    """A server that is bound and not yet asked; `address` has the token and opens `start`. `around` may stand between
    the guard and the pages."""

    def __init__(
        self,
        folder: Path,
        settings: Settings,
        host: str = HOST,
        port: int = 0,
        start: str = "/",
        around: Callable[[ASGIApp], ASGIApp] | None = None,
    ) -> None:
        self._bound = bind(host, port)
        access = replace(Access.over(host, self._bound.getsockname()[1], secrets.token_urlsafe(BYTES)), start=start)
        self.address = f"http://{address_of(host)}:{access.port}/?token={access.token}"
        self._app = build_app(Library(folder, settings), access, around=around)
        self._server: uvicorn.Server | None = None

    def serve(self, announce: Callable[[str], None] | None = None) -> None:
        """Blocks. `announce` gets the address as soon as requests are taken."""
        config = uvicorn.Config(
            self._app,
            http=Connection,
            log_level="warning",
            access_log=False,  # it would hold the token
            server_header=False,
            timeout_graceful_shutdown=LAST_REQUESTS,
            ws="none",
            proxy_headers=False,
        )
        self._server = Announcing(config, lambda: announce(self.address) if announce is not None else None)
        self._server.run(sockets=[self._bound])

    def end(self) -> None:
        """From another thread."""
        if self._server is not None:
            self._server.should_exit = True


def address_of(host: str) -> str:
    """What a browser on this machine opens; an address that means all of them is none."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{shown}]" if ":" in shown else shown


class Announcing(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = started

    async def startup(self, *arguments: Any, **named: Any) -> None:
        await super().startup(*arguments, **named)
        if self.started:
            self._announce()
