"""Plain networks from the choices of a station: activation, initialisation, depth, width, normalisation, shortcuts."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "leaky-relu": nn.LeakyReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "none": nn.Identity,
}
GAINS = {"relu": "relu", "leaky-relu": "leaky_relu", "tanh": "tanh", "gelu": "relu", "silu": "relu", "elu": "relu"}
"""torch.nn.init names none for the smooth relatives of ReLU, which keep about as much of the signal as it does."""
LARGE, SMALL = 1.0, 0.01
"""Deviations that people write by hand: N(0, 1) and N(0, 0.01)."""


class Block(nn.Module):
    """One layer: linear, normalisation, activation, and the input added where there is a shortcut."""

    def __init__(self, inputs: int, width: int, activation: str, norm: str, residual: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, width)
        self.norm = make_norm(norm, width)
        self.activation = ACTIVATIONS[activation]()
        self.residual = residual and inputs == width

    def activate(self, x: Tensor) -> Tensor:
        """What the activation itself puts out: with a shortcut that is not yet what the layer does."""
        out: Tensor = self.activation(self.norm(self.linear(x)))
        return out

    def join(self, x: Tensor, out: Tensor) -> Tensor:
        return x + out if self.residual else out

    def forward(self, x: Tensor) -> Tensor:
        return self.join(x, self.activate(x))


class Head(nn.Linear):
    """The last layer; what shortcuts have added up is normalised before it, as transformers do."""

    def __init__(self, width: int, classes: int, norm: str) -> None:
        super().__init__(width, classes)
        self.norm = make_norm(norm, width)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x))


def make_norm(name: str, width: int) -> nn.Module:
    kinds = {"none": nn.Identity, "batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "rms": nn.RMSNorm}
    return kinds[name](width)


def build(
    activation: str, init: str, depth: int, width: int, norm: str, residual: bool, inputs: int, classes: int
) -> tuple[list[Block], nn.Linear]:
    """Hidden layers and a head; the head starts as PyTorch does, except where everything is zero."""
    blocks = [Block(inputs if i == 0 else width, width, activation, norm, residual) for i in range(depth)]
    head = Head(width, classes, norm if residual else "none")
    for block in blocks:
        initialise(block.linear, init, activation)
    if init == "zeros":
        initialise(head, init, activation)
    return blocks, head


def initialise(layer: nn.Linear, init: str, activation: str) -> None:
    weight = layer.weight
    if init == "default":
        return
    nn.init.zeros_(layer.bias)
    if init == "zeros":
        nn.init.zeros_(weight)
    elif init == "constant":
        nn.init.constant_(weight, 1 / weight.shape[1])  # the mean goes through as it is
    elif init == "xavier":
        nn.init.xavier_uniform_(weight)
    elif init == "he":
        nn.init.kaiming_normal_(weight, nonlinearity="relu")
    elif init == "lecun":
        nn.init.normal_(weight, std=1 / math.sqrt(weight.shape[1]))
    elif init == "orthogonal":
        nn.init.orthogonal_(weight, nn.init.calculate_gain(GAINS.get(activation, "linear")))
    else:
        nn.init.normal_(weight, std={"large": LARGE, "small": SMALL}[init])


def make_data(samples: int, inputs: int, classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Standard inputs, and classes that a fixed curved function of them tells apart: there is something to learn."""
    x = torch.randn(samples, inputs, generator=generator)
    teacher = torch.randn(inputs, classes, generator=generator) / math.sqrt(inputs)
    return x, (torch.tanh(2 * x) @ teacher).argmax(dim=1)
