"""A captured step, run again in a fresh process of the user's own script: where its first NaN or Inf was made.

Nothing of the capture is executed. The script that runs is the one the user names, or the one that recorded the run;
recorded_script.py says when the user is asked before.
"""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from torchdoctor import signals
from torchdoctor.attach.options import EXCEPTION, NONFINITE
from torchdoctor.attach.target import FILE, Target, read_target
from torchdoctor.engine import examine
from torchdoctor.errors import CaptureError, RunError, ScriptError, UsageError
from torchdoctor.experiments.changes import Changes
from torchdoctor.experiments.recorded_script import RecordedScript, find_script, refuse_target_from_a_run
from torchdoctor.facts import BirthFact
from torchdoctor.findings import Finding
from torchdoctor.launching import own_module
from torchdoctor.opening import current_folder
from torchdoctor.run import Run, Seen
from torchdoctor.store.captured import Capture, open_capture
from torchdoctor.store.captures import CaptureEntry, list_captures
from torchdoctor.store.environment import digest_script
from torchdoctor.store.info import read_info
from torchdoctor.store.names import run_file
from torchdoctor.store.reader import open_run

SECONDS = 3600.0
SECONDS_UP = 120.0
"""What the run may have taken to come to a step for the script to be let run up to it without being asked."""
REPORT_LIMIT = 1 << 20
COMPARED = tuple(f.name for f in fields(BirthFact) if f.name not in ("chain", "file", "code", "source", "noticed"))
"""What has to be equal to the bit for a replay to be called the same."""

Approval = Callable[[RecordedScript], bool]


