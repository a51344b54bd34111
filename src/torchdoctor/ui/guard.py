"""Who may ask: somebody who holds the token, by a name of this machine, from our own pages. Stands before every route.

The model is Jupyter Server: a token, loopback, the host checked against DNS rebinding (CVE-2025-14279), exact origins.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # Plotly places its letters by style attributes
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # under no-referrer a browser calls the origin of our own forms null
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
HTTP_PORT, MAX_PORT = 80, 65_535
_HOST = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[1-9][0-9]{0,4}))?", re.ASCII)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
READING = ("GET", "HEAD")
OTHER_NAME = (
    "The address of this request has a host name or a port that is not this server's. Through a tunnel, use the same "
    "port at both ends: ssh -L {port}:localhost:{port} MACHINE"
)
LOST = (
    "This page needs its token: open the address that torchdoctor ui printed in the terminal, with ?token= in it, once "
    "in this browser."
)
KNOCKED = """<!doctype html><html lang="en"><meta charset="utf-8"><title>torchdoctor</title>
<link rel="icon" href="data:,"><meta http-equiv="refresh" content="0;url={target}">
<p><a href="{target}">Go on to torchdoctor</a></p></html>"""
"""The cookie is for requests from our own pages only, so a redirect would not bring it where a link in a mail was
followed; a page of ours that goes on by itself does."""


@dataclass(frozen=True)
class Access:
    """What it takes to be let in."""

    token: str
    port: int
    hosts: frozenset[str]
    """names under which this machine may be asked"""
    any_address: bool = False
    """numbers too: nobody can make a name that is not ours point at one and stay at that number"""
    start: str = "/"
    """where those are led who open the address that was printed"""

    @classmethod
    def over(cls, host: str, port: int, token: str) -> Access:
        wide = not is_loopback(host)
        names = {*LOOPBACK, host.lower(), *((socket.gethostname().lower(), socket.getfqdn().lower()) if wide else ())}
        return cls(token, port, frozenset(names), wide)

    @property
    def cookie(self) -> str:
        """Cookies know no ports: each server needs one of its own."""
        return f"torchdoctor-{self.port}"

    @property
    def form_token(self) -> str:
        return hmac.new(self.token.encode(), b"form", hashlib.sha256).hexdigest()

    def admits_host(self, host: str) -> bool:
        """One of our names, with our port. Behind another address a container may have mapped the port."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name, port = match["name"].lower().strip("[]"), int(match["port"] or HTTP_PORT)
        if self.any_address:
            return port <= MAX_PORT and (name in self.hosts or _is_address(name))
        return name in self.hosts and port == self.port

    def admits_form(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.form_token.encode())

    def holds(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())


class Guard:
    """Around the whole application, so that no route can be forgotten."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no sockets here: a handshake that nobody answers is refused

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        answer = self._refuse(Request(scope)) or self._let_in(Request(scope))
        with contextlib.suppress(ClientDisconnect):  # nobody is left to be answered
            await (answer or self._app)(scope, receive, send_guarded)

    def _refuse(self, request: Request) -> Response | None:
        headers = request.headers
        host = headers.get("host", "")
        if len(headers.getlist("host")) != 1 or not self._access.admits_host(host):
            return _say(OTHER_NAME.format(port=self._access.port), 421)
        if not _is_ours(headers, host):
            return _say("This request comes from another site's page.", 403)
        return None

    def _let_in(self, request: Request) -> Response | None:
        """None for those who hold the cookie; those who bring the token get it, and the token leaves the address."""
        if request.method in READING and self._access.holds(request.query_params.get("token")):
            return self._hand_over(request)
        if self._access.holds(_cookies(request.headers.getlist("cookie")).get(self._access.cookie)):
            return None
        return _say(LOST, 403)

    def _hand_over(self, request: Request) -> Response:
        rest = [(k, v) for k, v in parse_qsl(request.url.query) if k != "token"]
        # one slash at the beginning: two would be another machine's address
        asked = "/" + request.scope.get("raw_path", b"/").decode("ascii", "replace").split("?")[0].lstrip("/\\")
        target = asked if asked != "/" else self._access.start
        target += f"?{urlencode(rest)}" if rest else ""
        answer = HTMLResponse(KNOCKED.format(target=_escape(target)))
        answer.set_cookie(self._access.cookie, self._access.token, path="/", httponly=True, samesite="strict")
        return answer


def is_loopback(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_ours(headers: Headers, host: str) -> bool:
    """Not sent by a page of another origin; a browser that follows a link says navigate and changes nothing."""
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return False
    site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "navigate")
    return site in ("none", "same-origin") or mode == "navigate"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cookies(lines: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        for piece in line.split(";"):  # one by one: somebody else's odd cookie must not hide ours
            try:
                found |= {name: morsel.value for name, morsel in SimpleCookie(piece.strip()).items()}
            except CookieError:
                continue
    return found


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace("'", "&#39;")


def _say(text: str, status: int) -> Response:
    return PlainTextResponse(text + "\n", status)
