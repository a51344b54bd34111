"""The page's server without a network: a folder of two runs, and somebody who asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from recording import record
from torchdoctor.ui.app import build_app
from torchdoctor.ui.guard import Access
from torchdoctor.ui.library import Library

TOKEN = "right-token"
PORT = 8123
BASE = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    record(folder / "sick", cleared=0.0)
    record(folder / "well")
    return folder


@pytest.fixture
def stranger(runs: Path) -> Iterator[TestClient]:
    """Knows the address, not the token."""
    app = build_app(Library(runs), Access.over("127.0.0.1", PORT, TOKEN))
    with TestClient(app, base_url=BASE, follow_redirects=False) as client:  # type: ignore[arg-type]
        yield client


@pytest.fixture
def client(stranger: TestClient) -> TestClient:
    """Has opened the address that was printed."""
    assert stranger.get("/", params={"token": TOKEN}).status_code == 200
    return stranger


@pytest.fixture
def wait_for() -> Callable[..., Any]:
    def wait(ask: Callable[[], Any], seconds: float = 30.0) -> Any:
        until = time.monotonic() + seconds
        while not (found := ask()):
            assert time.monotonic() < until, "it did not come"
            time.sleep(0.05)
        return found

    return wait
