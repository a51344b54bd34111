"""Running one case, bare or recorded, and what came of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from field.environment import CACHE, place, prepare
from field.programs import SCRIPT, Case

SECONDS = 150.0
"""After so long a program is killed: on a busy machine five times what a case may take on a quiet core."""
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1"),
    **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "WANDB_DISABLED", "DO_NOT_TRACK"), "1"),
    "CUDA_VISIBLE_DEVICES": "",
    "MPLBACKEND": "Agg",
    "KERAS_BACKEND": "torch",
    "PYTHONHASHSEED": "0",
    "TOKENIZERS_PARALLELISM": "false",
}


@dataclass(frozen=True)
class Result:
    """How one start of a program ended."""

    status: int
    """exit status; negative: the signal that ended the process"""
    metrics: dict[str, float]
    """what the program printed of itself, in the order printed"""
    seconds: float
    cpu_seconds: float
    megabytes: float
    """most memory that the process held"""
    output: str
    """the last lines, to find out why a program failed"""

    @property
    def metric(self) -> float | None:
        """The program's own measure of success: the last one that it printed."""
        return list(self.metrics.values())[-1] if self.metrics else None


@dataclass(frozen=True)
class Verdict:
    """The findings of a tool on one program."""

    findings: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    """why there is no verdict"""
    is_attached: bool = True
    """False: the tool ended without having found a training that it could watch"""


def run_bare(case: Case, seed: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="field-", dir=_work()) as folder:
        return _run(case, seed, Path(folder), (), {})


def run_under(
    case: Case, seed: int, words: Callable[[Path], Sequence[str]], environment: dict[str, str]
) -> tuple[Result, Verdict]:
    """Run a case under a tool that writes verdict.json into a folder.

    `words` takes that folder and returns the tool's command line, which comes before the script.
    """
    with tempfile.TemporaryDirectory(prefix="field-", dir=_work()) as name:
        folder, verdict = Path(name), Path(name) / "verdict"
        verdict.mkdir()
        result = _run(case, seed, folder, words(verdict), environment)
        return result, _read_verdict(verdict / "verdict.json", result)


def _work() -> Path:
    path = CACHE / "work"
    path.mkdir(parents=True, exist_ok=True)
    return path


def _run(case: Case, seed: int, folder: Path, under: Sequence[str], environment: dict[str, str]) -> Result:
    own = prepare(case.project, case.environment)
    site = folder / "site"
    site.mkdir()
    place(case, own, site)
    command = [str(own.python), *under, SCRIPT, "--seed", str(seed), *case.arguments]
    output = folder / "output.txt"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHDOCTOR", "PYTHON"))}
    began = time.monotonic()
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command,
            cwd=site,
            env={**kept, **ENVIRONMENT, "HOME": str(folder), "TMPDIR": str(folder), **environment},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
        status, usage = _wait(process, began + SECONDS)
    text = output.read_text(errors="replace")
    return Result(
        status=status,
        metrics=_read_metrics(text),
        seconds=time.monotonic() - began,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        megabytes=usage.ru_maxrss / 1024,
        output=text[-2000:],
    )


def _wait(process: subprocess.Popen[bytes], late: float) -> tuple[int, Any]:
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage
        if time.monotonic() > late:
            os.killpg(process.pid, signal.SIGKILL)
            late = float("inf")
        time.sleep(0.05)


def _read_metrics(text: str) -> dict[str, float]:
    """Read the lines `metric NAME VALUE`."""
    metrics = {}
    for line in text.replace("\r", "\n").split("\n"):
        words = line.split()
        if len(words) == 3 and words[0] == "metric":
            try:
                metrics[words[1]] = float(words[2])
            except ValueError:
                continue
    return metrics


def _read_verdict(path: Path, result: Result) -> Verdict:
    try:
        report = json.loads(path.read_text())
        return Verdict(findings=report["findings"], is_attached=report.get("is_attached", True))
    except (OSError, ValueError, KeyError) as error:
        last = result.output.strip().split("\n")[-1]
        return Verdict(error=f"{type(error).__name__}, status {result.status}: {last}"[:300])
