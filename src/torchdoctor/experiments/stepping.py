"""A captured step by a function that the user names, for programs whose script cannot simply be started again."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchdoctor.attach.registry import Registry
from torchdoctor.attach.restoring import read_states, rebuild, restore, restore_random
from torchdoctor.errors import ScriptError
from torchdoctor.probes.rerun import Rerun
from torchdoctor.probes.step_start import StepStart
from torchdoctor.store.captured import Capture, open_capture


class CapturedStep:
    """What the function is given: `batch` as the loader gave it, and `load` for the model and the optimizer."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self.registry = Registry()
        self.step: int = capture.document["step"]
        self.batches: list[Any] = [rebuild(capture, node) for node in _kept(capture.document)]
        """all that were kept of the step, newest last"""

    @property
    def batch(self) -> Any:
        return self.batches[-1] if self.batches else None

    def load(self, model: nn.Module, *optimizers: Optimizer) -> list[str]:
        """Put the captured state into them, and the random states; gives what did not fit."""
        self.registry.add_model(model)
        for optimizer in optimizers:
            self.registry.optimizer_key(optimizer)
        self.registry.discover()
        return restore(self._capture, self.registry)


def _kept(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The batches of the step; of several steps, what the last of them used."""
    steps, lead = document.get("steps"), document.get("lead", 0)
    if not steps:
        return list(document["batches"])
    given = [node for step in steps for node in step["batches"]]
    return given[-1 - lead : len(given) - lead] if lead else list(steps[-1]["batches"])


def _states(document: dict[str, Any]) -> dict[str, Any]:
    """The random states that the step began with."""
    last = document["steps"][-1] if document.get("steps") else {"random": document["random"], "batch_random": []}
    return next(iter(last["batch_random"]), None) or last["random"] or document["random"]


def find_function(named: str) -> Any:
    """`file.py:function`."""
    file, _, name = named.rpartition(":")
    if not file or not Path(file).is_file():
        raise ScriptError(f"a step function is given as file.py:function, not {named!r}")
    sys.path.insert(0, str(Path(file).resolve().parent))  # it may import what lies beside it, as a script may
    function = runpy.run_path(file, run_name="torchdoctor_replay").get(name)
    if not callable(function):
        raise ScriptError(f"there is no function {name!r} in {file}")
    return function


def run_function(path: Path, named: str, pipe: int) -> None:
    """Call it once with every operation checked; Rerun reports."""
    function = find_function(named)
    with open_capture(path) as capture:
        torch.set_num_threads(int(capture.document.get("threads") or torch.get_num_threads()))
        given = CapturedStep(capture)
        start = StepStart()
        restore_random(capture)
        start.random, start.device_random = read_states(capture, _states(capture.document))
        Rerun(pipe, start, given.registry).begin(serves=False)
        loss = function(given)
    if isinstance(loss, Tensor) and loss.requires_grad:
        torch.autograd.backward(loss)
