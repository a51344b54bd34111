"""The lab's pages: what can be tried, a station with its controls, and what comes out for whatever is chosen."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from torchdoctor.lab.asking import Worker
from torchdoctor.lab.clipping import room as clipping
from torchdoctor.lab.gallery import exhibits
from torchdoctor.lab.station import Pick, Preset, Scale, Shown, Station, Value
from torchdoctor.lab.stations import STATIONS
from torchdoctor.ui.templates import render, render_macro


@dataclass(frozen=True)
class Room:
    """A page of the lab, as its front page names it."""

    name: str
    title: str
    text: str


ROOMS = (
    *(Room(s.name, s.title, s.text) for s in STATIONS.values()),
    Room(exhibits.NAME, exhibits.TITLE, exhibits.TEXT),
    Room(clipping.NAME, clipping.TITLE, clipping.TEXT),
)


class LabPages:
    """Asking computes and changes nothing; the process that computes starts when somebody first comes here."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._turn = asyncio.Lock()

    def routes(self) -> list[Route]:
        return [
            Route("/lab", self.index),
            Route("/lab/{station}", self.station),
            Route("/api/lab/{station}", self.result),
        ]

    async def index(self, request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(render, "lab.html.j2", title="Lab", rooms=ROOMS))

    async def station(self, request: Request) -> Response:
        station = _find(request)
        choices = station.read(request.query_params)
        await run_in_threadpool(self._worker.warm_up)
        page = await run_in_threadpool(
            render,
            "station.html.j2",
            title=station.title,
            station=station,
            controls=[describe_control(c, choices[c.name]) for c in station.controls],
            presets=[describe_preset(p, station) for p in station.presets],
        )
        return HTMLResponse(page)

    async def result(self, request: Request) -> Response:
        station = _find(request)
        choices = station.read(request.query_params)
        async with self._turn:
            if await request.is_disconnected():  # a slider asks more often than can be answered, and gives up the rest
                return Response(status_code=204)
            found = await run_in_threadpool(self._worker.ask, station.name, choices)
        return JSONResponse(await run_in_threadpool(lambda: describe_shown(station.draw(choices, found))))


def _find(request: Request) -> Station:
    station = STATIONS.get(request.path_params["station"])
    if station is None:
        raise HTTPException(404)
    return station


def describe_shown(shown: Shown) -> dict[str, Any]:
    return {
        "severity": shown.severity,
        "said": render_macro("lab-parts.html.j2", "said", shown),
        "heard": shown.title,
        "charts": [chart.to_json() | {"wide": chart.name in shown.wide} for chart in shown.charts],
        "frames": shown.frames and shown.frames.to_json(),
    }


def describe_control(control: Any, value: Value) -> dict[str, Any]:
    kind = "pick" if isinstance(control, Pick) else "scale" if isinstance(control, Scale) else "switch"
    return {"kind": kind, "control": control, "value": value}


def describe_preset(preset: Preset, station: Station) -> dict[str, Any]:
    """With the choices that it leaves out."""
    choices = {**station.defaults(), **preset.choices}
    return {"preset": preset, "choices": {k: int(v) if isinstance(v, bool) else v for k, v in choices.items()}}
