"""The live page that `run --live` starts beside the training."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from processes import torchdoctor_command
from recording import record
from torchdoctor.attach.page import open_page

TRAINING = """
import pathlib
import time
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
end = time.time() + {seconds}
while time.time() < end and not pathlib.Path("enough").exists():
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    time.sleep(0.02)
"""
START = """
from pathlib import Path
from torchdoctor.settings import Settings
from torchdoctor.ui.companion import main
main(Path({run!r}), {pid}, Settings(), {unseen}, {late})
"""


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def listens(url: str) -> bool:
    """Without a request, which would count as a visit."""
    parts = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((parts.hostname, parts.port)) == 0


@pytest.fixture
def trainer() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("visit", ["opened", "refused", "none"])
def test_it_serves_while_the_training_lives_and_ends_after_it(
    tmp_path: Path, trainer: subprocess.Popen[bytes], wait_for: Callable[..., Any], visit: str
) -> None:
    """How long it stays hangs on whether somebody was let in: the other time would be longer than the test."""
    unseen, late = (0.5, 300.0) if visit == "opened" else (300.0, 0.5)
    code = START.format(run=str(record(tmp_path / "a")), pid=trainer.pid, unseen=unseen, late=late)
    page = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert page.stdout is not None
    url = page.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=\S{22}", url)
    wait_for(lambda: listens(url))
    if visit == "opened":
        with httpx.Client() as client:
            for _ in range(2):  # somebody who was there before is led to the run, too
                assert 'href="/run/a"' in client.get(url).text
            assert client.get(url.partition("?")[0] + "run/a").status_code == 200
    elif visit == "refused":
        assert not answers(url.partition("?")[0])
    with pytest.raises(subprocess.TimeoutExpired):
        page.wait(2.5)
    trainer.kill()  # and is left a zombie
    assert page.wait(20) == 0


def test_run_live_serves_the_page_and_leaves_no_child(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        TRAINING.format(seconds=60)
        + "import os, errno\ntry:\n    os.wait()\nexcept ChildProcessError:\n    print('no child')\n"
    )
    command = [sys.executable, "-m", "torchdoctor", "run", "--live", "--quiet", "--name", "a", "train.py"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None and process.stdout is not None
    url = next(found[1] for line in process.stderr if (found := re.search(r"live page: (http://127\S+)", line)))
    assert answers(url) and not answers(url.partition("?")[0])
    (tmp_path / "enough").touch()
    assert process.stdout.read().strip() == "no child"
    assert process.wait(60) == 0


def test_a_script_too_short_for_it_ends_as_it_would(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING.format(seconds=0.5))
    done = torchdoctor_command("run", "--live", "--quiet", "train.py", cwd=tmp_path)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_what_lies_in_the_current_folder_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's secrets.py would stand in for Python's own."""
    for name in ("secrets", "torch", "uvicorn"):
        (tmp_path / f"{name}.py").write_text("open('executed', 'w'); raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    url = open_page(record(tmp_path / "runs" / "a"), {})
    assert url is not None and answers(url)
    assert not (tmp_path / "executed").exists()


def test_without_a_server_there_is_no_page_and_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "uvicorn.py"
    broken.write_text("raise ImportError('not installed')")
    (tmp_path / "uvicorn-0.dist-info").mkdir()  # a folder of installed packages, which is searched in its place
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert open_page(record(tmp_path / "a"), {}) is None
