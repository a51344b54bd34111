"""Many rates at once descend as torch's own optimizers do, one by one."""

from __future__ import annotations

import pytest
import torch

from torchdoctor.lab.computing.descents import descend
from torchdoctor.lab.computing.learning_rates import compute, factor
from torchdoctor.lab.computing.optimizers import make_optimizer
from torchdoctor.lab.computing.tasks import Surface

RATES = (1e-3, 2e-2, 3e-2)
STEPS = 25


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw", "rmsprop"])
def test_rows_go_where_torch_goes(name: str) -> None:
    ground = Surface("rosenbrock", 3.0)
    ends: list[torch.Tensor] = []
    rates = torch.tensor(RATES, dtype=torch.float64)[:, None].expand(-1, STEPS)
    descend(
        name,
        ground.start,
        rates,
        ground.loss,
        lambda _: None,
        lambda step, p: ends.append(p[0].clone()) if step == STEPS else None,
    )
    for rate, end in zip(RATES, ends[0], strict=True):
        point = ground.start[0].clone().requires_grad_()
        optimizer = make_optimizer(name, [point], rate, 0.01 if name == "adamw" else 0.0)
        for _ in range(STEPS):
            optimizer.zero_grad()
            ground.loss([point]).backward()
            optimizer.step()
        torch.testing.assert_close(end, point.detach())


def test_the_edge_of_stability_is_where_descent_begins_to_diverge() -> None:
    edge = 2 / Surface("valley", 30.0).sharpness()
    assert edge == pytest.approx(2 / 30)
    chosen = {"task": "valley", "optimizer": "sgd", "schedule": "constant", "batch": "0", "steps": 200, "seed": 0}
    narrow = torch.tensor(30.0).log10().item()
    below, above = (
        compute(rate=torch.tensor(edge * by).log10().item(), narrow=narrow, **chosen)["final"]["chosen"]
        for by in (0.97, 1.03)
    )
    assert below < 0.1 < 1e3 < above


@pytest.mark.parametrize("schedule", ["constant", "step", "cosine", "warmup-cosine", "one-cycle"])
@pytest.mark.parametrize("steps", [20, 300])
def test_schedules_are_shares_of_the_highest_rate(schedule: str, steps: int) -> None:
    shares = factor(schedule, steps)
    assert len(shares) == steps and shares.max() == pytest.approx(1.0, abs=0.02) and shares.min() >= 0
    assert (shares[0] < 0.6) == (schedule in ("warmup-cosine", "one-cycle"))
    assert (shares[-1] < 0.2) == (schedule != "constant")
