"""How much of the gradient every unit lets through, step by step, while a small network is trained."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.lab.computing.networks import Block, build
from torchdoctor.lab.computing.optimizers import make_optimizer
from torchdoctor.lab.computing.record import Record
from torchdoctor.signals import ACTIVATION

SAMPLES, WATCHED, BATCH, INPUTS = 512, 128, 64, 16
"""WATCHED samples are those by which a unit is judged."""
FLAT = 1e-3
"""Slope below which a unit lets nothing through: a tenth of what leaky ReLU passes at the least."""
FRAMES = 60
OUTLIER_AT = 1 / 3
"""Of the steps: when the odd batch comes."""
INPUTS_TIMES, TARGETS_TIMES = 10.0, 25.0
"""By which an odd batch is too large: a unit that was mistaken, a number that slipped its column."""


def compute(
    activation: str,
    optimizer: str,
    rate: float,
    bias: float,
    targets: float,
    outlier: str,
    depth: int,
    width: int,
    steps: int,
    seed: int,
) -> dict[str, Any]:
    """`rate` and `targets` are powers of ten."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    blocks, head = build(activation, "he", depth, width, "none", False, INPUTS, 1)
    for block in blocks:
        nn.init.constant_(block.linear.bias, bias)
    inputs, goals = make_task(10**targets, generator)
    model = nn.Sequential(*blocks, head)
    chosen = make_optimizer(optimizer, model.parameters(), 10**rate)
    record, seen = Record(model, chosen), Seen(blocks, inputs[:WATCHED])
    odd = int(OUTLIER_AT * steps) if outlier != "none" else -1
    for step in range(steps):
        seen.look()
        at = torch.randint(SAMPLES, (BATCH,), generator=generator)
        x, y = spoil(inputs[at], goals[at], outlier if step == odd else "none")
        chosen.zero_grad()
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        loss.backward()
        record.losses.append(loss.item())
        record.begin(step)
        chosen.step()
        record.end()
    seen.look()
    told = record.to_json()
    told["columns"] = [str(i + 1) for i in range(depth)]
    told["matrices"][ACTIVATION["dead"].name] = seen.shares()
    mean_and_std = [goals.mean().item(), goals.std().item()]
    return {"record": told, "outlier_at": odd, "targets": mean_and_std, **seen.to_json()}


class Seen:
    """What every unit lets through, before each update and after the last."""

    def __init__(self, blocks: list[Block], inputs: Tensor) -> None:
        self._blocks, self._inputs = blocks, inputs
        self._slopes: list[Tensor] = []
        self._dead: list[Tensor] = []
        self._finite: list[bool] = []

    def look(self) -> None:
        slope_LU, dead_LU, finite = look(self._blocks, self._inputs)
        self._slopes.append(slope_LU)
        self._dead.append(dead_LU)
        self._finite.append(finite)

    def shares(self) -> list[list[float]]:
        """Of dead units in each layer, before each update; NaN where not all is finite."""
        known = zip(self._finite[:-1], self._dead[:-1], strict=True)
        return [dead.float().mean(dim=1).tolist() if finite else [math.nan] * len(dead) for finite, dead in known]

    def to_json(self) -> dict[str, Any]:
        steps = len(self._finite) - 1
        frames = sorted({round(i * steps / min(FRAMES, steps)) for i in range(min(FRAMES, steps) + 1)})
        return {
            "frames": frames,
            "slopes": [(100 * self._slopes[i]).round().int().tolist() for i in frames],
            "dead": [dead.int().tolist() for dead in self._dead],
            "finite": self._finite,
        }


def make_task(scale: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A number to be told from standard inputs by a fixed curved function of them."""
    inputs = torch.randn(SAMPLES, INPUTS, generator=generator)
    teacher = torch.randn(INPUTS, 8, generator=generator) / math.sqrt(INPUTS)
    goals = torch.tanh(inputs @ teacher).sum(dim=1)
    return inputs, scale * goals / goals.std()


def spoil(inputs: Tensor, goals: Tensor, outlier: str) -> tuple[Tensor, Tensor]:
    if outlier == "inputs":
        return INPUTS_TIMES * inputs, goals
    return inputs, TARGETS_TIMES * goals if outlier == "targets" else goals


def look(blocks: list[Block], inputs: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Mean slope of each unit over the samples, which units are flat for all of them, and whether all is finite."""
    x, means, flat = inputs, [], []
    for block in blocks:
        with torch.no_grad():
            before = block.linear(x)
        before.requires_grad_()
        after = block.activation(before)
        slope = torch.autograd.grad(after.sum(), before)[0].abs()
        x = after.detach()
        means.append(slope.mean(dim=0))
        flat.append(slope.amax(dim=0) < FLAT)
    return torch.stack(means).clamp(0, 1).nan_to_num(0.0), torch.stack(flat), bool(x.isfinite().all())
