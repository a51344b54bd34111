"""How a gradient fares over the time steps of a plain recurrent net, from the size of its recurrent matrix.

For a matrix of independent entries the spectral radius is its Frobenius norm over sqrt(width) (the circular law), and
a tanh or ReLU only lowers it. So that number to the power of the steps is what is left of the last step's gradient at
the first one. Gated cells (LSTM, GRU) have another path, about which this says nothing.

A cell written by hand is a plain layer that one forward pass applies once for every time step: the graph then holds
as many more products than there are layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import TRAIN, GraphFact, InputsFact, LayersFact, LossCallFact
from torchdoctor.rules.architecture.depth import Layer
from torchdoctor.run import Run
from torchdoctor.signals import WEIGHT_L2

PLAIN = ("RNN", "RNNCell")
PRODUCTS = ("Addmm", "Mm", "Linear")
SQUASHING = ("Tanh", "Relu", "LeakyRelu", "Elu", "Softplus", "Gelu")
GATES = ("Sigmoid", "Mul")
MIN_REPEATED = 10
"""Time steps from which on a layer that is used again and again is a recurrence, and not one shared by two branches."""


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
    square = [x for x in layers if x.module_type in PLAIN and "weight_hh" in x.name] or list(unrolled(run, layers))
    square = [x for x in square if x.name in weights.columns]
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


def unrolled(run: Run, layers: tuple[Layer, ...], steps: int | None = None) -> tuple[Layer, ...]:
    """Layers that may be the recurrent one of a plain cell written by hand; nothing where there is no such cell."""
    graph, known, steps = run.last_fact(GraphFact), run.last_fact(LayersFact), steps or sequence_length(run)
    if graph is None or known is None or steps is None or steps < MIN_REPEATED:
        return ()
    products, squashed, gated = (_count(graph, names) for names in (PRODUCTS, SQUASHING, GATES))
    if products < len(known.layers) + steps - 2 or squashed < steps - 1 or gated >= steps - 1:
        return ()
    return tuple(x for x in layers[:-1] if len(x.shape) == 2 and x.shape[1] >= x.shape[0] > 1)


def applications(run: Run) -> int:
    """How often a plain activation function stands in the graph: once a time step, where a cell is unrolled."""
    graph = run.last_fact(GraphFact)
    return _count(graph, SQUASHING) if graph is not None else 0


def _count(graph: GraphFact, names: tuple[str, ...]) -> int:
    return sum(n for op, n in graph.operators.items() if op.partition("Backward")[0] in names)


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
