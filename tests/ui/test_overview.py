"""The list of runs: complete at once, filled in as they are examined, and examined again only when they change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from recording import record
from torchdoctor.run import Trace
from torchdoctor.ui import library
from torchdoctor.ui.glance import SIZE, draw_spark


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
