"""The process that computes: it answers, is started again after a crash, and is ended when it takes too long."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchdoctor.errors import LabError, UsageError
from torchdoctor.lab import asking
from torchdoctor.lab.asking import Worker
from torchdoctor.lab.stations import STATIONS
from torchdoctor.lab.worker import serve

STATION = STATIONS["learning-rates"]
PATIENCE = 150.0
"""Seconds in which a process starts on the busiest machine."""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    found = Worker(PATIENCE)
    yield found
    found.close()


def test_it_answers_and_remembers(worker: Worker) -> None:
    once = worker.ask(STATION.name, STATION.defaults())
    assert once["final"]["chosen"] < once["start"]
    assert worker.ask(STATION.name, STATION.defaults()) is once


def test_a_process_that_died_is_started_again(worker: Worker) -> None:
    worker.ask(STATION.name, STATION.defaults())
    process = worker._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert worker.ask(STATION.name, {**STATION.defaults(), "seed": 1})["start"] > 0
    assert worker._process is not process


def test_what_lies_in_the_current_folder_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torchdoctor ui` may be started in a folder that a stranger sent."""
    for name in ("torch", "json", "numpy"):
        (tmp_path / f"{name}.py").write_text("open('executed', 'w'); raise SystemExit(1)")
    monkeypatch.chdir(tmp_path)
    careful = Worker(PATIENCE)
    try:
        assert careful.ask(STATION.name, STATION.defaults())["start"] > 0
    finally:
        careful.close()
    assert not (tmp_path / "executed").exists()


def test_opening_a_station_does_not_wait_for_somebody_elses_answer(worker: Worker) -> None:
    with worker._lock:
        worker.warm_up()


def test_what_cannot_be_computed_is_told_and_the_next_question_is_answered(worker: Worker) -> None:
    with pytest.raises(LabError, match="could not be computed: KeyError"):
        worker.ask(STATION.name, {**STATION.defaults(), "schedule": "sideways"})
    assert worker.ask(STATION.name, {**STATION.defaults(), "seed": 2})["start"] > 0


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    hasty = Worker(seconds=0.01)
    begun = time.monotonic()
    with pytest.raises(LabError, match=r"no answer in 0\.01 s; choose a smaller network or fewer steps"):
        hasty.ask(STATION.name, STATION.defaults())
    assert time.monotonic() - begun < 10 and hasty._process is not None and hasty._process.poll() is not None
    hasty.close()


def test_a_process_that_ends_while_it_is_asked_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "own_module", lambda *_: ["/bin/false"])
    with pytest.raises(LabError, match="ended with status 1; ask again"):
        Worker().ask(STATION.name, STATION.defaults())


def test_closing_ends_a_question_under_way() -> None:
    worker = Worker()
    failed: list[Exception] = []

    def ask() -> None:
        try:
            worker.ask(STATION.name, STATION.defaults())
        except LabError as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while worker._process is None:
        time.sleep(0.01)
    worker.close()
    thread.join(10)
    assert not thread.is_alive() and len(failed) == 1


def test_the_worker_answers_line_by_line_and_survives_errors() -> None:
    good = {"station": STATION.name, "choices": STATION.defaults()}
    bad = {"station": "nowhere", "choices": {}}
    answers = io.StringIO()
    serve(io.StringIO("\n".join(map(json.dumps, (bad, good))) + "\n"), answers)
    failed, found = map(json.loads, answers.getvalue().splitlines())
    assert "nowhere" in failed["failed"] and "start" in found["found"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"optimizer": "magic"}, "optimizer is one of sgd, momentum"),
        ({"rate": "7"}, "rate lies between -4 and 1"),
        ({"rate": "nan"}, "rate lies between"),
        ({"steps": "many"}, "steps lies between 20 and 300"),
    ],
)
def test_wrong_choices_say_what_is_allowed(asked: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        STATION.read(asked)


def test_choices_left_out_are_as_at_the_beginning() -> None:
    assert STATION.read({"rate": "-2.5", "unknown": "1"}) == {**STATION.defaults(), "rate": -2.5}
    assert STATIONS["weight-shapes"].read({"odd": "1"})["odd"] is True
    with pytest.raises(UsageError, match="odd is 0 or 1"):
        STATIONS["weight-shapes"].read({"odd": "yes"})
