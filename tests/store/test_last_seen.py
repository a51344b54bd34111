"""Where each rank of a run was last seen: from heartbeats, run.json and what another process observed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from torchdoctor.last_seen import ProcessEnding
from torchdoctor.store.ending import mark_ending, of_wait_status
from torchdoctor.store.heartbeat import Pulse, read_heartbeat
from torchdoctor.store.info import read_info
from torchdoctor.store.last_seen import last_seen
from torchdoctor.store.names import is_ours, run_file
from torchdoctor.store.reader import open_run
from torchdoctor.store.watched import OutOfMemoryKills, WatchedProcess, program_of, wait_for_end
from torchdoctor.store.writer import Recorder

RECORDING = """
import os, sys
from pathlib import Path
from torchdoctor.store.writer import Recorder
recorder = Recorder.create(Path(sys.argv[1]), {}, rank=int(sys.argv[2]), locate=lambda: ("train.py", 41))
for step in range(8):
    recorder.scalar("loss.train", step, 1.0)
assert recorder.flush(30)
print("flushed", flush=True)
sys.stdin.read()
"""


def start(folder: Path, rank: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", RECORDING, str(folder), str(rank)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"flushed\n"
    return process


def test_a_killed_rank_is_seen_at_its_last_step_and_line(tmp_path: Path) -> None:
    processes = [start(tmp_path, rank) for rank in (0, 1)]
    watched = WatchedProcess(processes[1].pid)
    processes[1].send_signal(signal.SIGKILL)
    wait_for_end([watched], 30)
    processes[1].wait()
    killed, alive = last_seen(tmp_path, 1), last_seen(tmp_path, 0)
    assert killed is not None and alive is not None
    assert (killed.status, alive.status) == ("died", "running")
    assert (killed.last_step, killed.file, killed.line) == (7, "train.py", 41)

    ending = of_wait_status(watched.wait_status())
    path = tmp_path / run_file(1)
    assert not mark_ending(path, {"pid": processes[0].pid}, ending), "of another process"
    assert mark_ending(path, read_info(path)["process"], ending)
    assert not mark_ending(path, read_info(path)["process"], ending), "twice"
    ranks = open_run(tmp_path).info["ranks"]
    assert [rank["status"] for rank in ranks] == ["running", "died"]
    assert ranks[1]["ending"]["signal"] in ("SIGKILL", None)  # None on systems that do not hand it on

    processes[0].communicate(timeout=60)
    assert open_run(tmp_path, 1).steps == 8
    assert all(is_ours(entry.name) for entry in tmp_path.iterdir())


def test_a_run_without_its_first_rank_can_be_read(tmp_path: Path) -> None:
    recorder = Recorder.create(tmp_path, {}, rank=2)
    recorder.scalar("loss.train", 0, 1.0)
    recorder.close()
    run = open_run(tmp_path)
    assert run.steps == 1
    assert [rank["rank"] for rank in run.info["ranks"]] == [2]


def test_the_last_step_is_that_of_the_data_where_the_process_ended_before_its_next_sign_of_life(tmp_path: Path) -> None:
    recorder = Recorder.create(tmp_path, {}, rank=0, locate=lambda: ("train.py", 41))
    recorder.scalar("loss.train", 0, 1.0)
    assert recorder.flush(30)
    earlier = (tmp_path / "heartbeat-r0.json").read_bytes()
    for step in range(1, 8):
        recorder.scalar("loss.train", step, 1.0)
    recorder.close("running")
    (tmp_path / "heartbeat-r0.json").write_bytes(earlier)
    (seen,) = open_run(tmp_path).info["ranks"]
    assert seen["last_step"] == 7 and "stood" not in seen


def test_a_new_session_forgets_how_the_one_before_it_ended(tmp_path: Path) -> None:
    Recorder.create(tmp_path, {}, rank=0).close("running")
    path = tmp_path / run_file(0)
    assert mark_ending(path, read_info(path)["process"], ProcessEnding(signal="SIGTERM"))
    Recorder.create(tmp_path, {}, rank=0).close()
    seen = last_seen(tmp_path, 0)
    assert seen is not None and (seen.status, seen.ending) == ("finished", None)


def test_a_status_that_came_after_the_record_was_closed_is_a_failure(tmp_path: Path) -> None:
    Recorder.create(tmp_path, {}, rank=0).close()
    path = tmp_path / run_file(0)
    process = read_info(path)["process"]
    assert not mark_ending(path, process, ProcessEnding(status=0))
    assert mark_ending(path, process, ProcessEnding(status=3))
    seen = last_seen(tmp_path, 0)
    assert seen is not None and seen.status == "crashed" and seen.ending == ProcessEnding(status=3)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("os._exit(7)", ProcessEnding(status=7)),
        ("os.kill(os.getpid(), 15)", ProcessEnding(signal="SIGTERM")),
        ("os.kill(os.getpid(), 9)", ProcessEnding(signal="SIGKILL", out_of_memory=True)),
    ],
)
@pytest.mark.parametrize("has_descriptors", [True, False])
def test_the_end_of_a_process_that_is_not_our_child_to_wait_for(
    code: str, expected: ProcessEnding, has_descriptors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_descriptors:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os, sys; sys.stdin.read(); {code}"], stdin=subprocess.PIPE
    )
    watched = WatchedProcess(process.pid)
    assert not watched.has_ended and not watched.was_replaced
    assert process.stdin is not None
    process.stdin.close()
    wait_for_end([watched], 30)
    assert watched.has_ended
    told = watched.wait_status()
    process.wait()
    assert of_wait_status(told, out_of_memory=True) == expected
    assert not watched.was_replaced


def test_a_number_that_belongs_to_another_process_now_counts_as_ended() -> None:
    assert WatchedProcess(os.getpid(), born="1").has_ended
    assert not WatchedProcess(os.getpid()).has_ended
    assert WatchedProcess(os.getpid(), program="1").was_replaced == (program_of(os.getpid()) not in (None, "0"))
    assert not OutOfMemoryKills().were_recent()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"step": "x", "time": 1, "advanced": 1, "pid": 1}', '{"step": 1}', '{"step": 1e999}']
)
def test_a_heartbeat_that_nobody_of_ours_wrote_is_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "heartbeat-r0.json").write_text(text)
    assert read_heartbeat(tmp_path, 0) is None


def test_a_heartbeat_keeps_its_place_and_leaves_a_foreign_file_alone(tmp_path: Path) -> None:
    places = iter([("a_long_name_of_a_script.py", 1), None, ("b.py", 22)])
    pulse = Pulse(tmp_path, 3, lambda: next(places))
    pulse.beat(5)
    first = read_heartbeat(tmp_path, 3)
    pulse.beat(5)
    second = read_heartbeat(tmp_path, 3)
    assert first is not None and second is not None
    assert second.file == "a_long_name_of_a_script.py" and second.advanced == first.advanced
    pulse.beat(6)
    third = read_heartbeat(tmp_path, 3)
    assert third is not None and (third.step, third.file, third.line) == (6, "b.py", 22)

    descriptor = pulse._descriptor
    foreign = os.open(tmp_path / "foreign", os.O_RDWR | os.O_CREAT)
    os.dup2(foreign, descriptor)
    places = iter([None])
    pulse.beat(7)
    pulse.close()
    assert (tmp_path / "foreign").read_bytes() == b""
    os.close(descriptor)
    os.close(foreign)
    assert json.loads((tmp_path / "heartbeat-r3.json").read_text())["step"] == 6


def test_a_wait_whose_time_is_over_ends_at_once() -> None:
    """For poll() a negative time is for ever, and the time may pass between a question and the wait."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 2)
        wait_for_end([WatchedProcess(os.getpid())], -0.001)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
