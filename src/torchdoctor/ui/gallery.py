"""The loss-curve gallery's pages: the cards, one of them at large, the quiz, and what trains and removes them."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from torchdoctor.errors import RunError, UsageError
from torchdoctor.lab.gallery.cabinet import Cabinet
from torchdoctor.lab.gallery.drawing import draw_curve, draw_exhibit
from torchdoctor.lab.gallery.exhibits import EXHIBITS, TITLE, Exhibit, Training, all_trainings
from torchdoctor.lab.gallery.quiz import ask
from torchdoctor.lab.gallery.training import ABSENT, FAILED, QUEUED, READY, UNDER_WAY, Standing, Trainer
from torchdoctor.plots.svg import can_draw, draw_svg
from torchdoctor.report.headlines import HEALTHY
from torchdoctor.report.text import clean, count
from torchdoctor.rules import throughput
from torchdoctor.run import Run
from torchdoctor.settings import Settings
from torchdoctor.store.listing import RunEntry
from torchdoctor.ui.forms import read_form
from torchdoctor.ui.guard import Access
from torchdoctor.ui.library import Library, stamp_of
from torchdoctor.ui.templates import render, render_macro

SMALL = (320, 190)
"""A card's curve: about the room that it gets, so that its letters keep their size."""
SAID = {ABSENT: "not trained yet", QUEUED: "waits for its turn", UNDER_WAY: "training", FAILED: "it failed"}
ALL = "all"


class Gallery:
    """What was trained and what is being trained, as the pages show it."""

    def __init__(self, trainer: Trainer | None = None) -> None:
        self.trainer = trainer or Trainer(Cabinet())
        # how quick this machine happens to be says nothing about a curve
        self.library = Library(self.trainer.cabinet.folder, Settings(ignore=_names_of(throughput)))
        self._drawn: dict[str, tuple[str, str]] = {}

    def close(self) -> None:
        self.trainer.close()
        self.library.close()

    def cards(self) -> list[dict[str, Any]]:
        entries = {entry.name: entry for entry in self.library.entries()}
        return [self.card(exhibit, entries) for exhibit in EXHIBITS.values()]

    def card(self, exhibit: Exhibit, entries: dict[str, RunEntry]) -> dict[str, Any]:
        name = exhibit.training.name
        standing = self.trainer.standing(name)
        entry = entries.get(name) if standing.state in (READY, UNDER_WAY) else None
        curve = self._curve(exhibit, name) if entry else ""
        return {"exhibit": exhibit, "curve": curve, **self.describe(exhibit.training, standing, entry)}

    def describe(self, training: Training, standing: Standing, entry: RunEntry | None) -> dict[str, Any]:
        """How it stands, and what torchdoctor says of it."""
        found: dict[str, Any] = {"run": training.name, "state": standing.state, "why": clean(standing.why)}
        found |= {"severity": "waiting", "badge": SAID.get(standing.state, "being examined"), "said": "", "pending": 0}
        found["agrees"] = None
        if entry is None or standing.state != READY:
            return found
        made, newer = self.library.glance(entry)
        if made is None:
            return found | {"pending": 1}
        seen = made.value
        if seen is None:
            return found | {"badge": "not readable", "said": clean(made.why)}
        truth = training.case.truth
        agrees = seen.severity == HEALTHY if truth is None else seen.badge == truth
        said = {"severity": seen.severity, "badge": seen.badge, "said": seen.title, "agrees": agrees}
        return found | said | {"pending": int(newer)}

    def _curve(self, exhibit: Exhibit, name: str) -> str:
        """Drawn again only when there is more of it."""
        try:
            stamp = self.library.stamp(name)
            if self._drawn.get(name, ("",))[0] != stamp:
                chart = draw_curve(self.library.open(name)[1], exhibit.linear)
                drawn = draw_svg(chart, SMALL) if chart is not None and can_draw(chart) else ""
                self._drawn[name] = stamp, drawn
            return self._drawn[name][1]
        except (RunError, OSError):  # removed meanwhile, or its first file is just being made
            return ""

    def run_of(self, training: Training | None) -> Run | None:
        """What there is of it; None where nothing is."""
        if training is None or self.trainer.standing(training.name).state not in (READY, UNDER_WAY):
            return None
        try:
            return self.library.open(training.name)[1]
        except (RunError, OSError):
            return None

    def ready(self) -> set[str]:
        return {each.name for each in all_trainings() if self.trainer.standing(each.name).state == READY}

    def entry_of(self, training: Training) -> RunEntry | None:
        return next((entry for entry in self.library.entries() if entry.name == training.name), None)


