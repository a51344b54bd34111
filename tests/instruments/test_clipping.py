"""Thresholds for norms that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from torchdoctor.errors import UsageError
from torchdoctor.instruments.clipping import advise


def advice(norms: np.ndarray, **options: object):  # type: ignore[no-untyped-def]
    return advise(np.asarray(norms, np.float64), np.zeros(len(norms)), **options)  # type: ignore[arg-type]


def test_the_95th_percentile_and_what_a_threshold_does() -> None:
    norms = np.random.default_rng(0).permutation(np.linspace(1, 2, 1000))
    found = advice(norms, in_use=1.5)
    assert found.trend == "steady" and found.recommended == pytest.approx(1.95, abs=0.06)
    row = next(t for t in found.table if t.value == 1.5)
    assert row.acts == pytest.approx(0.5, abs=0.03)
    assert row.keeps == pytest.approx(1.5 / 1.75, abs=0.01)
    assert not found.needed and "hardly needed" in str(found) and "1.5 (in use)" in str(found)


def test_spikes_do_not_set_the_threshold() -> None:
    generator = np.random.default_rng(0)
    norms = generator.uniform(0.9, 1.1, 400)
    norms[generator.choice(400, 40, replace=False)] = 100.0
    found = advice(norms)
    assert found.needed and found.recommended == pytest.approx(5.0, rel=0.1)
    assert any("Spikes dominate" in w for w in found.warnings)
    assert "gradient norms exceed" in found.plot().layout.title.text


def test_norms_that_move_are_told() -> None:
    noise = np.random.default_rng(0).uniform(0.9, 1.1, 200)
    falling, rising = advice(np.geomspace(100, 1, 200) * noise), advice(np.geomspace(1, 100, 200) * noise)
    assert falling.trend == "falling" and falling.recommended < 20
    assert rising.trend == "rising" and any("grow" in w for w in rising.warnings)
    assert str(rising).startswith("The norms grow") and "hardly needed" not in str(rising)


def test_the_picture_says_what_the_text_says() -> None:
    noise = np.random.default_rng(0).uniform(0.9, 1.1, 200)
    found = advice(np.geomspace(100, 1, 200) * noise)
    share = found.plot().layout.title.text.split()[0]
    assert f"it cuts {share} of the steps" in str(found) or f"would cut {share} of the steps" in str(found)


def test_steps_without_any_gradient_are_told() -> None:
    found = advice([0.0, 0.0, 3.0, 0.0] * 20)
    assert found.median == 0 and "no gradient at all" in str(found)
    assert found.plot() is not None


def test_it_ends_where_the_gradient_breaks() -> None:
    found = advice([*([1.0, 1.1, 0.9] * 10), math.inf])
    assert found.broke_at == 30 and found.needed and "at step 30" in str(found)
    assert len(found.losses) == len(found.norms) == 30


def batches(count: int = 64) -> DataLoader:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(count, 5), torch.randint(0, 3, (count,)))
    return DataLoader(data, 8, shuffle=True, generator=torch.Generator().manual_seed(0))


def test_norms_are_those_of_an_unclipped_training() -> None:
    model = nn.Linear(5, 3)
    optimizer, loader = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), batches()
    found = torchdoctor.suggest_clipping(model, optimizer, loader, nn.CrossEntropyLoss(), steps=30)
    expected = []
    while len(expected) < 30:
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            expected.append(float(nn.utils.clip_grad_norm_(model.parameters(), math.inf)))
            optimizer.step()
    assert found.norms == pytest.approx(expected[:30], rel=1e-5)
    assert not found.adaptive and len(found.losses) == 30


@pytest.mark.parametrize("scale", [4.0, 2.0**126])
def test_norms_under_a_scaler_are_those_of_the_gradient(scale: float) -> None:
    model, scaler = nn.Linear(5, 3), torch.amp.GradScaler("cpu", init_scale=scale)
    stray = nn.Linear(5, 3)

    def both(m: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(m[0](batch[0]), batch[1]) + 0 * m[1](batch[0]).sum()

    optimizer, whole = torch.optim.SGD(model.parameters(), 0.0), nn.ModuleList([model, stray])
    data = [next(iter(batches()))]
    plain, scaled = (
        torchdoctor.suggest_clipping(whole, optimizer, data, step_fn=both, steps=20, scaler=s, progress=False)
        for s in (None, scaler)
    )
    assert scaled.norms == pytest.approx(plain.norms, rel=1e-5) and scaled.broke_at is None
    assert len(scaled.norms) == 20 and scaler.get_scale() == scale


class Tiny(torch.autograd.Function):
    """Passes a gradient on in half precision, as fp16 layers do: small ones are lost."""

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return gradient.half().float()


def test_what_underflows_without_a_scaler_is_seen_with_it() -> None:
    model, data = nn.Linear(5, 3), batches()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)

    def loss(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return 1e-9 * nn.functional.cross_entropy(Tiny.apply(outputs * 1.0) * 1.0, target)

    with pytest.raises(UsageError, match="all zero"):
        torchdoctor.suggest_clipping(model, optimizer, data, loss, steps=20, progress=False)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    found = torchdoctor.suggest_clipping(model, optimizer, data, loss, steps=20, scaler=scaler, progress=False)
    assert 1e-11 < found.median < 1e-8


def test_a_gradient_that_no_scale_mends_ends_it() -> None:
    model, calls = nn.Linear(5, 3), []
    optimizer = torch.optim.SGD(model.parameters(), 0.0)

    def loss(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        value = nn.functional.cross_entropy(outputs, target)
        if len(calls) > 25:
            outputs.register_hook(lambda gradient: gradient * math.inf)
        return value

    scaler = torch.amp.GradScaler("cpu")
    found = torchdoctor.suggest_clipping(model, optimizer, batches(), loss, steps=60, scaler=scaler, progress=False)
    assert found.broke_at == 25 and len(found.norms) == len(found.losses) == 25 and len(calls) < 60
    scaler.unscale_(optimizer)


def test_accumulated_batches_are_one_step() -> None:
    model, (x, y) = nn.Linear(5, 3), next(iter(batches()))
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    found = torchdoctor.suggest_clipping(
        model, optimizer, [(x[:4], y[:4]), (x[4:], y[4:])], nn.CrossEntropyLoss(), steps=3, accumulate=2
    )
    nn.functional.cross_entropy(model(x), y).backward()
    assert found.norms[0] == pytest.approx(float(nn.utils.clip_grad_norm_(model.parameters(), 1e9)), rel=1e-5)


def test_nothing_is_left_behind() -> None:
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3)).eval()
    optimizer, loader = torch.optim.Adam(model.parameters(), 0.1), batches()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    drawn, own = torch.random.get_rng_state(), loader.generator.get_state()
    found = torchdoctor.suggest_clipping(model, optimizer, loader, nn.CrossEntropyLoss(), steps=25)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not optimizer.state and not model.training and all(p.grad is None for p in model.parameters())
    assert torch.equal(drawn, torch.random.get_rng_state()) and torch.equal(own, loader.generator.get_state())
    assert found.adaptive and "only matters for spikes" in str(found)


def test_a_search_that_calls_back() -> None:
    model = nn.Linear(5, 3)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    found = torchdoctor.suggest_clipping(model, optimizer, batches(), nn.CrossEntropyLoss(), steps=4)
    assert len(found.norms) == 4 and any("Only 4 norms" in w for w in found.warnings)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"loader": []}, "gives no batch"),
        ({"loss_fn": nn.CrossEntropyLoss(reduction="none")}, "one number"),
        ({"optimizer": "adam"}, "not a torch"),
        ({"steps": 1}, "at least two steps"),
        ({"scaler": "float16"}, "scaler is a str"),
        ({"max_norm": 0.0}, "above 0"),
        ({"loader": [{"a": torch.ones(2, 5), "b": torch.ones(2)}]}, "none of these is known"),
        ({"loss_fn": lambda o, t: o.sum() * math.nan}, "NaN or Inf from the first step"),
        ({"loss_fn": lambda o, t: o.detach().sum()}, "no trainable"),
    ],
)
def test_what_cannot_be_is_said(change: dict[str, object], said: str) -> None:
    model = nn.Linear(5, 3)
    given = {
        "optimizer": torch.optim.SGD(model.parameters(), 0.1),
        "loader": batches(),
        "loss_fn": nn.CrossEntropyLoss(),
    }
    with pytest.raises(UsageError, match=said):
        torchdoctor.suggest_clipping(model, **(given | change))  # type: ignore[arg-type]
