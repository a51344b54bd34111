"""A script under several seeds: a process for each, several at a time, each recorded into a run of its own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from torchdoctor import signals
from torchdoctor.attach.options import RUNS_FOLDER
from torchdoctor.attach.target import FILE, Target
from torchdoctor.errors import RunError
from torchdoctor.experiments.metrics import Metric, read_metrics
from torchdoctor.experiments.seed_passing import OVERRIDE
from torchdoctor.experiments.sources import digest_sources
from torchdoctor.experiments.variants import Variant
from torchdoctor.launching import own_module
from torchdoctor.opening import absolute
from torchdoctor.run import Run
from torchdoctor.store.info import read_info
from torchdoctor.store.names import RUN_FILE
from torchdoctor.store.reader import open_run

FINISHED, FAILED, TIMED_OUT, LEFT_OUT = "finished", "failed", "timed out", "left out"
POLL_SECONDS = 0.1
GRACE_SECONDS = 5.0
"""A process that is ended is first asked to, and killed after that."""
GIVE_UP_AFTER = 2
"""Runs of a variant that fail before any of it has finished: its other seeds would fail, too. Those of other variants
may not: in a sweep one corner is often too much for a script."""
FIRST_STEPS = 50
TAIL_LINES = 12


@dataclass(frozen=True)
class Launch:
    """One process to be."""

    variant: Variant
    seed: int
    name: str
    """of its run"""
    trace: dict[str, Any] | None = None
    """{"file", "first", "last"}: operations of these steps are noted, and nothing is recorded"""
    first: dict[str, Any] | None = None
    """{"updates", "seconds"}: it ends after its first updates, and says what it was seeded with"""
    wait: float = 0.0
    """seconds before it begins: two that begin at the same time may take the same seed from the clock"""

    @cached_property
    def mark(self) -> dict[str, Any]:
        """By which a run is known again: what was run, as a digest, since arguments may hold secrets; with the source
        as it stands when the process is about to begin."""
        target, added = self.variant.passing.set_seed(self.variant.target, self.seed)
        parts = [target.words, added, asdict(self.variant.changes), self.seed, digest_sources(self.variant.target)]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
        return {"variant": self.variant.name, "seed": self.seed, "digest": digest}


@dataclass(frozen=True)
class Outcome:
    """What came of one of them."""

    variant: str
    seed: int
    status: str
    seconds: float = 0.0
    folder: Path | None = None
    log: Path | None = None
    metrics: dict[str, Metric] = field(default_factory=dict)
    steps: int = 0
    seeded: tuple[dict[str, Any], ...] = ()
    """calls of the script that set a seed: those that got another one, or all in a start that ends early"""
    error: str | None = None
    tail: tuple[str, ...] = ()
    beginning: str | None = None
    """a digest of its first losses: equal for runs that do the same"""
    reused: bool = False


class Board(Protocol):
    """Where the state of the runs is shown."""

    def begun(self, launch: Launch) -> None: ...
    def moved(self, launch: Launch, steps: int) -> None: ...
    def ended(self, launch: Launch, outcome: Outcome) -> None: ...


@dataclass(frozen=True)
class Surroundings:
    """Where the processes run, and what they share."""

    out: Path = Path(RUNS_FOLDER)
    jobs: int = 1
    timeout: float | None = None
    """seconds that one of them may take"""
    reuse: bool = False
    """a run of the same command and seed that is there is not repeated"""
    shared_files: bool = False
    """what the script writes is not kept apart"""
    everywhere: bool = False
    """what it writes into any folder is kept apart, not only into its own and the current one"""
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self, slot: int) -> dict[str, str]:
        """For the process in a slot: a device of its own where there are several, and its share of the cores."""
        variables = {**os.environ, **self.environment}
        cores = os.cpu_count() or 1
        variables.setdefault("OMP_NUM_THREADS", str(max(1, cores // self.jobs)))
        devices = find_devices()
        if len(devices) > 1:
            variables["CUDA_VISIBLE_DEVICES"] = devices[slot % len(devices)]
        return variables


def find_devices() -> list[str]:
    """The GPUs that a process may use, without asking torch."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [d.strip() for d in given.split(",") if d.strip() and d.strip() != "-1"]
    with contextlib.suppress(OSError):
        return [str(i) for i, _ in enumerate(Path("/proc/driver/nvidia/gpus").iterdir())]
    return []


