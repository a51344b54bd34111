"""How a gradient fares over the time steps of a plain recurrent net, from the size of its recurrent matrix.

For a matrix of independent entries the spectral radius is its Frobenius norm over sqrt(width) (the circular law), and
a tanh or ReLU only lowers it. So that number to the power of the steps is what is left of the last step's gradient at
the first one. Gated cells (LSTM, GRU) have another path, about which this says nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import TRAIN, InputsFact, LossCallFact
from torchdoctor.rules.architecture.depth import Layer
from torchdoctor.run import Run
from torchdoctor.signals import WEIGHT_L2

PLAIN = ("RNN", "RNNCell")


@dataclass(frozen=True)
class Fading:
    layer: Layer
    rate: float
    """factor on the gradient for one time step"""
    steps: int

    @property
    def left(self) -> float:
        """What reaches the first time step of a gradient of one at the last."""
        return min(1.0, self.rate) ** (self.steps - 1)


def fading(run: Run, layers: tuple[Layer, ...]) -> Fading | None:
    """For the plain recurrent matrix that keeps most; None where there is none or the length is not known."""
    weights, steps = run.matrix(WEIGHT_L2), sequence_length(run)
    square = [x for x in layers if x.module_type in PLAIN and "weight_hh" in x.name and x.name in weights.columns]
    if steps is None or not square:
        return None
    rates = []
    for layer in square:
        norms = weights.column(layer.name).values
        known = norms[np.isfinite(norms)]
        if len(known):
            rates.append((float(np.median(known)) / math.sqrt(layer.shape[1]), layer))
    if not rates:
        return None
    rate, layer = max(rates, key=lambda pair: pair[0])
    return Fading(layer, rate, steps)


def sequence_length(run: Run) -> int | None:
    """The axis of the training inputs, among the first two, that is not the batch."""
    shapes = [f.shape for f in run.facts(InputsFact) if f.role == "input" and f.phase == TRAIN and len(f.shape) >= 2]
    calls = [f for f in run.facts(LossCallFact) if f.phase == TRAIN and f.input_shape]
    if not shapes:
        return None
    first, second = shapes[-1][:2]
    if calls and calls[-1].input_shape[0] == second != first:
        return first
    return second