class GalleryPages:
    """Looking reads; what trains or removes comes from a form of these pages."""

    def __init__(self, gallery: Gallery, access: Access) -> None:
        self._gallery, self._trainer, self._access = gallery, gallery.trainer, access

    def routes(self) -> list[Route]:
        return [
            Route("/lab/curves", self.index),
            Route("/lab/curves/train", self.train, methods=["POST"]),
            Route("/lab/curves/stop", self.stop, methods=["POST"]),
            Route("/lab/curves/remove", self.remove, methods=["POST"]),
            Route("/lab/curves/quiz", self.quiz),
            Route("/lab/curves/{name}", self.exhibit),
            Route("/api/lab/curves", self.state),
            Route("/api/lab/curves/quiz", self.question),
            Route("/api/lab/curves/{name}", self.charts),
        ]

    async def index(self, request: Request) -> Response:
        return HTMLResponse(await run_in_threadpool(self._index))

    def _index(self) -> str:
        cards = self._gallery.cards()
        return render(
            "curves.html.j2",
            title=TITLE,
            cards=[(card["exhibit"].name, render_macro("curves-parts.html.j2", "card", card)) for card in cards],
            tools=self._tools(cards),
            trouble=self._trainer.cabinet.trouble,
            form_token=self._access.form_token,
        )

    def _tools(self, cards: list[dict[str, Any]]) -> str:
        ready = self._gallery.ready()
        twins = [e.twin for e in EXHIBITS.values() if e.twin is not None]
        wanted = [training for training in all_trainings() if training.name not in ready]
        under_way = [t for t in all_trainings() if self._trainer.standing(t.name).state in (UNDER_WAY, QUEUED)]
        size = self._trainer.cabinet.size()
        return render_macro(
            "curves-parts.html.j2",
            "tools",
            {
                "busy": count(len(under_way), "training") if under_way else "",
                "twin": any(self._trainer.standing(t.name).state == UNDER_WAY for t in twins),
                "missing": count(len(wanted), "training") if wanted else "",
                "kept": f"{size / 1e6:.1f} MB" if size else "",
                "folder": clean(str(self._trainer.cabinet.folder)),
                "quiz": len(ready) > 1,
            },
        )

    async def state(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._state, request.query_params.get("since", "")))

    def _state(self, since: str) -> dict[str, Any]:
        cards = self._gallery.cards()
        busy = self._trainer.is_busy or any(card["pending"] for card in cards)
        parts = {card["exhibit"].name: render_macro("curves-parts.html.j2", "card", card) for card in cards}
        tools = self._tools(cards)
        stamp = hashlib.blake2b(repr((parts, tools)).encode(), digest_size=9).hexdigest()
        found = {"stamp": stamp, "busy": busy}
        return found if stamp == since else found | {"cards": parts, "tools": tools}

    async def exhibit(self, request: Request) -> Response:
        exhibit = _find(request)
        names = list(EXHIBITS)
        at = names.index(exhibit.name)
        page = await run_in_threadpool(
            render,
            "curve.html.j2",
            title=exhibit.title,
            exhibit=exhibit,
            source=exhibit.training.case,
            before=EXHIBITS[names[at - 1]],
            after=EXHIBITS[names[(at + 1) % len(names)]],
            trouble=self._trainer.cabinet.trouble,
            form_token=self._access.form_token,
        )
        return HTMLResponse(page)

    async def charts(self, request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(self._charts, _find(request), dict(request.query_params)))

    def _charts(self, exhibit: Exhibit, asked: dict[str, str]) -> dict[str, Any]:
        training, twin = exhibit.training, exhibit.twin
        described = self._gallery.describe(
            training, self._trainer.standing(training.name), self._gallery.entry_of(training)
        )
        standings = [self._trainer.standing(each.name).state for each in (training, twin) if each is not None]
        described |= {"exhibit": exhibit, "twin": standings[1] if twin is not None else "", "other": twin and twin.name}
        said = render_macro("curves-parts.html.j2", "told", described)
        busy = bool(described["pending"]) or any(state in (UNDER_WAY, QUEUED) for state in standings)
        marked, beside = asked.get("marks") == "1", asked.get("twin") == "1"
        found: dict[str, Any] = {"busy": busy, "said": said, "severity": described["severity"]}
        found["stamp"] = hashlib.blake2b(
            repr((said, marked, beside, self._stamps(training, twin))).encode(), digest_size=9
        ).hexdigest()
        if asked.get("since") == found["stamp"]:
            return {"stamp": found["stamp"], "busy": busy}
        run = self._gallery.run_of(training)
        other = self._gallery.run_of(twin) if beside else None
        charts = draw_exhibit(exhibit, run, other, marked) if run is not None else []
        return found | {"heard": described["badge"], "charts": [chart.to_json() for chart in charts]}

    def _stamps(self, *trainings: Training | None) -> list[str]:
        folder, found = self._trainer.cabinet.folder, []
        for training in trainings:
            try:
                found.append(stamp_of(folder / training.name) if training is not None else "")
            except OSError:
                found.append("")
        return found

    async def quiz(self, request: Request) -> Response:
        ready = len(await run_in_threadpool(self._gallery.ready))
        return HTMLResponse(await run_in_threadpool(render, "quiz.html.j2", title="What is wrong here?", ready=ready))

    async def question(self, request: Request) -> Response:
        try:
            seed = int(request.query_params.get("seed", "0")[:18])
        except ValueError:
            raise UsageError("seed is a whole number") from None
        return JSONResponse(await run_in_threadpool(self._question, seed, request.query_params.get("last", "")))

    def _question(self, seed: int, last: str) -> dict[str, Any]:
        asked = ask(seed, self._gallery.ready(), last)
        run = self._gallery.run_of(asked.training) if asked is not None else None
        if asked is None or run is None:
            raise UsageError("nothing is trained yet: open the gallery and train it first")
        marked = draw_exhibit(replace(asked.answer, charts=()), run)
        plain = draw_curve(run, asked.answer.linear)
        if not marked or plain is None:
            raise UsageError("this training has no loss; remove it in the gallery and train it again")
        return {
            "run": asked.training.name,
            "chart": replace(plain, title="The loss of a training").to_json(),
            "marked": marked[0].to_json(),
            "options": [{"name": each.name, "title": each.title} for each in asked.options],
            "answer": asked.answer.name,
            "said": render_macro("curves-parts.html.j2", "answer", asked.answer),
        }

    async def train(self, request: Request) -> Response:
        fields = await read_form(request, self._access)
        await run_in_threadpool(self._trainer.train, _chosen(fields))
        return _back(fields)

    async def stop(self, request: Request) -> Response:
        fields = await read_form(request, self._access)
        await run_in_threadpool(self._trainer.stop)
        return _back(fields)

    async def remove(self, request: Request) -> Response:
        fields = await read_form(request, self._access)
        if fields.get("name") == ALL:
            await run_in_threadpool(self._trainer.clear)
        else:
            await run_in_threadpool(self._trainer.remove, [each.name for each in _chosen(fields)])
        return _back(fields)


def _names_of(family: ModuleType) -> tuple[str, ...]:
    """Of the diagnoses of a family, without importing them: a file each."""
    return tuple(found.name.replace("_", "-") for found in iter_modules(family.__path__))


def _find(request: Request) -> Exhibit:
    found = EXHIBITS.get(request.path_params["name"])
    if found is None:
        raise HTTPException(404)
    return found


def _chosen(fields: dict[str, str]) -> list[Training]:
    """All of them, an exhibit's, or its twin's."""
    name, _, part = fields.get("name", "").partition(".")
    if name == ALL:
        return all_trainings()
    if name not in EXHIBITS:
        raise UsageError("there is no exhibit of that name")
    chosen = EXHIBITS[name].twin if part == "twin" else EXHIBITS[name].training
    return [chosen] if chosen is not None else []


def _back(fields: dict[str, str]) -> Response:
    """To the page that the form stands on."""
    name = fields.get("back", "")
    return RedirectResponse(f"/lab/curves/{name}" if name in EXHIBITS else "/lab/curves", 303)
