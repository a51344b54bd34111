"""`torchdoctor top`: on recorded runs, on one that another process records, and in a terminal of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from processes import torchdoctor_command
from recording import record
from terminals import ENTER, terminal

RECORDING = """
import sys, time
import numpy as np
from torchdoctor import signals
from torchdoctor.store.writer import Recorder
recorder = Recorder.create(sys.argv[1], {"argv": ["train.py"]})
for step in range(100_000):
    recorder.scalar(signals.LOSS_TRAIN.name, step, 2.0 / (1 + step))
    recorder.scalar(signals.TIME_STEP.name, step, 0.02)
    recorder.scalar(signals.GRADIENTS_CLEARED.name, step, 0.0, "0")
    recorder.matrix(step, ("fc1.weight",), {signals.GRADIENT_L2.name: np.ones(1, np.float32)})
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("runs") / "sick", cleared=0.0)


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Path]:
    """A run that another process is writing."""
    run = tmp_path / "torchdoctor-runs" / "now"
    process = subprocess.Popen([sys.executable, "-c", RECORDING, str(run)])
    try:
        wait_for(lambda: (run / "run.json").exists() and len(list(run.iterdir())) > 1)
        yield run
    finally:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def steps_of(header: str) -> int:
    return int(header.split(" step")[0].split()[-1].replace(",", ""))


def test_once_prints_one_frame(sick: Path) -> None:
    done = torchdoctor_command("top", str(sick), "--once", LINES="25", COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("sick  finished  60 steps")
    assert "train 0.5, falling" in lines[1]
    assert "ERROR missing-zero-grad" in done.stdout
    assert "fc1.weight" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_pipe_gets_one_frame_without_being_told(sick: Path) -> None:
    done = torchdoctor_command("top", str(sick))
    assert done.returncode == 0
    assert done.stdout.count("── loss") == 1


def test_the_newest_run_is_meant_where_none_is_named(tmp_path: Path) -> None:
    record(tmp_path / "torchdoctor-runs" / "older")
    record(tmp_path / "torchdoctor-runs" / "newer")
    assert torchdoctor_command("top", "--once", cwd=tmp_path).stdout.startswith("newer  finished")
    assert torchdoctor_command("top", "older", "--once", cwd=tmp_path).stdout.startswith("older  finished")


def test_ascii_where_the_stream_has_nothing_else(sick: Path) -> None:
    done = torchdoctor_command("top", str(sick), "--once", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout.isascii()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "--once"], "there is nothing at nowhere"),
        (["--once"], "there is nothing at torchdoctor-runs"),
        ([".", "--once"], "empty"),
        (["--interval", "0", "x"], "0.1<=x<=3600"),
        (["--interval", "often", "x"], "'often' is not a valid float"),
        (["a", "b"], "unexpected extra argument"),
    ],
)
def test_wrong_use(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = torchdoctor_command("top", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_run_that_another_process_records(recorded: Path) -> None:
    first = torchdoctor_command("top", str(recorded), "--once").stdout
    time.sleep(1.5)
    second = torchdoctor_command("top", str(recorded), "--once").stdout
    assert " running " in first.splitlines()[0]
    assert steps_of(second.splitlines()[0]) > steps_of(first.splitlines()[0])
    assert "50 steps/s" in second


def test_live_it_follows_the_run_and_q_ends_it(recorded: Path) -> None:
    with terminal("top", str(recorded), "--interval", "0.2") as screen:
        screen.until(lambda text: "running" in text)
        screen.until(lambda text: "ERROR" in text and "missing-zero-grad" in text)
        before = screen.until(lambda text: " steps" in text)
        after = screen.until(lambda text: text.count(" steps ") > 15)
        counts = [steps_of(part[-20:] + " step") for part in (before + after).split(" steps ")[:-1]]
        assert counts[-1] > counts[0]
        screen.press(b"q")
        assert screen.finish() == 0
        screen.assert_clean()


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_signals_leave_the_terminal_clean(sick: Path, sent: signal.Signals, status: int) -> None:
    with terminal("top", str(sick)) as screen:
        screen.until(lambda text: "finished" in text)
        screen.process.send_signal(sent)
        assert screen.finish() == status
        screen.assert_clean()


def test_a_new_size_is_drawn_at_once(sick: Path) -> None:
    with terminal("top", str(sick), "--interval", "60", width=80, height=24) as screen:
        screen.until(lambda text: "missing-zero-grad" in text)
        screen.resize(140, 40)
        screen.process.send_signal(signal.SIGWINCH)
        drawn = screen.until(lambda text: "speed and memory" in text and "missing-zero-grad" in text, seconds=10)
        assert "speed and memory" in drawn
        screen.press(b"q")
        assert screen.finish() == 0


def test_a_run_that_vanishes_is_told_in_the_view(tmp_path: Path) -> None:
    run = record(tmp_path / "runs" / "a", loss=np.linspace(2, 1, 30))
    with terminal("top", str(run), "--interval", "0.1") as screen:
        screen.until(lambda text: "finished" in text)
        run.rename(tmp_path / "elsewhere")
        screen.until(lambda text: "folder is gone" in text)
        screen.press(b"q")
        assert screen.finish() == 0
        screen.assert_clean()


TRAINING = """
import time
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(40):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    print("step", step)
    time.sleep(0.02)
"""


def test_run_live_names_the_view_where_somebody_looks(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    run = tmp_path / "torchdoctor-runs" / "a"
    with terminal("run", "--live", "--name", "a", "--quiet", "train.py", width=400, cwd=tmp_path) as screen:
        assert screen.finish() == 0
    assert screen.seen.count(f"torchdoctor: to watch it, in another terminal: torchdoctor top {run}") == 1
    assert ENTER not in screen.seen
    assert "step 39" in screen.seen


def test_run_live_into_a_file_says_nothing_of_terminals(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    done = torchdoctor_command("run", "--live", "--name", "a", "--quiet", "train.py", cwd=tmp_path)
    assert done.returncode == 0
    assert "torchdoctor top" not in done.stderr
