"""Signal and gradient, layer by layer, of a network that is built, run and trained for the choices as they are."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.lab.computing.networks import Block, build, make_data

SAMPLES, INPUTS, CLASSES = 256, 32, 8
RATE = 0.05
"""Of the short training: plain descent at a rate that a healthy network of this size takes."""
FLAT = {"sigmoid": (0.02, 0.98), "tanh": (-0.96, 0.96)}
"""Outputs beyond which the slope is below a tenth of its greatest."""


def compute(
    activation: str, init: str, depth: int, width: int, norm: str, residual: bool, steps: int, seed: int
) -> dict[str, Any]:
    """At the start, and after so many steps."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    blocks, head = build(activation, init, depth, width, norm, residual, INPUTS, CLASSES)
    inputs, targets = make_data(SAMPLES, INPUTS, CLASSES, generator)
    start = look(blocks, head, inputs, targets, activation)
    losses = train(blocks, head, inputs, targets, steps)
    return {"start": start, "end": look(blocks, head, inputs, targets, activation) if steps else start, "loss": losses}


def look(blocks: list[Block], head: nn.Linear, inputs: Tensor, targets: Tensor, activation: str) -> dict[str, Any]:
    """One pass forward and one backward; nothing is updated."""
    own: list[Tensor] = []
    outputs: list[Tensor] = []
    x = inputs
    for block in blocks:
        own.append(block.activate(x))
        x = block.join(x, own[-1])
        x.retain_grad()
        outputs.append(x)
    loss = nn.functional.cross_entropy(head(x), targets)
    for block in (*blocks, head):
        block.zero_grad()
    loss.backward()
    layers = [block.linear for block in blocks] + [head]
    low, high = FLAT.get(activation, (float("-inf"), float("inf")))
    return {
        "loss": loss.item(),
        "gradient": [_norm(layer.weight.grad) for layer in layers],
        "signal_gradient": [_norm(out.grad) for out in outputs],
        "size": [out.square().mean().sqrt().item() for out in outputs],
        "spread": [out.std(dim=0).mean().item() for out in outputs],
        "between_units": [_unequal(layer.weight.grad) for layer in layers[:-1]],
        "dead": [(out == 0).all(dim=0).float().mean().item() for out in own],
        "saturated": [((out < low) | (out > high)).float().mean().item() for out in own],
    }


def train(blocks: list[Block], head: nn.Linear, inputs: Tensor, targets: Tensor, steps: int) -> list[float]:
    model = nn.Sequential(*blocks, head)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _norm(gradient: Tensor | None) -> float:
    return gradient.norm().item() if gradient is not None else 0.0


def _unequal(gradient: Tensor | None) -> float:
    """How far the units' gradients differ from each other, over their size: 0 where all units learn the same."""
    if gradient is None or not gradient.norm() > 0:
        return 0.0
    return ((gradient - gradient.mean(dim=0)).norm() / gradient.norm()).item()
