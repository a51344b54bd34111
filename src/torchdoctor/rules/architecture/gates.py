"""How far the sums spread that go into the gates of an LSTM or GRU, by the size of its weights and inputs.

From the first look, so before training: gates that are pinned there are open or shut whatever comes in, and a gradient
that is large all the same is large by the same weights.
"""

from __future__ import annotations

import math

import numpy as np

from torchdoctor.facts import TRAIN, InputsFact
from torchdoctor.rules.loss_curve import loss_curve
from torchdoctor.run import Run
from torchdoctor.signals import ACTIVATION, WEIGHT_L2

GATED = ("LSTM", "GRU")
LITTLE = 0.2
"""Share of the first loss that is gone."""
PINNED = 6.8
"""Spread of a gate's sums at which half of them are beyond 4.6, where a sigmoid is within 1 % of its limit."""


def pinned(run: Run) -> tuple[str, float] | None:
    """The gated layer whose sums spread farthest at the first look, where that is too far."""
    weights, out = run.matrix(WEIGHT_L2).first(1), run.matrix(ACTIVATION["std"]).first(1)
    if not len(weights) or not len(out):
        return None
    found: list[tuple[str, float]] = []
    for module in (m for m in run.modules.values() if m.type in GATED and m.name in out.columns):
        below, itself = (f"{module.name}.weight_{kind}_l0" for kind in ("ih", "hh"))
        if below not in weights.columns or itself not in weights.columns or below not in run.parameters:
            continue
        sums = [
            float(weights.column(name).values[0]) / math.sqrt(run.parameters[name].shape[0]) * size
            for name, size in (
                (below, _input_size(run, run.parameters[below].shape[1])),
                (itself, float(out.column(module.name).values[0])),
            )
        ]
        found.append((module.name, math.hypot(*sums)))
    worst = max(found, key=lambda pair: pair[1], default=None)
    return worst if worst is not None and worst[1] >= PINNED else None


def hold_back(run: Run) -> tuple[str, float] | None:
    """Pinned gates in a run that learned little: gates that are pinned and learn all the same are no fault."""
    loss = loss_curve(run)
    return pinned(run) if loss is not None and len(loss.curve) and loss.fell < LITTLE else None


def _input_size(run: Run, width: int) -> float:
    """Root mean square of the inputs that have this width; one for what comes from other layers."""
    looks = [f for f in run.facts(InputsFact) if f.role == "input" and f.phase == TRAIN and f.std is not None]
    sizes = [math.hypot(f.mean or 0.0, f.std or 0.0) for f in looks if f.shape[-1] == width]
    return float(np.median(sizes)) if sizes else 1.0
