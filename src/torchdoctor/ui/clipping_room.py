"""The room where a recorded run is clipped at another threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from torchdoctor.errors import NotARunError, RunError, UsageError
from torchdoctor.lab.clipping.recorded import Recorded, read
from torchdoctor.lab.clipping.room import NAME, build_station, show, threshold_of
from torchdoctor.lab.gallery.exhibits import EXHIBITS
from torchdoctor.lab.station import Shown
from torchdoctor.report.text import clean
from torchdoctor.ui.gallery import Gallery
from torchdoctor.ui.lab import describe_control, describe_preset, describe_shown
from torchdoctor.ui.library import Library, key_of
from torchdoctor.ui.templates import render

MOST_RUNS = 200
"""That are offered, newest first."""
TRIED = 8
"""Runs that are looked into for one with norms, where none is named."""
OURS = "lab/"
"""Before the name of a gallery's run: no folder's name has a slash."""
FIRST = "spike"
"""Of the gallery's curves the one that clipping is for."""


class ClippingPages:
    """Reads what was recorded; nothing is trained here."""

    def __init__(self, library: Library, gallery: Gallery) -> None:
        self._library, self._gallery = library, gallery
        self._held: tuple[str, str, Recorded | None] = ("", "", None)
        """the last run that was looked at, in which state, and its norms: a slider asks for them again and again"""

    def routes(self) -> list[Route]:
        return [Route(f"/lab/{NAME}", self.page), Route(f"/api/lab/{NAME}", self.result)]

    async def page(self, request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self._page, dict(request.query_params)))

    async def result(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._result, dict(request.query_params)))

    def _page(self, asked: Mapping[str, str]) -> str:
        options = self._options()
        chosen = asked["run"] if "run" in asked else self._choose(options)
        if chosen and chosen not in options:
            raise NotARunError("there is no run of that name here")
        recorded = self._read(chosen) if chosen else None
        station = build_station(options, chosen, recorded)
        choices = dict(station.defaults())
        given = asked.get("threshold")
        if given is not None and threshold_of(given) is not None and recorded is not None:
            choices["threshold"] = min(max(float(given), recorded.span[0]), recorded.span[1])
        return render(
            "clipping.html.j2",
            title=station.title,
            station=station,
            empty=not options,
            controls=[describe_control(c, choices[c.name]) for c in station.controls],
            presets=[describe_preset(p, station) for p in station.presets],
        )

    def _result(self, asked: Mapping[str, str]) -> dict[str, Any]:
        threshold = threshold_of(asked.get("threshold", ""))
        if threshold is None:
            raise UsageError("threshold is the logarithm of a norm: a number such as 0 for 1.0")
        recorded = self._read(asked.get("run", ""))
        return describe_shown(show(recorded, threshold) if recorded is not None else _nothing())

    def _options(self) -> dict[str, str]:
        """Address -> what is shown."""
        own = [key_of(entry.name) for entry in self._library.entries()[:MOST_RUNS]]
        ready = self._gallery.ready()
        ordered = sorted(EXHIBITS.values(), key=lambda exhibit: exhibit.name != FIRST)
        ours = {OURS + e.training.name: f"Gallery: {e.title}" for e in ordered if e.training.name in ready}
        return {name: clean(name) or "(a name of signs that are not shown)" for name in own} | ours

    def _choose(self, options: Mapping[str, str]) -> str:
        """The newest that has norms, else the newest."""
        names = list(options)
        own, ours = [n for n in names if not n.startswith(OURS)], [n for n in names if n.startswith(OURS)]
        return next(self._with_norms([*own[:TRIED], *ours[:1]]), names[0] if names else "")

    def _with_norms(self, names: list[str]) -> Iterator[str]:
        for name in names:
            try:
                if self._read(name) is not None:
                    yield name
            except (RunError, OSError):
                continue

    def _read(self, name: str) -> Recorded | None:
        library = self._gallery.library if name.startswith(OURS) else self._library
        stamp, run = library.open(name.removeprefix(OURS))
        held = self._held
        if held[:2] != (name, stamp):
            held = self._held = name, stamp, read(run)
        return held[2]


def _nothing() -> Shown:
    return Shown(
        "info",
        "This run has no norm of its gradients to clip",
        "It was too short, it was imported from another tool's logs, or gradients were not measured in it.",
        "Choose another run, or record one: torchdoctor run train.py",
    )
