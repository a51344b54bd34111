"""find_lr: the rate it finds where theory knows it, on any loop, without a trace."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from torchdoctor.errors import UsageError
from torchdoctor.instruments.learning_rate.finding import Plan, find_lr, sweep_rates
from torchdoctor.instruments.learning_rate.result import LearningRates
from torchdoctor.instruments.subject import Subject

torch.manual_seed(0)
X = torch.randn(256, 6)
Y = (X[:, 0] + X[:, 1] > 0).long() + (X[:, 2] > 0.5).long()
PAIRS = TensorDataset(X, Y)


class Bowl(nn.Module):
    """Half the sum of curvature times square distance: gradient descent diverges beyond two over the largest."""

    def __init__(self, steepest: float) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.full((30,), 3.0))
        self.register_buffer("curvature", torch.logspace(-3, 0, 30) * steepest)

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * (self.curvature * (self.place - x) ** 2).sum(1).mean()


def bowl_rates(steepest: float, kind: Any = torch.optim.SGD, **options: Any) -> LearningRates:
    model = Bowl(steepest)
    optimizer = kind(model.parameters(), 1e-3)
    data = DataLoader(torch.randn(512, 30, generator=torch.Generator().manual_seed(0)), 16, shuffle=True)
    return find_lr(model, optimizer, data, step_fn=lambda m, b: m(b), **options)


def build(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def loader(batch: int = 16, **options: Any) -> DataLoader:
    return DataLoader(PAIRS, batch, **{"shuffle": True, **options})


def found(model: nn.Module | None = None, optimizer: Any = None, data: Any = None, **options: Any) -> LearningRates:
    model = model or build()
    optimizer = optimizer or torch.optim.Adam(model.parameters(), 1e-3)
    return find_lr(
        model,
        optimizer,
        loader() if data is None else data,
        nn.CrossEntropyLoss(),
        **{"seeds": 1, "steps": 40, **options},
    )


def test_a_bowl_diverges_at_two_over_its_curvature() -> None:
    result = bowl_rates(10.0)
    assert 0.2 < (result.divergence or 0) < 0.6
    assert 0.02 < (result.turn or 0) < 0.4
    assert 0.005 < (result.recommended or 0) < 0.1
    assert result.trusted


def test_rates_follow_the_scale_of_the_loss_as_the_optimizer_does() -> None:
    flat, steep = bowl_rates(1.0), bowl_rates(100.0)
    assert (flat.recommended or 0) / (steep.recommended or 1) == pytest.approx(100, rel=0.5)
    flat, steep = bowl_rates(1.0, torch.optim.Adam), bowl_rates(100.0, torch.optim.Adam)
    assert flat.recommended == pytest.approx(steep.recommended, rel=0.05)


def test_the_rate_it_recommends_trains_better_than_ten_times_less_or_thirty_times_more() -> None:
    rate = found(steps=100, seeds=3).recommended or 0

    def trained(lr: float) -> float:
        model, losses = build(), []
        optimizer = torch.optim.Adam(model.parameters(), lr)
        for _ in range(5):
            for x, y in loader(generator=torch.Generator().manual_seed(1)):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return float(np.mean(losses[-16:]))

    assert trained(rate) < min(trained(rate / 10), trained(rate * 30))


def test_nothing_is_left_behind() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
    rate = torch.tensor(1e-2)
    optimizer = torch.optim.Adam(model.parameters(), rate, foreach=False)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    generator = torch.Generator().manual_seed(5)
    data = loader(generator=generator)
    x, y = next(iter(data))
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    model[1].eval()

    def state() -> list[Any]:
        tensors = [*model.state_dict().values(), *(p.grad for p in model.parameters() if p.grad is not None), rate]
        tensors += [v for s in optimizer.state.values() for v in s.values()]
        tensors += [torch.random.get_rng_state(), generator.get_state()]
        plain = [m.training for m in model.modules()], schedule.state_dict(), scaler.state_dict(), random.getstate()
        return [[t.detach().clone() for t in tensors], plain, str(np.random.get_state())]

    before, gradients = state(), [p.grad for p in model.parameters()]
    found(model, optimizer, data, scaler=scaler, seeds=2)
    after = state()
    assert all(torch.equal(a, b) for a, b in zip(before[0], after[0], strict=True)) and before[1:] == after[1:]
    assert optimizer.param_groups[0]["lr"] is rate
    assert all(p.grad is g for p, g in zip(model.parameters(), gradients, strict=True))


def test_an_error_in_the_middle_leaves_nothing_behind_either() -> None:
    model, calls = build(), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    kept = [p.detach().clone() for p in model.parameters()]

    def step(m: nn.Module, batch: Any) -> Tensor:
        calls.append(1)
        if len(calls) > 20:
            raise RuntimeError("mine")
        return nn.functional.cross_entropy(m(batch[0]), batch[1])

    with pytest.raises(RuntimeError, match="mine"):
        find_lr(model, optimizer, loader(), step_fn=step, low=1e-3)
    assert all(torch.equal(p, k) for p, k in zip(model.parameters(), kept, strict=True))
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_what_the_loss_and_the_optimizer_hold_beside_the_model_is_put_back() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, outputs: Tensor, target: Tensor) -> Tensor:
            return nn.functional.cross_entropy(outputs * self.scale, target)

    model, loss, stray = build(), Scaled(), torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([*model.parameters(), *loss.parameters(), stray], 0.1, weight_decay=0.1)
    find_lr(model, optimizer, loader(), lambda o, t: loss(o, t) + stray.square().sum(), seeds=1, steps=20)
    find_lr(model, optimizer, loader(), loss, seeds=1, steps=20)
    assert loss.scale.item() == 1 and stray.item() == 1


def test_the_same_seeds_find_the_same() -> None:
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first, again = (found(model, optimizer, seeds=[3, 7]) for _ in range(2))
    assert first.to_dict() == again.to_dict()
    assert [s.seed for s in first.sweeps] == [3, 7]
    assert not np.array_equal(first.sweeps[0].before[:9], first.sweeps[1].before[:9])


def test_where_nothing_moves_the_twin_agrees_to_the_last_digit() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 3))
    sweep = found(model, low=1e-30, high=1e-29).sweeps[0]
    assert (sweep.changes == 0).all() and np.std(sweep.before) > 0


def test_ways_to_sweep() -> None:
    quick = found()
    assert quick.scout is not None and quick.scout.rates[0] == 1e-7 and len(quick.scout.rates) <= 20
    assert quick.sweeps[0].rates[0] > 1e-7
    whole = found(zoom=False, paired=False, diverge=None, high=1.0)
    assert whole.scout is None and whole.sweeps[0].rates == pytest.approx(np.geomspace(1e-7, 1, 40))
    assert np.ptp(whole.sweeps[0].before) == 0
    linear = found(mode="linear", low=1e-3, high=0.3)
    assert linear.sweeps[0].rates[:3] == pytest.approx(np.linspace(1e-3, 0.3, 40)[:3])
    assert linear.recommended is not None


def test_it_stops_when_the_loss_diverges() -> None:
    model = build()
    sweep = found(model, torch.optim.SGD(model.parameters(), 0.1), low=1e-2, high=1e5, zoom=False).sweeps[0]
    assert sweep.diverged and sweep.rates[-1] < 1e3
    everything = found(model, torch.optim.SGD(model.parameters(), 0.1), low=1e-2, high=1e2, diverge=None)
    assert len(everything.sweeps[0].rates) == 40


def test_groups_keep_their_ratio() -> None:
    model, seen = build(), []
    groups = [{"params": model[0].parameters(), "lr": 1e-4}, {"params": model[2].parameters(), "lr": 1e-2}]
    optimizer = torch.optim.SGD(groups)
    optimizer.register_step_pre_hook(lambda o, *_: seen.append([g["lr"] for g in o.param_groups]))
    result = found(model, optimizer)
    assert np.divide(*np.array(seen).T) == pytest.approx([0.01] * len(seen))
    assert max(r for _, r in seen) <= 10.0
    assert result.group_rates == pytest.approx([0.01 * (result.recommended or 0), result.recommended])
    result.apply(optimizer)
    assert [g["lr"] for g in optimizer.param_groups] == result.group_rates
    assert "parameter groups:" in str(result)


def test_a_scheduler_does_not_interfere() -> None:
    model = build()
    plain = found(model, torch.optim.SGD(model.parameters(), 0.1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 100)
    assert optimizer.param_groups[0]["lr"] == 0
    result = found(model, optimizer)
    assert result.recommended == plain.recommended
    assert optimizer.param_groups[0]["lr"] == 0 and schedule.last_epoch == 0
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        schedule.step()
    with pytest.raises(UsageError, match="a scheduler is attached"):
        result.apply(optimizer)


def test_a_scheduler_that_a_hook_steps_is_put_back_where_it_is_named() -> None:
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.register_step_post_hook(lambda *_: schedule.step())
    result = found(model, optimizer, restore=[schedule])
    assert result.recommended is not None and schedule.last_epoch == 0
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_accumulated_batches_count_as_one() -> None:
    model = build()
    few, whole = (
        found(model, torch.optim.SGD(model.parameters(), 0.1), loader(16 * n, shuffle=False), accumulate=4 // n)
        for n in (1, 4)
    )
    assert few.sweeps[0].losses == pytest.approx(whole.sweeps[0].losses, rel=1e-4)


def test_mixed_precision_and_clipping() -> None:
    result = found(autocast=torch.bfloat16, max_norm=1.0, seeds=2)
    assert result.recommended is not None
    model = build()
    clipped = found(model, torch.optim.SGD(model.parameters(), 0.1), max_norm=1e-9)
    assert clipped.recommended is None and clipped.doubts[0].name == "flat"


def test_a_scaler_that_has_to_find_its_scale_first() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
    result = found(scaler=scaler, steps=100)
    assert result.recommended is not None and scaler.get_scale() == 2.0**126


def test_closures() -> None:
    model = build()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=3)
    result = found(model, optimizer, loader(128), low=1e-4, steps=25)
    assert result.recommended is not None and not optimizer.state
    with pytest.raises(UsageError, match="takes a closure, which a GradScaler"):
        found(model, optimizer, scaler=torch.amp.GradScaler("cpu"))


def test_a_validation_set_in_place_of_the_training_loss() -> None:
    held = DataLoader(PAIRS, 64)
    result = found(validation=held)
    assert np.ptp(result.sweeps[0].before) == 0 and result.recommended is not None
    model = build()
    assert result.sweeps[0].start == pytest.approx(nn.functional.cross_entropy(model(X), Y).item(), rel=1e-5)


def test_batches_by_name_and_models_with_a_loss_of_their_own() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = build()

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"loss": nn.functional.cross_entropy(self.inner(x), labels)}

    model = Own()
    batches = [{"x": X[i : i + 16], "labels": Y[i : i + 16]} for i in range(0, 256, 16)]
    subject, optimizer = Subject(model), torch.optim.Adam(model.parameters())
    result = sweep_rates(subject, optimizer, batches, Plan(seeds=(0,), steps=40))
    assert result.recommended is not None


def test_a_model_that_raises_on_nan_has_diverged() -> None:
    model = build()

    def step(m: nn.Module, batch: Any) -> Tensor:
        return -torch.distributions.Categorical(logits=m(batch[0])).log_prob(batch[1]).mean()

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    result = find_lr(model, optimizer, loader(), step_fn=step, low=1, high=1e38, steps=20, seeds=1, diverge=None)
    assert result.sweeps[0].diverged


def test_a_model_that_cannot_learn_gets_no_rate() -> None:
    model = build()
    other = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([*model.parameters(), other], 0.1)
    for parameter in model.parameters():
        parameter.register_hook(torch.zeros_like)
    result = found(model, optimizer)
    assert result.recommended is None and not result.trusted
    assert "No learning rate to recommend" in str(result) and "the loss never fell" in str(result)
    assert "No learning rate" in result.plot().layout.title.text
    with pytest.raises(UsageError, match="no learning rate to set"):
        result.apply(optimizer)


def test_a_range_that_ends_too_early_is_said() -> None:
    result = found(high=1e-2, steps=100, seeds=3)
    assert result.turn is None and result.recommended == result.valley
    text = str(result)
    assert "highest rate tried    0.01" in text and "raise high=" in text and "lose again" not in text
    assert result.plot() is not None


@pytest.mark.parametrize("options", [{}, {"validation": DataLoader(PAIRS, 64)}])
def test_a_range_in_which_nothing_moves_is_said(options: dict[str, Any]) -> None:
    result = found(high=1e-6, steps=100, seeds=3, **options)
    assert result.recommended is None and [d.name for d in result.doubts] == ["unmoved"]
    assert "nothing moved in this range: up to the highest rate, 1e-06" in str(result) and "fell from" not in str(
        result
    )
    assert "in this range" in result.plot().layout.title.text


def test_sorted_data_is_warned_of() -> None:
    order = Y.argsort()
    result = found(data=DataLoader(TensorDataset(X[order], Y[order]), 16), seeds=2)
    assert {"biased-batches", "same-order"} <= {d.name for d in result.doubts}
    assert "but with doubts" in str(result) and "shuffle=True" in str(result)


def test_the_epoch_of_a_distributed_sampler_is_put_back() -> None:
    sampler = DistributedSampler(PAIRS, num_replicas=2, rank=0)
    sampler.set_epoch(4)
    result = found(data=DataLoader(PAIRS, 16, sampler=sampler), seeds=2)
    assert sampler.epoch == 4
    assert not np.array_equal(result.sweeps[0].before[:5], result.sweeps[1].before[:5])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"low": 1.0, "high": 0.1}, "from low up to high"),
        ({"low": 0.0}, "both above zero"),
        ({"steps": 3}, "needs 10 losses"),
        ({"seeds": 0}, "seeds is empty"),
        ({"mode": "cubic"}, "'exponential' or 'linear'"),
        ({"smoothing": 1.0}, "smoothing=1.0"),
        ({"diverge": -1.0}, "None to sweep to the end"),
        ({"accumulate": 0}, "one batch at least"),
        ({"max_norm": 0.0}, "cuts everything"),
        ({"scaler": "float16"}, "scaler is a str"),
        ({"data": iter([1])}, "is an iterator"),
        ({"data": DataLoader(PAIRS, 1000, drop_last=True)}, "gives no batch"),
        ({"data": [{"a": X, "b": Y}]}, "none of these is known"),
        ({"data": [(X * math.nan, Y)]}, "no rate can mend"),
        ({"optimizer": "SGD"}, "optimizer is a str"),
        ({"optimizer": torch.optim.SGD(build().parameters(), 0.1)}, "built for another model"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        found(**options)


def test_a_loss_has_to_be_one_number() -> None:
    model = build()
    with pytest.raises(UsageError, match=r"shape \(16,\)"):
        find_lr(model, torch.optim.SGD(model.parameters(), 0.1), loader(), nn.CrossEntropyLoss(reduction="none"))


def test_what_is_shown() -> None:
    result = found(seeds=3, steps=100)
    text = str(result)
    assert text.startswith(f"Set the learning rate to {result.recommended:.2g} (Adam).")
    assert all(word in text for word in ("steepest descent", "tenth of divergence", "valley", "3 exponential sweeps"))
    chart = result.plot()
    assert f"Set {result.recommended:.2g}" in chart.layout.title.text and chart.layout.xaxis.type == "log"
    assert {"batches", "band of the seeds", "smoothed", "quick sweep"} <= {t.name for t in chart.data}
    shown = [result._repr_html_() for _ in range(2)]
    assert all("<pre>" in page and "plotly.js v" in page and "Plotly.newPlot" in page for page in shown)
    kept = json.loads(json.dumps(result.to_dict()))
    assert kept["recommended"] == result.recommended and len(kept["sweeps"]) == 3


def test_a_loss_that_hardly_falls_gives_a_tenth_of_its_divergence_with_a_doubt() -> None:
    """At its best already: every batch pulls elsewhere."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    batches = [(torch.randn(16, 8), torch.randn(16, 1)) for _ in range(200)]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    result = find_lr(model, optimizer, batches, nn.MSELoss(), progress=False)
    assert result.doubts[-1].name == "flat" and result.divergence is not None
    assert result.recommended == result.tenth == pytest.approx(result.divergence / 10)
    assert "hardly fell" in str(result)
    assert result.plot().layout.title.text.replace("<br>", " ") == (
        f"About {result.recommended:.2g}, with doubts: every sweep saw the same batches in the same order, so the band "
        "of the seeds says nothing"
    )
