"""Debian's chromium, driven through Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed; make test installs it where it may")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


@dataclass
class Opened:
    """A page, and what it did on its own."""

    page: Any
    problems: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    contexts = []

    def go(target: str | Path, **options: Any) -> Opened:
        context = browser.new_context(viewport={"width": 1000, "height": 900}, **options)
        contexts.append(context)
        opened = Opened(context.new_page())
        opened.page.on("console", lambda m: opened.problems.append(m.text) if m.type == "error" else None)
        opened.page.on("pageerror", lambda error: opened.problems.append(str(error)))
        opened.page.on("dialog", lambda dialog: (opened.problems.append("dialog"), dialog.dismiss()))
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.goto(target if isinstance(target, str) else target.as_uri())
        return opened

    yield go
    for context in contexts:
        context.close()
