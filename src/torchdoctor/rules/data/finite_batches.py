"""Statistics of training batches, without the batches that hold NaN or Inf: in them all samples look alike."""

from __future__ import annotations

import numpy as np

from torchdoctor.facts import TRAIN
from torchdoctor.rules.curves import Floats
from torchdoctor.run import Run
from torchdoctor.signals import INPUT_NONFINITE, Signal


def finite_batches(run: Run, signal: Signal) -> Floats:
    """Return the finite values of `signal` at training batches in which every input is finite."""
    trace, counts = run.scalar(signal, TRAIN), run.scalar(INPUT_NONFINITE, TRAIN)
    broken = counts.steps[counts.high > 0]
    return trace.values[np.isfinite(trace.values) & ~np.isin(trace.steps, broken)]
