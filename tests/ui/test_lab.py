"""The lab over HTTP: its pages, what comes out for a choice, and what is said to a wrong one."""

from __future__ import annotations

import asyncio
import html
import json
import re
from types import SimpleNamespace

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from torchdoctor.lab.stations import STATIONS
from torchdoctor.ui.lab import ROOMS, LabPages


def test_the_front_page_names_every_station(client: TestClient) -> None:
    page = client.get("/lab").text
    assert all(f'href="/lab/{name}"' in page and station.title in page for name, station in STATIONS.items())
    sketches = re.findall(r'<svg class="sketch".*?</svg>', page, re.DOTALL)
    assert len(sketches) == len(ROOMS) == len(set(sketches))


@pytest.mark.parametrize("name", STATIONS)
def test_a_station_has_its_controls_as_the_address_says(client: TestClient, name: str) -> None:
    page = client.get(f"/lab/{name}", params={"seed": "7"}).text
    for control in STATIONS[name].controls:
        assert f'name="{control.name}"' in page
    assert re.search(r'name="seed"[^>]* value="7"', page)
    presets = [json.loads(html.unescape(found)) for found in re.findall(r'data-choices="([^"]*)"', page)]
    assert len(presets) == len(STATIONS[name].presets)
    assert all(set(chosen) == {c.name for c in STATIONS[name].controls} for chosen in presets)


def test_an_answer_has_a_sentence_charts_and_frames(client: TestClient) -> None:
    answer = client.get("/api/lab/learning-rates", params={"rate": "-1.1"})
    found = answer.json()
    assert found["severity"] == "error" and "0.0794 is too high" in found["heard"]
    assert found["heard"] in html.unescape(found["said"]) and "learning-rate-too-high" in found["said"]
    assert {chart["name"] for chart in found["charts"]} >= {"lab-map", "lab-sweep"}
    assert len(found["frames"]["at"]) == len(found["frames"]["moving"][0]["frames"])


def test_numbers_follow_the_choice(client: TestClient) -> None:
    first, other = (
        client.get("/api/lab/gradient-health", params={"activation": a, "init": "default"}).json()
        for a in ("relu", "sigmoid")
    )
    assert first["charts"][0]["data"] != other["charts"][0]["data"]
    assert "vanishing-gradients" in other["said"]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/lab/learning-rates?rate=99", 400, "rate lies between -4 and 1"),
        ("/api/lab/activation-flow?activation=<b>", 400, "activation is one of relu"),
        ("/lab/weight-shapes?odd=perhaps", 400, "odd is 0 or 1"),
        ("/api/lab/nothing", 404, ""),
        ("/lab/nothing", 404, ""),
    ],
)
def test_wrong_choices_are_told_what_is_allowed(client: TestClient, path: str, status: int, said: str) -> None:
    answer = client.get(path)
    assert answer.status_code == status and said in answer.text and "<b>" not in answer.text


def test_a_question_that_was_given_up_is_not_computed() -> None:
    asked: list[str] = []
    worker = SimpleNamespace(ask=lambda station, choices: asked.append(station))
    scope = {"type": "http", "path_params": {"station": "learning-rates"}, "query_string": b"", "headers": []}

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    answer = asyncio.run(LabPages(worker).result(Request(scope, gone)))  # type: ignore[arg-type]
    assert answer.status_code == 204 and asked == []


def test_the_lab_stands_behind_the_guard(stranger: TestClient) -> None:
    assert {stranger.get(p).status_code for p in ("/lab", "/lab/gradient-health", "/api/lab/gradient-health")} == {403}
