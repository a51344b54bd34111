"""The list of runs: complete at once, filled in as they are examined, and examined again only when they change."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from recording import record
from torchdoctor.run import Trace
from torchdoctor.store import listing
from torchdoctor.ui import library
from torchdoctor.ui.glance import SIZE, draw_spark
from torchdoctor.ui.overview import ARGUMENTS_SHOWN


def rows(client: TestClient, done: bool = True) -> Any:
    answer = client.get("/api/runs").json()
    return answer if not done or not answer["pending"] else None


def test_runs_are_listed_before_they_are_examined_and_verdicts_follow(
    client: TestClient, wait_for: Callable[..., Any]
) -> None:
    page = client.get("/").text
    assert page.index(">well<") < page.index(">sick<"), "newest first"
    html = wait_for(lambda: rows(client))["html"]
    assert "missing-zero-grad" in html and "no fault found" in html and "<polyline" in html
    assert 'aria-label="loss, now 0.5"' in html


def test_arguments_stand_under_the_name_cut_in_the_middle_and_never_as_markup(
    client: TestClient, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = ["--first", "a" * 100, "--last", "0.3"]
    record(runs / "long", argv=["train.py", *long])
    record(runs / "hostile", argv=["train.py", "--x", '"><img src=x onerror=alert(1)>', "\u202e\x1b[2J"])
    record(runs / "odd", argv=[["train.py"], {"--lr": 1}, None])
    opened: list[Path] = []
    original = listing.read_info
    monkeypatch.setattr(listing, "read_info", lambda path: opened.append(path) or original(path))
    html = rows(client, done=False)["html"]
    assert len(opened) == len(set(opened)) == 5, "arguments come with the record that is read anyway"
    shown = dict(re.findall(r'class="arguments" title="([^"]*)">([^<]*)<', html))
    assert shown["--lr 0.1"] == "--lr 0.1"
    cut = shown[" ".join(long)]
    assert len(cut) == ARGUMENTS_SHOWN and cut.startswith("--first aaa") and cut.endswith("a --last 0.3")
    assert "<img" not in html and "\x1b" not in html and "\u202e" not in html
    assert len(shown) == 3, "and nothing stands where there are none"


def test_the_whole_verdict_can_be_searched(client: TestClient, wait_for: Callable[..., Any]) -> None:
    html = wait_for(lambda: rows(client))["html"]
    wholes = re.findall(r'class="said" title="([^"]*)"', html)
    assert any("No fault found in 60 steps" in whole for whole in wholes)
    assert 'placeholder="name, arguments, verdict, status"' in client.get("/").text


def test_a_list_that_has_not_changed_is_not_sent_again(client: TestClient, wait_for: Callable[..., Any]) -> None:
    stamp = wait_for(lambda: rows(client))["stamp"]
    assert client.get("/api/runs", params={"since": stamp}).json() == {"pending": False}


def test_only_a_run_that_changed_is_examined_again(
    client: TestClient, runs: Path, wait_for: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for(lambda: rows(client))
    examined: list[str] = []
    original = library.open_run
    monkeypatch.setattr(library, "open_run", lambda path: examined.append(path.name) or original(path))
    record(runs / "third")
    assert "third" in wait_for(lambda: rows(client))["html"]
    rows(client)
    assert examined == ["third"]


def test_a_damaged_run_spoils_nothing(client: TestClient, runs: Path, wait_for: Callable[..., Any]) -> None:
    for file in (runs / "well").glob("*.arrow"):
        file.write_bytes(b"\xff" * 1000)
    (runs / "no-run").mkdir()
    html = wait_for(lambda: rows(client))["html"]
    assert "missing-zero-grad" in html and "no-run" not in html


def test_two_runs_are_compared(client: TestClient) -> None:
    page = client.get("/compare", params={"a": "sick", "b": "well"}).text
    assert "finding: missing-zero-grad" in page and "pair-loss" in page
    assert 0 < page.index('<table class="wide">') < page.index("data-chart="), "what differs comes before the charts"
    assert client.get("/compare", params={"a": "sick"}).status_code == 404


def test_a_spark_keeps_spikes_and_leaves_gaps() -> None:
    values = np.ones(5000)
    values[1234] = 9.0
    values[3000:3200] = np.nan
    lines = draw_spark(Trace.raw(range(5000), values))
    points = [tuple(map(float, p.split(","))) for line in lines for p in line.split()]
    assert len(lines) == 2 and min(y for _, y in points) <= 2.0
    assert all(0 <= x <= SIZE[0] and 0 <= y <= SIZE[1] for x, y in points)
    assert draw_spark(Trace.empty()) == () and draw_spark(Trace.raw([0], [np.nan])) == ()
