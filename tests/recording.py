"""Recorded runs for tests of the command line: written by the real recorder, read by the real reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from torchdoctor import signals
from torchdoctor.facts import Fact, LossCallFact
from torchdoctor.store.writer import Recorder

STEPS = 60
LOSS_CALL = LossCallFact("mse_loss", "train", [8, 1], "float32", [8, 1], "float32", "mean")
"""Without one, a loss was not understood and no bill is clean."""


def record(
    directory: Path,
    *,
    loss: np.ndarray | None = None,
    cleared: float = 1.0,
    facts: tuple[Fact, ...] = (),
    status: str = "finished",
    **info: Any,
) -> Path:
    """A run of STEPS steps. With `cleared=0` it has the fault missing-zero-grad, and nothing else is wrong with it."""
    loss = np.linspace(2.3, 0.5, STEPS) if loss is None else loss
    recorder = Recorder.create(directory, {"argv": ["train.py", "--lr", "0.1"], **info})
    for fact in (*facts, *([] if any(isinstance(f, LossCallFact) for f in facts) else [LOSS_CALL])):
        recorder.fact(fact, 0)
    for step, value in enumerate(loss):
        recorder.scalar(signals.LOSS_TRAIN.name, step, float(value))
        recorder.scalar(signals.GRADIENTS_CLEARED.name, step, cleared, "0")
        recorder.matrix(step, ("fc1.weight", "fc2.weight"), {signals.GRADIENT_L2.name: np.full(2, value, np.float32)})
    recorder.close(status)
    return directory
