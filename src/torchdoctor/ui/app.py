"""The routes: pages, their data, their static files. All behind the guard; what changes anything is a form of ours."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from torchdoctor.errors import NotARunError, TorchdoctorError, UsageError
from torchdoctor.lab.asking import Worker
from torchdoctor.report.text import clean
from torchdoctor.rules import catalogue
from torchdoctor.store.journal import add_note
from torchdoctor.ui.captured import CapturedPages
from torchdoctor.ui.clipping_room import ClippingPages
from torchdoctor.ui.comparison import compare_page
from torchdoctor.ui.drawing import Window
from torchdoctor.ui.forms import read_form
from torchdoctor.ui.gallery import Gallery, GalleryPages
from torchdoctor.ui.guard import Access, Guard
from torchdoctor.ui.lab import LabPages
from torchdoctor.ui.library import Library
from torchdoctor.ui.overview import survey
from torchdoctor.ui.state import Wanted, current_stamp, describe_state, run_page
from torchdoctor.ui.templates import prepare, render, static_file

LOOK_SECONDS, LOOKS = 0.1, 9
"""How often files are looked at while a page waits for news, and how many times: it asks about once a second."""
LAB = "/lab"
"""Where the gallery's runs stand, beside the user's own."""
FOR_GOOD = "private, max-age=31536000, immutable"


def build_app(
    library: Library,
    access: Access,
    gallery: Gallery | None = None,
    around: Callable[[ASGIApp], ASGIApp] | None = None,
) -> Guard:
    """The whole application; nothing in it can be reached but through the guard."""
    pages, worker = Pages(library, access), Worker()
    gallery = gallery or Gallery()
    shown = Pages(gallery.library, access, LAB)
    routes = [
        Route("/", pages.overview),
        Route("/api/runs", pages.rows),
        Route("/run/{name}/note", pages.note, methods=["POST"]),
        Route("/static/{version}/{name}", pages.static),
        *pages.routes(),
        *shown.routes(),
        *GalleryPages(gallery, access).routes(),
        *ClippingPages(library, gallery).routes(),
        *LabPages(worker).routes(),
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        library.warm_up(prepare)
        library.warm_up(catalogue)
        yield
        library.close()
        gallery.close()
        worker.close()

    handlers: Any = {TorchdoctorError: _explain, HTTPException: _decline}
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return Guard(around(app) if around is not None else app, access)


class Pages:
    """What each route answers. Whatever reads files does so in a thread, so that one slow run holds up no other."""

    def __init__(self, library: Library, access: Access, place: str = "") -> None:
        """`place` stands before the addresses of these runs; notes are for those that are the user's own."""
        self._library = library
        self._access = access
        self._place = place

    def routes(self) -> list[Route]:
        """Of a run and of two."""
        return [
            Route(f"{self._place}/run/{{name}}", self.run),
            Route(f"{self._place}/api/run/{{name}}", self.state),
            Route(f"{self._place}/api/run/{{name}}/chart/{{chart}}", self.chart),
            Route(f"{self._place}/compare", self.compare),
            *CapturedPages(self._library, self._place).routes(),
        ]

    async def overview(self, request: Request) -> Response:
        found = await run_in_threadpool(survey, self._library)
        page = render(
            "list.html.j2",
            title="Runs",
            folder=clean(str(self._library.folder)),
            rows=found.html,
            stamp=found.stamp,
            pending=found.pending,
            count=found.count,
        )
        return HTMLResponse(page)

    async def rows(self, request: Request) -> Response:
        found = await run_in_threadpool(survey, self._library)
        if request.query_params.get("since") == found.stamp:
            return JSONResponse({"pending": found.pending})
        return JSONResponse({"html": found.html, "stamp": found.stamp, "pending": found.pending, "count": found.count})

    async def run(self, request: Request) -> Response:
        name = request.path_params["name"]
        form_token = "" if self._place else self._access.form_token
        return HTMLResponse(await run_in_threadpool(run_page, self._library, name, form_token, self._place))

    async def state(self, request: Request) -> Response:
        """News since the stamp that the page has; where there are none, they are waited for a moment."""
        name, wanted = request.path_params["name"], _read_wanted(request)
        patience = LOOKS if request.query_params.get("hold") == "1" else 0
        for _ in range(patience):
            if await run_in_threadpool(current_stamp, self._library, name) != wanted.since:
                break
            await asyncio.sleep(LOOK_SECONDS)
        else:
            if patience:
                return JSONResponse({})
        return JSONResponse(await run_in_threadpool(describe_state, self._library, name, wanted))

    async def chart(self, request: Request) -> Response:
        name, chart = request.path_params["name"], request.path_params["chart"]
        wanted = replace(_read_wanted(request), charts=[chart])
        found = await run_in_threadpool(describe_state, self._library, name, wanted)
        if found["charts"][chart] is None:
            raise HTTPException(404)
        return JSONResponse(found["charts"][chart])

    async def note(self, request: Request) -> Response:
        """The only thing that a page can change: one more line in a run's journal."""
        fields = await read_form(request, self._access)
        name = request.path_params["name"]
        folder = await run_in_threadpool(self._library.find, name)
        await run_in_threadpool(add_note, folder, fields.get("text", ""))
        return RedirectResponse(f"/run/{quote(name, safe='')}#journal", 303)

    async def compare(self, request: Request) -> Response:
        names = [request.query_params.get(letter, "") for letter in "ab"]
        return HTMLResponse(await run_in_threadpool(compare_page, self._library, names, self._place))

    async def static(self, request: Request) -> Response:
        found = await run_in_threadpool(static_file, request.path_params["name"])
        if found is None or found.version != request.path_params["version"]:
            raise HTTPException(404)
        return Response(found.body, media_type=found.kind, headers={"Cache-Control": FOR_GOOD})


def _read_wanted(request: Request) -> Wanted:
    asked = request.query_params
    charts, have = ([name for name in asked.get(words, "").split(",") if name] for words in ("charts", "have"))
    window = _read_window(asked.get("first"), asked.get("last"))
    return Wanted(asked.get("since", ""), have, charts, window, asked.get("layer", ""))


def _read_window(first: str | None, last: str | None) -> Window | None:
    if first is None or last is None:
        return None
    try:
        window = Window(float(first), float(last))
    except ValueError:
        raise UsageError("first and last are steps: numbers") from None
    return window if -math.inf < window.first < window.last < math.inf else None


async def _explain(request: Request, error: Exception) -> Response:
    """Our own errors are sentences for people; a name that a request brought is never shown in them as it came."""
    status = 404 if isinstance(error, NotARunError) else 400 if isinstance(error, UsageError) else 409
    return _say(request, clean(str(error)), status)


async def _decline(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    said = {404: "There is nothing here.", 405: "Not in this way."}.get(status, "No.")
    return _say(request, said, status, headers)


def _say(request: Request, said: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """A page with a way back for somebody who reads it, else a line."""
    if request.headers.get("sec-fetch-dest") == "document":
        return HTMLResponse(render("gone.html.j2", title="torchdoctor", said=said), status, headers)
    return PlainTextResponse(said + "\n", status, headers)
