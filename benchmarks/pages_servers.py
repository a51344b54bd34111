"""The two servers that the pages come from, started as a user starts them, with what they cost."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil

PATIENCE = 120
"""Seconds after which a server that shows nothing is given up."""


@dataclass
class Server:
    process: subprocess.Popen[str]
    url: str
    """what a browser opens first"""
    ready_s: float
    """from the start to the first answer"""
    loaded_s: float
    """from the start until the loss can be asked for"""

    def cpu(self) -> float:
        """Seconds of processor time so far, of the server and those it started."""
        return sum(sum(p.cpu_times()[:2]) for p in self._family())

    def megabytes(self) -> float:
        return sum(p.memory_info().rss for p in self._family()) / 1e6

    def _family(self) -> list[psutil.Process]:
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]


@contextlib.contextmanager
def torchdoctor(folder: Path) -> Iterator[Server]:
    begun = time.monotonic()
    words = [sys.executable, "-m", "torchdoctor", "ui", str(folder), "--no-browser"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        found = re.search(r"http://\S+", said)
        assert found is not None, said + process.stderr.read()
        ready = time.monotonic() - begun
        yield Server(process, found[0], ready, ready)
    finally:
        _end(process)


def run_address(server: Server, name: str) -> str:
    return f"{server.url.partition('/?')[0]}/run/{quote(name, safe='')}"


@contextlib.contextmanager
def tensorboard(folder: Path) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    begun = time.monotonic()
    words = [str(Path(sys.executable).with_name("tensorboard")), "--logdir", str(folder), "--host", "127.0.0.1"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*words, "--port", str(port)], text=True, **quiet)
    url = f"http://127.0.0.1:{port}/"
    try:
        _wait(url, b"")
        ready = time.monotonic() - begun
        _wait(f"{url}data/plugin/timeseries/tags", b"Loss/train")
        yield Server(process, url, ready, time.monotonic() - begun)
    finally:
        _end(process)


def _wait(url: str, wanted: bytes) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(OSError, urllib.error.URLError):
            if wanted in urllib.request.urlopen(url, timeout=5).read():
                return
        time.sleep(0.02)
    raise SystemExit(f"{url} did not answer within {PATIENCE} s")


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
