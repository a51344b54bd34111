"""One task descended at many rates at once: the chosen one, a third and three times of it, a sweep, and what a warm-up
or a decay would have changed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR, StepLR

from torchdoctor.instruments.learning_rate.schedules import one_cycle, preview, warmup_cosine
from torchdoctor.lab.computing.descents import descend
from torchdoctor.lab.computing.tasks import WINDOWS, Network, Surface, Task

SWEEP = [-4 + i / 4 for i in range(21)]
"""Powers of ten, over all rates that can be chosen."""
WARMUP = 0.1
FRAMES, PLACES = 80, 45
"""At most so many frames; and places on a side of the map."""
SMALLEST = 1e-300
"""Of a move that counts as one."""
MARGIN = 0.25
"""Around the path, of its own extent: the map of a network shows that much more."""


def compute(
    task: str, optimizer: str, schedule: str, rate: float, batch: str, narrow: float, steps: int, seed: int
) -> dict[str, Any]:
    """`rate` and `narrow` are powers of ten; `batch` is 0 for all samples."""
    generator = torch.Generator().manual_seed(seed)
    ground: Task = Network(10**narrow, int(batch), generator) if task == "network" else Surface(task, 10**narrow)
    factors, chosen = factor(schedule, steps), 10**rate
    shapes = [
        *(chosen / 3 * factors, chosen * factors, 3 * chosen * factors),
        chosen * torch.minimum(factors, factor("warmup-cosine", steps, decays=False)),
        chosen * torch.minimum(factors, factor("cosine", steps)),
        *(10**power * factors for power in SWEEP),
    ]
    rates = torch.stack(shapes).to(ground.start[0].dtype)
    path: list[Tensor] = []
    ends: list[Tensor] = []

    def watch(step: int, parameters: Sequence[Tensor]) -> None:
        path.append(torch.cat([p[1].flatten() for p in parameters]))
        if step == steps:
            ends.append(ground.loss(parameters).detach())

    def noise(_: int) -> Sequence[Tensor] | None:
        return ground.noise(len(rates), int(batch), generator)

    losses_RS = descend(optimizer, ground.start, rates, ground.loss, noise, watch)
    final = ends[0].tolist()
    path_SP = torch.stack(path)
    every = max(1, math.ceil(steps / FRAMES))
    frames = sorted({*range(0, steps + 1, every), steps})
    return {
        "start": ground.loss([p[None] for p in ground.start]).item(),
        "rates": rates[1].tolist(),
        "losses": losses_RS[:3].tolist(),
        "final": dict(zip(("third", "chosen", "triple", "warmup", "cosine"), final, strict=False)),
        "sweep": {"powers": SWEEP, "final": final[5:]},
        "sharpness": ground.sharpness(),
        "turns": turning(path_SP),
        "frames": frames,
        "map": survey(ground, path_SP, task),
    }


def factor(schedule: str, steps: int, decays: bool = True) -> Tensor:
    """The rate of each step over the highest one, by torchdoctor's own preview of the schedule."""
    makers: dict[str, Callable[[Optimizer], Any]] = {
        "constant": lambda o: LambdaLR(o, lambda _: 1.0),
        "step": lambda o: StepLR(o, max(1, steps // 3), 0.1),
        "cosine": lambda o: warmup_cosine(o, steps, warmup=0),
        "warmup-cosine": lambda o: warmup_cosine(o, steps, warmup=WARMUP, end=0.0 if decays else 1.0),
        "one-cycle": lambda o: one_cycle(o, steps),
    }
    plain = SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    return torch.tensor(preview(makers[schedule], steps, optimizer=plain).rates[0], dtype=torch.float64)


def turning(path_SP: Tensor) -> float:
    """The mean cosine between successive moves in the last half: -1 where each takes back the one before."""
    moves = path_SP.double().diff(dim=0)
    moves = moves[len(moves) // 2 :]
    if len(moves) < 2 or not moves.isfinite().all():
        return math.nan
    longest = moves.abs().amax(dim=1, keepdim=True).clamp_min(SMALLEST)  # squares of what is tiny would be zero
    return torch.nn.functional.cosine_similarity((moves / longest)[1:], (moves / longest)[:-1], dim=1).mean().item()


def survey(ground: Task, path_SP: Tensor, task: str) -> dict[str, Any] | None:
    """The loss around the path, and the path on it; of a network the plane in which its path lies for the most part."""
    if isinstance(ground, Surface):
        low_x, high_x, low_y, high_y = WINDOWS[task]
        xs, ys = torch.linspace(low_x, high_x, PLACES), torch.linspace(low_y, high_y, PLACES)
        grid = torch.stack(torch.meshgrid(xs, ys, indexing="xy"), dim=-1).double()
        return {"x": xs.tolist(), "y": ys.tolist(), "loss": ground.loss([grid]).tolist(), "path": path_SP.tolist()}
    known = path_SP[path_SP.isfinite().all(dim=1)]
    spread = known - known[-1]
    if len(known) < 3 or not spread.any() or spread.abs().max() > 1e6:
        return None
    axes = torch.linalg.svd(spread, full_matrices=False).Vh[:2]
    flat = spread @ axes.T
    share = float(flat.square().sum() / spread.square().sum())
    (low_x, low_y), (high_x, high_y) = (flat.min(dim=0).values.tolist(), flat.max(dim=0).values.tolist())
    room = MARGIN * max(high_x - low_x, high_y - low_y)
    xs, ys = (torch.linspace(a - room, b + room, PLACES) for a, b in ((low_x, high_x), (low_y, high_y)))
    places = torch.stack(torch.meshgrid(xs, ys, indexing="xy"), dim=-1).view(-1, 2) @ axes + known[-1]
    sizes = [p.numel() for p in ground.start]
    rows = [part.view(-1, *p.shape) for part, p in zip(places.split(sizes, dim=1), ground.start, strict=True)]
    found = {"x": xs.tolist(), "y": ys.tolist(), "loss": ground.loss(rows).view(PLACES, PLACES).tolist()}
    return found | {"path": flat.tolist(), "share": share}
