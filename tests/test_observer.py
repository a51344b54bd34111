"""A training that ends without a word: how it ended is recorded and told, and until then the script meets nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from processes import preloaded_torchdoctor
from stage import Stage
from torchdoctor import observer
from torchdoctor.attach.options import Options
from torchdoctor.attach.ranks import last_written
from torchdoctor.store.process import identify

PATIENCE = 60
FAULT = "nan-in-inputs"

TRAINING = """
import os, signal, sys, torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(torch.randn(8, 4)), torch.zeros(8, 2)).backward()
    optimizer.step()
import time; time.sleep(0.3)
exec(sys.argv[1])  # line 10
"""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage.build(tmp_path)


def wait_for(file: Path) -> dict[str, object]:
    until = time.monotonic() + PATIENCE
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.05)
    return dict(json.loads(file.read_text()))


@pytest.mark.parametrize(
    ("end", "status", "ending"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, {"signal": "SIGTERM"}),
        ("os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP, {"signal": "SIGHUP"}),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, {"signal": "SIGKILL"}),
        ("os._exit(7)", 7, {"status": 7}),
    ],
)
def test_the_end_is_recorded_with_the_last_step_and_line(
    end: str, status: int, ending: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    done = preloaded_torchdoctor("run", "--json", "verdict.json", "train.py", end, cwd=tmp_path)
    assert done.returncode == status
    (rank,) = wait_for(tmp_path / "verdict.json")["run"]["ranks"]  # type: ignore[index]
    assert rank["status"] == "died"
    assert {name: value for name, value in rank["ending"].items() if value} == ending
    assert rank["last_step"] == 11
    assert (Path(rank["file"]).name, rank["line"]) == ("train.py", 9)


def test_a_script_meets_nothing_of_the_observer(stage: Stage) -> None:
    source = """
        import os, signal
        seen = []
        signal.signal(signal.SIGCHLD, lambda *_: seen.append(1))
        import torch
        torch.train()
        print([signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)] == [signal.SIG_DFL] * 3)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            print("no child")
        print(seen, repr(open(f"/proc/self/task/{os.getpid()}/children").read()))
    """
    stage.write("asks.py", source)
    assert stage.run("asks.py").stdout == "True\nno child\n[] ''\n"


@pytest.mark.parametrize(
    ("before", "status", "output"),
    [
        ("", -signal.SIGTERM, ""),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))", 5, ""),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", 0, "went on\n"),
    ],
)
def test_sigterm_does_to_a_script_what_it_does_without_us(before: str, status: int, output: str, stage: Stage) -> None:
    lines = ("import os, signal, sys, torch", f"torch.train({FAULT!r})", before, "os.kill(os.getpid(), 15)")
    stage.write("ends.py", "\n".join((*lines, "print('went on')\n")))
    done = stage.run("ends.py")
    assert (done.returncode, done.stdout) == (status, output)
    assert done.stderr.count(f"It is {FAULT}") == 1


def test_a_signal_before_the_training_is_told_in_one_line(stage: Stage) -> None:
    stage.write("early.py", "import os\nos.kill(os.getpid(), 15)\n")
    done = stage.run("early.py")
    assert done.returncode == -signal.SIGTERM
    (line,) = done.stderr.splitlines()
    assert "SIGTERM" in line and "nothing to diagnose" in line


def test_a_script_that_leaves_before_the_training_is_told_in_one_line(stage: Stage) -> None:
    stage.write("leaves.py", "import os, torch\nos._exit(4)\n")
    done = stage.run("leaves.py")
    assert done.returncode == 4
    told = "torchdoctor: the script exited with status 4 by os._exit or a similar call; no training was recorded"
    assert done.stderr.strip().startswith(told)


def test_a_signal_to_the_whole_group_leaves_the_verdict(stage: Stage) -> None:
    stage.write("group.py", f"import os, torch\ntorch.train({FAULT!r})\nos.killpg(0, 9)\n")
    command = [sys.executable, "-m", "torchdoctor", "run", "--json", "verdict.json", "group.py"]
    done = subprocess.run(
        command,
        cwd=stage.folder,
        env=stage.environment(),
        capture_output=True,
        timeout=PATIENCE,
        start_new_session=True,
    )
    assert done.returncode == -signal.SIGKILL
    assert wait_for(stage.folder / "verdict.json")["findings"]


def test_pipes_end_with_the_script_and_nobody_is_left(stage: Stage) -> None:
    """The observer shares no pipe but the standard error, and not even that once the script has closed it."""
    source = """
        import os, sys, time, torch
        torch.train()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        print("closed", flush=True)
        os.close(1)
        sys.stdin.read()
    """
    stage.write("daemon.py", source)
    command = [sys.executable, "-m", "torchdoctor", "run", "daemon.py"]
    given, kept = os.pipe()
    process = subprocess.Popen(
        command, cwd=stage.folder, env=stage.environment(), stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        assert process.stdout.read() == b"closed\n"
        assert process.stderr.read() == b""
        assert process.poll() is None
    finally:
        os.close(kept)
        os.close(given)
    process.wait(PATIENCE)
    until = time.monotonic() + PATIENCE
    while _observers(stage.folder) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _observers(stage.folder)


def _observers(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
                if b"torchdoctor.observer" in words and (entry / "cwd").readlink() == folder:
                    found.append(entry.name)
            except OSError:
                continue
    return found


def test_what_follows_an_exec_is_not_waited_for(stage: Stage) -> None:
    source = f"""
        import os, sys, torch
        torch.train({FAULT!r})
        os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read()"])
    """
    stage.write("again.py", source)
    command = [sys.executable, "-m", "torchdoctor", "run", "--json", "verdict.json", "again.py"]
    process = subprocess.Popen(command, cwd=stage.folder, env=stage.environment(), stdin=subprocess.PIPE)
    try:
        assert wait_for(stage.folder / "verdict.json")["findings"]
        assert process.poll() is None
    finally:
        process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("source", ["", "os.kill(os.getpid(), 9)"])
def test_a_reader_that_has_gone_costs_neither_the_status_nor_the_json(source: str, stage: Stage) -> None:
    stage.write("train.py", f"import os, torch\ntorch.train({FAULT!r})\n{source}\n")
    command = [sys.executable, "-m", "torchdoctor", "run", "--json", "verdict.json", "train.py"]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, cwd=stage.folder, env=stage.environment(), stderr=write, timeout=PATIENCE)
    os.close(write)
    assert done.returncode == (-signal.SIGKILL if source else 0)
    assert wait_for(stage.folder / "verdict.json")["findings"]


def test_processes_that_have_ended_are_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search may start hundreds one after the other: each is read once, and none keeps a descriptor."""
    reads: list[Path] = []
    monkeypatch.setattr(observer, "read_info", lambda file: reads.append(file) or json.loads(file.read_text()))
    census = observer.Census(Options(out=str(tmp_path), name="n", shared=True), last_written(Options(name="n")))
    for number in range(3):
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            place = tmp_path / (f"n-{number + 1}" if number else "n")
            place.mkdir()
            stat = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            identity = {**identify(), "pid": process.pid, "begun": int(stat[19])}
            (place / "run.json").write_text(json.dumps({"schema": 1, "status": "running", "process": identity}))
            census.look(at_once=True)
            census.look(at_once=True)
            assert [p.pid for p in census.alive] == [process.pid]
            process.kill()
        census.mark(out_of_memory=False)
        assert census.alive == []
    assert len(reads) == 3
    assert all(recorder.process._descriptor == -1 for recorder in census.recorders.values())
