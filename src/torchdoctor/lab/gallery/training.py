"""Trains what the gallery shows: one after the other, each in a process of its own, after everything else that runs."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO

from torchdoctor.errors import LabError
from torchdoctor.lab.gallery.cabinet import Cabinet
from torchdoctor.lab.gallery.exhibits import Training, all_trainings
from torchdoctor.launching import own_module
from torchdoctor.report.text import clean

ABSENT, QUEUED, UNDER_WAY, READY, FAILED = "absent", "queued", "training", "ready", "failed"
SECONDS = 180.0
"""That one may take: fifty times what it takes here, for slow and busy machines."""
LATER = 10
"""Niceness: other trainings on the machine go first."""
OVERHEAD = "0.5"
"""Share of the time for measuring where not every step is looked at in full: these trainings last a second."""
LOOK_SECONDS = 0.05
LAST_BYTES = 8000
"""Of what a training that failed has written, that is searched for the reason."""
RAISED = re.compile(r"^([\w.]*(?:Error|Exception|Interrupt)\b.*)$", re.MULTILINE)
DEMO = {"sklearn": "pip install 'torchdoctor[demo]'"}
"""Packages that some scripts need and torchdoctor does not, and what brings them."""
MINE = ("SEED", "GRADE", "TORCHDOCTOR_")
"""Of the environment: what would make the zoo or torchdoctor do something else than the gallery says."""
LAUNCHERS = ("RANK", "LOCAL_", "GROUP_", "WORLD_SIZE", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMI_", "SLURM_")
"""What those put there who start many processes for one training (attach.ranks): each of these is one by itself."""


@dataclass(frozen=True)
class Standing:
    """How one training stands."""

    state: str
    why: str = ""
    """of one that failed"""


def command_of(training: Training, cabinet: Cabinet) -> list[str]:
    """Without settings: those of a pyproject.toml above the folder are meant for somebody's own runs."""
    looks = ["--every-step"] if training.every_step else ["--overhead", OVERHEAD]
    words = ["run", "--quiet", "--config", os.devnull, *looks, "--capture", "none", "--out", str(cabinet.folder)]
    return own_module("torchdoctor", *words, "--name", training.name, str(training.case.path))


class Trainer:
    """One training at a time, however many are asked for; what is kept already is not trained again."""

    def __init__(
        self,
        cabinet: Cabinet,
        command: Callable[[Training, Cabinet], list[str]] = command_of,
        seconds: float = SECONDS,
    ) -> None:
        self.cabinet = cabinet
        self._command, self._seconds = command, seconds
        self._queue: OrderedDict[str, Training] = OrderedDict()
        self._failed: dict[str, str] = {}
        self._current = ""
        self._unwanted = False
        """whether the current one is to end"""
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        with self._lock:
            return bool(self._current or self._queue)

    def standing(self, name: str) -> Standing:
        with self._lock:
            if name == self._current:
                return Standing(UNDER_WAY)
            if name in self._queue:
                return Standing(QUEUED)
            why = self._failed.get(name)
        if why is not None:
            return Standing(FAILED, why)
        return Standing(READY if self.cabinet.holds(name) else ABSENT)

    def train(self, trainings: Iterable[Training]) -> None:
        """Puts them at the end of the line. LabError at once where nothing could be kept."""
        self.cabinet.prepare()
        wanted = [training for training in trainings if not self.cabinet.holds(training.name)]
        with self._lock:
            for training in wanted:
                self._failed.pop(training.name, None)
                if training.name != self._current and not self._closed:
                    self._queue.setdefault(training.name, training)
            if self._queue and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="torchdoctor-gallery", daemon=True)
                self._thread.start()

    def remove(self, names: Iterable[str]) -> None:
        """Also what is under way: that one is ended first."""
        for name in names:
            with self._lock:
                self._queue.pop(name, None)
                self._failed.pop(name, None)
                if name == self._current:
                    self._unwanted = True
                    self._kill()
            while self.standing(name).state == UNDER_WAY:
                time.sleep(LOOK_SECONDS)
            self.cabinet.remove(name)

    def clear(self) -> None:
        """Everything, also what other versions have trained."""
        self.stop()
        self.cabinet.clear()

    def stop(self) -> None:
        """What is under way and what waits; what was trained stays."""
        with self._lock:
            self._queue.clear()
            self._failed.clear()
            current = self._current
        if current:
            self.remove([current])

    def close(self) -> None:
        with self._lock:
            self._closed = self._unwanted = True
            self._queue.clear()
            self._kill()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._queue or self._closed:
                    self._thread = None
                    return
                self._current, training = self._queue.popitem(last=False)
                self._unwanted = False
            why = ""
            try:
                self._train(training)
            except LabError as error:
                why = str(error)
            except Exception as error:  # the next one may do
                why = f"{type(error).__name__}: {error}"
            with self._lock:
                self._current, self._process = "", None
                if why and not self._unwanted:
                    self._failed[training.name] = why

    def _train(self, training: Training) -> None:
        _look_for_packages(training)
        self.cabinet.prepare()
        self.cabinet.make_room({each.name for each in all_trainings()})
        until = time.monotonic() + self._seconds
        while self.cabinet.is_running(training.name) and time.monotonic() < until and not self._unwanted:
            time.sleep(LOOK_SECONDS)  # another page trains it, into the same folder
        if self.cabinet.holds(training.name) or self._unwanted:
            return
        self.cabinet.remove(training.name)
        with tempfile.TemporaryFile() as said:
            status = self._run(training, said, until)
            if status != 0:
                raise LabError(f"it ended with status {status}: {_find_reason(said)}")
        if not self.cabinet.holds(training.name):
            raise LabError(
                f"it ran to its end, but its record in {self.cabinet.folder} is not whole; is the disk full?"
            )

    def _run(self, training: Training, said: IO[bytes], until: float) -> int:
        kept = {name: value for name, value in os.environ.items() if not name.startswith((*MINE, *LAUNCHERS))}
        environment = {"OMP_NUM_THREADS": "1", **kept, **({"GRADE": training.grade} if training.grade else {})}
        with self._lock:
            if self._unwanted:
                raise LabError("it was ended")
            process = self._process = subprocess.Popen(
                self._command(training, self.cabinet),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.cabinet.folder,
                env=environment,
                start_new_session=True,  # its own group, to be ended as a whole
            )
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, process.pid, LATER)
        while process.poll() is None:
            if time.monotonic() > until:
                with self._lock:
                    self._kill()
                raise LabError(f"it was not done after {self._seconds:g} s; is the machine busy? Train it again")
            time.sleep(LOOK_SECONDS)
        return process.returncode

    def _kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _look_for_packages(training: Training) -> None:
    """Before two seconds are spent on importing torch."""
    source = training.case.path.read_text(encoding="utf-8")
    for package, remedy in DEMO.items():
        needed = re.search(rf"^\s*(?:import|from) {package}\b", source, re.MULTILINE)
        if needed and importlib.util.find_spec(package) is None:
            raise LabError(f"this training needs scikit-learn: {remedy}, then train it again")


def _find_reason(said: IO[bytes]) -> str:
    """The last exception that was told, else the last line."""
    said.seek(max(0, said.seek(0, os.SEEK_END) - LAST_BYTES))
    text = said.read().decode("utf-8", "replace").strip()
    raised = RAISED.findall(text)
    return clean(raised[-1] if raised else text.rpartition("\n")[2] or "it said nothing")
