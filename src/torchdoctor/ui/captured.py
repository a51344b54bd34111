"""Captures, replays and the check of a run's script, as its page asks for them: when they come into view."""

from __future__ import annotations

import hashlib
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from torchdoctor.errors import CaptureError
from torchdoctor.kept.captures import describe_captures, mark_samples
from torchdoctor.kept.preflight import describe_preflight
from torchdoctor.kept.previews import draw_preview
from torchdoctor.report.html import preview_name
from torchdoctor.report.replayed import describe_replay
from torchdoctor.report.text import clean
from torchdoctor.store.captured import open_capture
from torchdoctor.store.captures import list_captures
from torchdoctor.store.replays import read_replays
from torchdoctor.ui.library import Library
from torchdoctor.ui.templates import render_part


class CapturedPages:
    """Below `place`, as the other addresses of these runs."""

    def __init__(self, library: Library, place: str = "") -> None:
        self._library, self._place = library, place

    def routes(self) -> list[Route]:
        return [
            Route(f"{self._place}/api/run/{{name}}/captures", self.captures),
            Route(f"{self._place}/api/run/{{name}}/captures/{{capture}}", self.preview),
        ]

    async def captures(self, request: Request) -> Response:
        """Nothing where it is what the page has already."""
        found = await run_in_threadpool(describe_kept, self._library, request.path_params["name"])
        return JSONResponse({} if request.query_params.get("since") == found["stamp"] else found)

    async def preview(self, request: Request) -> Response:
        name, capture = request.path_params["name"], request.path_params["capture"]
        found = await run_in_threadpool(describe_preview, self._library, name, capture)
        if found is None:
            raise HTTPException(404)
        return JSONResponse(found)


def has_kept(library: Library, name: str) -> bool:
    """Whether there is a capture or a replay to show."""
    folder = library.find(name)
    return bool(list_captures(folder) or read_replays(folder))


def describe_kept(library: Library, name: str) -> dict[str, Any]:
    folder = library.find(name)
    _, run = library.open(name)
    replays = read_replays(folder)
    captures = [_captured(each) for each in describe_captures(folder, run, replays)]
    parts = {
        "captures": render_part("captures", captures),
        "replays": render_part("replays", [describe_replay(each) for each in replays]),
        "preflight": render_part("preflight", describe_preflight(folder.absolute().parent, run)),
    }
    stamp = hashlib.blake2b("".join(parts.values()).encode(), digest_size=9).hexdigest()
    return {"stamp": stamp, "parts": parts, "any": bool(captures or replays)}


def describe_preview(library: Library, name: str, capture: str) -> dict[str, Any] | None:
    """The chart, or why there is none; None where the run has no capture of that name."""
    folder = library.find(name)
    entry = next((each for each in list_captures(folder) if str(each.name) == capture), None)
    if entry is None:
        return None
    marks = mark_samples(library.open(name)[1], read_replays(folder))
    try:
        with open_capture(entry.path) as opened:
            chart = draw_preview(opened, marks.get(entry.name.step, ()), preview_name(capture))
    except CaptureError as error:
        return {"problem": clean(str(error))}
    return {"chart": chart.to_json()}


def _captured(capture: dict[str, Any]) -> dict[str, Any]:
    batch = not capture["problem"]
    return {**capture, "chart": preview_name(capture["name"]) if batch else "", "chart_title": "the captured batch"}
