"""Asks the process that computes: started when it is first needed, started again if it died, ended if it hangs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import threading
import time
from collections import OrderedDict
from typing import Any

from torchdoctor.errors import LabError
from torchdoctor.lab.station import Choices
from torchdoctor.launching import own_module

SECONDS = 30.0
"""That one answer may take; the dearest network takes two on a quiet machine, several times that beside a training."""
KEPT = 256
"""Answers that are remembered: moving a slider back costs nothing."""


class Worker:
    """One question at a time; the answers to the last ones are kept."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Starts the process, which takes a second or two for torch; does not wait for it."""
        if self._lock.acquire(blocking=False):  # else it is at work already
            try:
                self._started()
            finally:
                self._lock.release()

    def ask(self, station: str, choices: Choices) -> dict[str, Any]:
        """What the station's computation gives. LabError where it failed or took too long."""
        question = json.dumps({"station": station, "choices": dict(choices)}, sort_keys=True)
        with self._lock:
            if question not in self._kept:
                self._kept[question] = self._compute(question)
            self._kept.move_to_end(question)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
            return self._kept[question]

    def close(self) -> None:
        """Also while a question is under way: that one fails."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()

    def _compute(self, question: str) -> dict[str, Any]:
        process = self._started()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(question.encode() + b"\n")
            process.stdin.flush()
        answer = json.loads(self._read_line(process))
        if "failed" in answer:
            raise LabError(f"this could not be computed: {answer['failed']}")
        return answer["found"]

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            command = own_module("torchdoctor.lab.worker")
            environment = {**os.environ, "TORCHDOCTOR_DISABLE": "1"}
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
            )
            self._rest = b""
        return self._process

    def _read_line(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        until = time.monotonic() + self._seconds
        while b"\n" not in self._rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                process.kill()
                process.wait()
                raise LabError(f"no answer in {self._seconds:g} s; choose a smaller network or fewer steps")
            piece = os.read(process.stdout.fileno(), 1 << 20)
            if not piece:
                process.wait()
                raise LabError(f"the computation ended with status {process.returncode}; ask again")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line
