"""A script under autograd's anomaly mode and nothing else: which operation and line its error names.

python benchmarks/anomaly.py script.py      runs it, and prints what anomaly mode said as the last line, in JSON
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "ANOMALY "
NODE = re.compile(r"Function '(\w+)' returned nan values")
FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class Named:
    """What anomaly mode said. All empty where the script ran through."""

    node: str = ""
    line: int | None = None
    """innermost line of the script in the traceback of the forward call"""
    error: str = ""
    """the script ended otherwise"""
    seconds: float = 0.0

    @property
    def operator(self) -> str:
        """Of PowBackward0 pow, of SoftmaxBackward0 softmax."""
        return re.sub(r"Backward\d*$", "", self.node).lower()


def parse(message: str, traceback: str, script: str) -> Named:
    found = NODE.search(message)
    if found is None:
        return Named(error=message.strip().splitlines()[-1][:200] if message.strip() else "")
    lines = [int(line) for file, line in FRAME.findall(traceback) if Path(file).name == Path(script).name]
    return Named(found.group(1), lines[-1] if lines else None)


def run(script: Path, environment: dict[str, str], timeout: float) -> Named:
    """In a process of its own."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-anomaly-") as folder:
        command = [sys.executable, __file__, str(script)]
        try:
            done = subprocess.run(
                command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=timeout,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Named(error=f"not done within {timeout:.0f} s", seconds=timeout)
    seconds = time.monotonic() - began
    said = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not said:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return Named(error=last[:200], seconds=seconds)
    answer = json.loads(said[-1].removeprefix(MARK))
    named = parse(answer["message"], answer["traceback"], str(script))
    return Named(named.node, named.line, named.error, seconds)


def _work(script: str) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    switch = torch.autograd.set_detect_anomaly
    switch(True)
    torch.autograd.set_detect_anomaly = lambda *_, **__: switch(True)  # Lightning would switch it off
    heard: list[str] = []
    message = ""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda said, *_, **__: heard.append(str(said))
        sys.argv = [script]
        try:
            runpy.run_path(script, run_name="__main__")
        except Exception as error:
            message = str(error)
    tracebacks = [text for text in heard if text.startswith("Error detected in ")]
    return {"message": message, "traceback": tracebacks[-1] if tracebacks else ""}


if __name__ == "__main__":
    print(MARK + json.dumps(_work(sys.argv[1])), flush=True)