@dataclass(frozen=True)
class Replay:
    """What came of it. One of `birth`, `passed` and `reason` is there."""

    step: int
    capture: Path
    command: tuple[str, ...]
    changes: Changes
    birth: BirthFact | None = None
    failed_at: int | None = None
    passed: int | None = None
    """updates after which a changed run had not failed"""
    reason: str | None = None
    unbroken: bool = False
    """the step was run again, and all of it was finite"""
    raised: str | None = None
    """the exception that ended the script, where one was captured"""
    recorded: BirthFact | None = None
    """what the run itself had found"""
    loss: float | None = None
    captured_loss: float | None = None
    changed_sources: tuple[str, ...] = ()
    processes: int = 0
    """that trained together, 0 where there was one by itself; this one runs alone"""
    rank: int = 0
    late: int = 0
    """steps between the failure and the moment at which it was known, from which the captured state is"""
    from_step: int | None = None
    """the earlier step whose state the capture holds, from which on all were run again"""
    by_function: bool = False
    """the user's function was called, once, in place of the script"""
    from_start: bool = False
    """the script ran up to the step by itself, so that its own variables are those of the step"""
    failed_step: int | None = None
    """of those the one that broke"""
    losses: tuple[tuple[int, float, float], ...] = ()
    """of those steps: the step, its loss when it was recorded, and now"""
    diagnosis: Finding | None = None
    """what comes first once the run's record and the birth are read together"""

    @property
    def gone(self) -> bool:
        """Under the change the step did not fail."""
        return self.passed is not None or (self.changes != Changes() and self.unbroken)

    @property
    def differs(self) -> tuple[str, ...]:
        """Names of what is not the same to the bit as when the run recorded it."""
        if self.birth is None or self.recorded is None:
            return ()
        named = [n for n in COMPARED if getattr(self.birth, n) != getattr(self.recorded, n)]
        if self.loss is not None and self.captured_loss is not None and self.loss != self.captured_loss:
            named.append("loss")
        return tuple(named)

    @property
    def apart(self) -> float:
        """By how much those losses differ at most, over the larger of the two."""
        return max((abs(a - b) / (max(abs(a), abs(b)) or 1.0) for _, a, b in self.losses), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        told = asdict(replace(self, diagnosis=None))
        diagnosis = self.diagnosis.to_dict() if self.diagnosis is not None else None
        return told | {
            "capture": str(self.capture),
            "gone": self.gone,
            "differs": list(self.differs),
            "diagnosis": diagnosis,
        }


def replay(
    run: Path,
    step: int | None = None,
    changes: Changes | None = None,
    command: Sequence[str] = (),
    log: Path | None = None,
    step_fn: str | None = None,
    from_start: bool = False,
    approve: Approval | None = None,
) -> Replay:
    """Run a captured step again. `command`: the script and its arguments, if not those of the run; `log`: a file for
    what the script prints; `step_fn`: `file.py:function` to call in place of the script, see stepping.py; `from_start`:
    the script runs up to the step by itself. It does so, too, where the step alone does not break or another training
    comes first, and it took the run no longer than SECONDS_UP to come there. `approve` is asked before a script is
    started that the run names and that may not be the one that recorded it."""
    entry = choose_capture(run, step)
    changes = changes or Changes()
    info = read_info(run / run_file(0))
    named = RecordedScript(_named_target(command, step_fn), current_folder()) if step_fn or command else None
    script = named or find_script(run, info)
    target = script.target
    with open_capture(entry.path) as capture:
        changed = _changed_sources(capture, Path(target.what.partition(":")[0]).resolve())
        steps = capture.document.get("steps")
        late = 0 if steps else int(capture.document.get("taken_at_step") or 0) - entry.name.step
        processes = max(0, capture.document.get("processes", 0))
        captured_loss = next((x for x in reversed(capture.document.get("losses") or []) if isinstance(x, float)), None)
    if named is None:
        _approve(script, changed, run, approve)
    record = open_run(run)
    recorded = next((f for at, f in record.facts_at(BirthFact) if at == entry.name.step), None)
    request = Request(entry, changes, target, step_fn, from_start)
    surroundings = Surroundings(None if named else script.folder, log, _alone() if processes else {})
    report = _control(request, surroundings) or _perform(request, surroundings)
    alone = not (report.get("unbroken") or report.get("not_yet"))
    if not (alone or from_start or step_fn is not None or changes != Changes()):
        seconds = _seconds_to(record, entry.name.step)
        if seconds <= SECONDS_UP:
            from_start, report = True, _perform(replace(request, from_start=True), surroundings)
        else:
            report["reason"] += f"; --from-start lets it run up to the step by itself, {_about(seconds)}"
    told = report.get("birth")
    birth = _read_birth(told) if told else None
    return Replay(
        step=entry.name.step,
        capture=entry.path,
        command=tuple(target.words),
        changes=changes,
        birth=birth,
        failed_at=report.get("failed_at"),
        passed=report.get("passed"),
        reason=report.get("reason"),
        unbroken=bool(report.get("unbroken")),
        raised=report.get("raised") if entry.name.reason == EXCEPTION else None,
        recorded=recorded,
        loss=report.get("loss"),
        captured_loss=captured_loss if recorded is not None and recorded.noticed != "loss" else None,
        changed_sources=changed,
        processes=processes,
        rank=entry.name.rank,
        late=max(0, late),
        from_step=steps[0]["step"] if steps else None,
        by_function=step_fn is not None,
        from_start=from_start,
        failed_step=report.get("failed_step"),
        losses=_compared(record, report.get("losses") or []),
        diagnosis=_diagnose(record, report.get("failed_step") or entry.name.step, birth) if birth else None,
    )


def _diagnose(record: Run, step: int, birth: BirthFact) -> Finding | None:
    """The root of what follows from the birth."""
    seen = [s for s in record.seen if not isinstance(s.fact, BirthFact)]
    found = {f.name: f for f in examine(replace(record, seen=[*seen, Seen(step, birth)])).findings}
    finding = next((f for f in found.values() if any(e.signal == "birth" for e in f.evidence)), None)
    while finding is not None and finding.consequence_of is not None:
        finding = found.get(finding.consequence_of)
    return finding or next((f for f in found.values() if f.consequence_of is None), None)


def _compared(record: Run, again: list[list[float]]) -> tuple[tuple[int, float, float], ...]:
    trace = record.scalar(signals.LOSS_TRAIN)
    first = dict(zip(trace.steps.tolist(), trace.values.ravel().tolist(), strict=True))
    return tuple((step, first[step], value) for step, value in again if math.isfinite(first.get(step, math.nan)))


def choose_capture(run: Path, step: int | None) -> CaptureEntry:
    """The capture of that step; without one the first of a failure, or else the first."""
    held = list_captures(run)
    if not held:
        raise CaptureError(
            f"{run} holds no capture; one is written when a loss or gradient is not finite, unless --capture none was "
            "given (spikes: --capture nonfinite,spike,exception)"
        )
    if step is None:
        failures = [e for e in held if e.name.reason == NONFINITE]
        return next(filter(_broke_here, failures), next(iter(failures), held[0]))
    found = next(filter(_broke_here, (e for e in held if e.name.step == step)), None)
    found = found or next((e for e in held if e.name.step == step), None)
    if found is None:
        there = ", ".join(str(e.name.step) for e in held)
        raise UsageError(f"there is no capture of step {step}; there are those of {there}")
    return found


def _broke_here(entry: CaptureEntry) -> bool:
    """Of processes that train together, the one whose own loss broke; the others got its gradients."""
    try:
        with open_capture(entry.path) as capture:
            return any(isinstance(loss, str) for loss in capture.document.get("losses", []))
    except CaptureError:
        return False


def _alone() -> dict[str, str]:
    """The environment of the only process of a training of several."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    return ranks | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def _named_target(command: Sequence[str], step_fn: str | None) -> Target:
    """What the user named on the command line."""
    target = Target(FILE, step_fn) if step_fn else read_target(command)
    refuse_target_from_a_run(Target(FILE, step_fn.rpartition(":")[0]) if step_fn else target)
    return target


def _approve(script: RecordedScript, changed: Sequence[str], run: Path, approve: Approval | None) -> None:
    """ScriptError unless nothing speaks against starting the script, or the user agrees. `changed`: files of the user's
    that the script had imported and that are not what they were."""
    others = [name for name in changed if Path(name).expanduser() != Path(script.target.what)]
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        doubt = f"files that the script imported have changed since the run ({', '.join(others[:3])}{more})"
        script = replace(script, doubts=(*script.doubts, doubt))
    if script.doubts and not (approve is not None and approve(script)):
        raise ScriptError(
            f"{script.words} was not started in {script.folder}: {'; '.join(script.doubts)}. Look at it, then add "
            f"--yes or name it yourself: torchdoctor replay {run} -- {script.words}"
        )


def _changed_sources(capture: Capture, script: Path) -> tuple[str, ...]:
    """Source files beside the script that are not what they were; no other path that the capture names is followed."""
    changed = []
    for name, digest in (capture.document.get("sources") or {}).items():
        path = Path(os.path.normpath(os.path.expanduser(name)))  # noqa: PTH111 - Path raises for ~ of unknown users
        if not isinstance(digest, str) or not digest or not path.is_relative_to(script.parent):
            continue
        now = digest_script(path)
        if now and now != digest:
            changed.append(name)
    return tuple(changed)


def _control(request: Request, surroundings: Surroundings) -> dict[str, Any] | None:
    """Before a changed step counts as mended, the unchanged one has to break; why nothing can be said, if not."""
    if request.changes == Changes() or request.changes.from_start or request.step_fn:
        return None
    report = _perform(replace(request, changes=Changes()), surroundings)
    if report.get("birth"):
        return None
    return {"reason": f"nothing can be said of the change, since without it: {report.get('reason')}"}


def _seconds_to(record: Run, step: int) -> float:
    """What the run took to come to that step, without its validation."""
    times = record.scalar(signals.TIME_STEP)
    usual = float(times.values.mean()) if len(times) else math.inf
    return usual * step


def _about(seconds: float) -> str:
    return f"about {seconds / 60:.0f} minutes" if math.isfinite(seconds) else "for as long as the run took"


@dataclass(frozen=True)
class Request:
    """What is run again."""

    entry: CaptureEntry
    changes: Changes
    target: Target
    step_fn: str | None
    from_start: bool


@dataclass(frozen=True)
class Surroundings:
    """Where, and where its output goes."""

    cwd: Path | None
    log: Path | None
    environment: dict[str, str]


def _perform(request: Request, surroundings: Surroundings) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="torchdoctor-replay-") as scratch:
        report = Path(scratch) / "report.json"
        letter = Path(scratch) / "request.json"
        asked = {
            "capture": str(request.entry.path.resolve()),
            "step": request.entry.name.step,
            "changes": asdict(request.changes),
            "kind": request.target.kind,
            "what": request.target.what,
            "arguments": list(request.target.arguments),
            "sha256": request.target.sha256,
            "report": str(report),
            "scratch": scratch,
            "step_fn": request.step_fn,
            "from_start": request.from_start,
        }
        letter.write_text(json.dumps(asked))
        with (surroundings.log or Path(os.devnull)).open("wb") as output:
            try:
                done = subprocess.run(
                    own_module("torchdoctor.experiments.replaying", str(letter)),
                    cwd=surroundings.cwd,
                    env={**os.environ, **surroundings.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=SECONDS,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return {"reason": f"the replay took longer than {SECONDS / 60:.0f} minutes"}
        if not report.is_file() or not report.stat().st_size or report.stat().st_size > REPORT_LIMIT:
            return {"reason": f"the process of the replay ended without a report (status {done.returncode})"}
        return dict(json.loads(report.read_text()))


def _read_birth(told: dict[str, Any]) -> BirthFact:
    try:
        return BirthFact(**told)
    except TypeError as error:
        raise RunError(f"the replay gave a report that this torchdoctor does not know ({error})") from error
