"""The server behind the pages, asked through sockets: broken, slow and many requests."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recording import record
from torchdoctor.settings import Settings
from torchdoctor.ui import connections
from torchdoctor.ui.server import Page


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    record(tmp_path / "runs" / "a")
    monkeypatch.setattr(connections, "SECONDS", {"head": 0.5, "body": 0.5, "answer": 20.0})
    monkeypatch.setattr(connections, "MOST", 20)
    page = Page(tmp_path / "runs", Settings())
    ready = threading.Event()
    thread = threading.Thread(target=page.serve, args=(lambda _: ready.set(),))
    thread.start()
    assert ready.wait(60)
    yield page
    page.end()
    thread.join(60)


def port_of(page: Page) -> int:
    return int(page.address.split(":")[2].partition("/")[0])


def connect(page: Page, text: str = "") -> socket.socket:
    opened = socket.create_connection(("127.0.0.1", port_of(page)), timeout=30)
    opened.sendall(text.format(port=port_of(page), token=page.address.partition("token=")[2]).encode())
    return opened


HEAD = "{verb} {path} HTTP/1.1\r\nHost: localhost:{{port}}\r\nCookie: torchdoctor-{{port}}={{token}}\r\n"
GET = HEAD.format(verb="GET", path="/api/runs")
POST = HEAD.format(verb="POST", path="/run/a/note") + "Content-Length: 500\r\n\r\nform_token="


def closes(opened: socket.socket) -> bool:
    """Whatever comes before; without an end this waits until the socket's own time is over."""
    try:
        while opened.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def answers(page: Page) -> bool:
    with connect(page, GET + "Connection: close\r\n\r\n") as opened:
        return b" 200 " in opened.recv(4096)


def test_a_post_that_is_cut_off_is_no_error(page: Page, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            connect(page, POST).close()
        time.sleep(0.2)
        assert answers(page)
    assert [r for r in caplog.records if r.levelno >= logging.ERROR or r.exc_info] == []


@pytest.mark.parametrize("text", ["", "GET", GET, POST, GET + "\r\n"], ids=["none", "verb", "head", "body", "idle"])
def test_a_slow_request_is_closed(page: Page, text: str) -> None:
    with connect(page, text) as opened:
        assert closes(opened)
    assert answers(page)


def test_bytes_that_trickle_in_give_no_more_time(page: Page) -> None:
    with connect(page, GET) as opened:
        begun = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - begun < 30:
                opened.sendall(b"X: y\r\n")
                time.sleep(0.05)


def test_many_connections_leave_room_for_a_new_one(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SECONDS", {"head": 60.0, "body": 60.0, "answer": 60.0})
    held = [connect(page, "GET") for _ in range(60)]
    assert answers(page)
    assert closes(held[0])
    for each in held:
        each.close()
