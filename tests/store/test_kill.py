"""kill -9 at any moment: the run reads, and lacks at most its last second."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from torchdoctor import signals
from torchdoctor.run import Run
from torchdoctor.store.reader import open_run

KILLS = 50
AT_ONCE = 5
SLACK = 0.75
"""Seconds beyond the one that may be lost: fifty processes on few cores are not woken to the moment."""

TRAINING = """
import sys, time
from pathlib import Path
import numpy as np
from torchdoctor.store.format import Limits
from torchdoctor.store.writer import Recorder

limits = Limits(segment_batches=3, thin_steps=100) if sys.argv[2] == "busy" else Limits()
recorder = Recorder.create(Path(sys.argv[1]), {}, limits=limits, flush_seconds=0.1 if sys.argv[2] == "busy" else 1.0)
columns = tuple(f"layer{i}" for i in range(40))
print("begun", flush=True)
for step in range(10**9):
    recorder.scalar("user", step, time.time(), "time")
    recorder.scalar("loss.train", step, step)
    recorder.matrix(step, columns, {"gradient.l2": np.full(40, step, np.float32)})
    time.sleep(0.002)
"""


def kill_one(folder: Path, kind: str, after: float) -> tuple[float, float]:
    """Start a training, kill it that long after it began to record; when it began and when it ended."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TRAINING, str(folder), kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        begun = time.time()
        time.sleep(after)
        killed = time.time()
        process.send_signal(signal.SIGKILL)
        process.wait()
    return begun, killed


def test_fifty_kills_leave_fifty_runs_that_lack_at_most_a_second(tmp_path: Path) -> None:
    moments = random.Random(4)
    plans = [(tmp_path / str(i), ("calm", "busy")[i % 2], moments.uniform(0.0, 2.5)) for i in range(KILLS)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        times = list(pool.map(lambda plan: kill_one(*plan), plans))
    thinned = 0
    for (folder, _, _), (begun, killed) in zip(plans, times, strict=True):
        run = open_run(folder)
        assert run.info["status"] == "died" and run.finished
        thinned += any(folder.glob("digest-*"))
        last = run.scalar(signals.USER, "time").last(1).values
        known = float(last[0]) if len(last) else begun
        assert known >= killed - 1.0 - SLACK, f"{folder.name} lost {killed - known:.2f} s"
        assert_nothing_is_missing_or_double(run)
    assert thinned > KILLS / 5


def assert_nothing_is_missing_or_double(run: Run) -> None:
    """Every step was recorded once, with its own number as value: so rows must be means of consecutive numbers."""
    for trace in (run.scalar(signals.LOSS_TRAIN), run.matrix(signals.GRADIENT_L2)):
        if not len(trace):
            continue
        steps = trace.steps
        values = trace.values.reshape(len(trace), -1)[:, 0]
        assert steps[0] == trace.merged - 1 or len(trace) == 1
        assert (np.diff(steps)[:-1] == trace.merged).all()
        width = np.diff(steps, prepend=-1)
        np.testing.assert_allclose(values, steps - (width - 1) / 2)