def default_jobs() -> int:
    """One for each GPU, or for every two cores."""
    return max(1, len(find_devices()) or (os.cpu_count() or 2) // 2)


def free_base(name: str, surroundings: Surroundings) -> str:
    """What the names of new runs begin with. Runs that are there keep theirs: new ones get a number."""
    base, number = name, 1
    while not surroundings.reuse and _taken(surroundings.out, base):
        number += 1
        base = f"{name}-{number}"
    return base


def plan(variants: Sequence[Variant], seeds: Sequence[int], base: str, swept: bool = False) -> list[Launch]:
    """Seed by seed, so that pairs are complete early. The first variant's runs bear the bare name, but in a sweep."""
    names = [base if i == 0 and not swept else f"{base}-{_slug(v.name)}" for i, v in enumerate(variants)]
    return [
        Launch(variant, seed, f"{named}-seed-{seed}")
        for seed in seeds
        for variant, named in zip(variants, names, strict=True)
    ]


def run_all(launches: Sequence[Launch], surroundings: Surroundings, board: Board) -> tuple[list[Outcome], bool]:
    """All of them, in the order in which they were given, and whether it was interrupted."""
    return Crew(launches, surroundings, board).work()


class Crew:
    """The processes that run at a time."""

    def __init__(self, launches: Sequence[Launch], surroundings: Surroundings, board: Board) -> None:
        self._waiting = list(enumerate(launches))
        self._order = list(launches)
        self._at = surroundings
        self._board = board
        self._running: dict[int, tuple[int, Process]] = {}
        """by slot: the number of the launch, and its process"""
        self._outcomes: dict[int, Outcome] = {}
        self._known = find_known(surroundings.out) if surroundings.reuse else {}
        self._scratch = tempfile.TemporaryDirectory(prefix="torchdoctor-seeds-")

    def work(self) -> tuple[list[Outcome], bool]:
        interrupted = False
        self._at.out.mkdir(parents=True, exist_ok=True)
        with self._scratch:
            try:
                while self._waiting or self._running:
                    self._start()
                    self._look()
                    time.sleep(POLL_SECONDS)
            except KeyboardInterrupt:
                interrupted = True
            finally:
                for _, process in self._running.values():
                    process.end()
        left = [Outcome(launch.variant.name, launch.seed, LEFT_OUT) for launch in self._order]
        return [self._outcomes.get(number, outcome) for number, outcome in enumerate(left)], interrupted

    def _start(self) -> None:
        for slot in range(self._at.jobs):
            while slot not in self._running and self._waiting:
                number, launch = self._waiting.pop(0)
                known = self._known.get(launch.mark["digest"])
                if known is not None:
                    self._close(number, launch, read_known(launch, known))
                    continue
                launch = replace(launch, name=free_name(self._at.out, launch.name))
                self._board.begun(launch)
                self._running[slot] = number, Process(launch, self._at, slot, Path(self._scratch.name))

    def _look(self) -> None:
        for slot, (number, process) in list(self._running.items()):
            outcome = process.look()
            if outcome is None:
                self._board.moved(process.launch, process.steps())
                continue
            del self._running[slot]
            self._close(number, process.launch, outcome)
        hopeless = self._hopeless()
        self._waiting = [(number, launch) for number, launch in self._waiting if launch.variant.name not in hopeless]

    def _hopeless(self) -> set[str]:
        """Variants of which several runs have failed and none has finished."""
        failed = Counter(o.variant for o in self._outcomes.values() if o.status != FINISHED)
        finished = {o.variant for o in self._outcomes.values() if o.status == FINISHED}
        return {name for name, count in failed.items() if count >= GIVE_UP_AFTER} - finished

    def _close(self, number: int, launch: Launch, outcome: Outcome) -> None:
        self._outcomes[number] = outcome
        self._board.ended(launch, outcome)


class Process:
    """One seed on its way."""

    def __init__(self, launch: Launch, at: Surroundings, slot: int, scratch: Path) -> None:
        self.launch = launch
        self._at = at
        self._folder = absolute(at.out) / launch.name
        self._log = absolute(at.out) / f"{launch.name}.log"
        self._report = scratch / f"{launch.name}.report"
        letter = scratch / f"{launch.name}.json"
        target, added = launch.variant.passing.set_seed(launch.variant.target, launch.seed)
        files = None if at.shared_files else str(absolute(at.out) / "files" / launch.name)
        letter.write_text(json.dumps(request_of(launch, target, at, self._report, files)))
        self._since = time.monotonic()
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                own_module("torchdoctor.experiments.seeding", str(letter)),
                env={**at.variables(slot), **added},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._since

    def steps(self) -> int:
        with contextlib.suppress(RunError, OSError):
            steps = read_info(self._folder / RUN_FILE).get("steps")
            return steps if isinstance(steps, int) else 0
        return 0

    def look(self) -> Outcome | None:
        """What came of it, once it is over."""
        code = self._process.poll()
        late = self._at.timeout is not None and self.seconds > self._at.timeout
        if code is None and not late:
            return None
        self.end()
        told: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            told = json.loads(self._report.read_text())
        status = TIMED_OUT if code is None else FINISHED if code == 0 else FAILED
        return read_outcome(self.launch, self._folder, self._log, status, self.seconds, told)

    def end(self) -> None:
        """With all that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def request_of(launch: Launch, target: Target, at: Surroundings, report: Path, files: str | None) -> dict[str, Any]:
    """What the process of one seed is told."""
    script = [str(Path(target.what).resolve().parent)] if target.kind == FILE else []
    return {
        "kind": target.kind,
        "what": target.what,
        "arguments": list(target.arguments),
        "seed": launch.seed,
        "override": launch.variant.passing.how == OVERRIDE,
        "changes": asdict(launch.variant.changes),
        "out": str(absolute(at.out)),
        "name": launch.name,
        "mark": launch.mark,
        "report": str(report),
        "files": files,
        "roots": script,
        "everywhere": at.everywhere,
        "trace": launch.trace,
        "first": launch.first,
        "wait": launch.wait,
    }


def read_outcome(
    launch: Launch, folder: Path, log: Path, status: str, seconds: float, told: dict[str, Any], reused: bool = False
) -> Outcome:
    run = None
    with contextlib.suppress(RunError, OSError):
        run = open_run(folder)
    tail: tuple[str, ...] = ()
    with contextlib.suppress(OSError):
        if status != FINISHED:
            tail = tuple(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
        if run is not None and log.parent != folder:
            log = log.replace(folder / "output.log")
    exception = told.get("exception")
    return Outcome(
        variant=launch.variant.name,
        seed=launch.seed,
        status=status,
        seconds=seconds,
        folder=folder if run is not None else None,
        log=log,
        metrics=read_metrics(run) if run is not None else {},
        steps=run.steps if run is not None else 0,
        seeded=tuple(told.get("seeded") or ()),
        error=f"{exception['type']}: {exception['message'][:200]}" if exception else told.get("problem"),
        tail=tail,
        beginning=_digest(run) if run is not None else None,
        reused=reused,
    )


def find_known(out: Path) -> dict[str, Path]:
    """Earlier runs of a seed that ended well, by what they ran."""
    found = {}
    for folder in sorted(absolute(out).glob("*-seed-*")):
        with contextlib.suppress(RunError, OSError, AttributeError):
            info = read_info(folder / RUN_FILE)
            digest = ((info.get("options") or {}).get("seed_run") or {}).get("digest")
            if isinstance(digest, str) and info.get("status") == "finished":
                found[digest] = folder
    return found


def read_known(launch: Launch, folder: Path) -> Outcome:
    info = read_info(folder / RUN_FILE)
    times = [info.get(key) for key in ("started", "ended")]
    seconds = times[1] - times[0] if all(isinstance(t, int | float) for t in times) else 0.0
    return read_outcome(launch, folder, folder / "output.log", FINISHED, seconds, {}, reused=True)


def _digest(run: Run) -> str | None:
    losses = run.scalar(signals.LOSS_TRAIN).first(FIRST_STEPS).values
    return hashlib.sha256(losses.tobytes()).hexdigest() if len(losses) else None


def free_name(out: Path, name: str) -> str:
    """The name, or with a number where something of that name is there."""
    candidate, number = name, 1
    while (out / candidate).exists() or (out / f"{candidate}.log").exists():
        number += 1
        candidate = f"{name}-{number}"
    return candidate


def _taken(out: Path, name: str) -> bool:
    return any(out.glob(f"{name}-seed-*")) or any(out.glob(f"{name}-*-seed-*"))


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", text).strip("-")[:60] or "other"
