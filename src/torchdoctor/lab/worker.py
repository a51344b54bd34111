"""The process that computes: a line of JSON in, a line of JSON out, until its input ends.

It is a process of its own, so that the page never imports torch, and so that a computation that takes too long can be
ended without harm.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import IO

LATER = 10
"""Niceness: a training on the same machine goes first."""


def serve(requests: IO[str], answers: IO[str]) -> None:
    """`station` names a module of torchdoctor.lab.computing; the asking side takes it from a fixed list."""
    for line in requests:
        asked = json.loads(line)
        try:
            module = importlib.import_module(f"torchdoctor.lab.computing.{asked['station'].replace('-', '_')}")
            answer = {"found": module.compute(**asked["choices"])}
        except Exception as error:  # the next request may be a sound one
            answer = {"failed": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    os.nice(LATER)
    import torch

    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a library prints is no answer
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
