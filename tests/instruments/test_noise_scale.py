"""Noise scales that are known: per-sample gradients of a chosen mean and variance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torchdoctor
from torchdoctor.errors import UsageError
from torchdoctor.instruments.noise_scale import NoiseScale, ratio_interval, separate

WIDTH = 20


def linear_loss(output: torch.Tensor, _target: torch.Tensor) -> torch.Tensor:
    """The gradient of a bias-free linear layer is then the mean of the inputs."""
    return output.mean()


def loader_of(mean: float, count: int = 4000, batch: int = 20, shuffle: bool = True) -> DataLoader:
    torch.manual_seed(0)
    x = torch.randn(count, WIDTH) + mean
    return DataLoader(TensorDataset(x, torch.zeros(count)), batch, shuffle=shuffle)


@pytest.mark.parametrize("mean", [0.1, 0.3])
def test_the_scale_of_known_gradients(mean: float) -> None:
    """tr(Sigma) = WIDTH, |G|^2 = WIDTH * mean^2, so the scale is 1 / mean^2."""
    found = torchdoctor.gradient_noise_scale(nn.Linear(WIDTH, 1, bias=False), loader_of(mean), linear_loss, repeats=20)
    assert found.scale == pytest.approx(1 / mean**2, rel=0.3)
    assert found.low < 1 / mean**2 < found.high
    assert found.noise == pytest.approx(WIDTH, rel=0.1)
    assert (found.batch, found.large, len(found.signals)) == (20, 200, 20)
    assert found.reading == {0.1: "small", 0.3: "near"}[mean]
    assert f"batch of {found.batch}" in str(found)


def test_estimators_have_no_bias_and_the_interval_covers() -> None:
    generator, mean, batch, large, covered, ratios = np.random.default_rng(0), 0.2, 8, 10, 0, []
    for _ in range(200):
        g = generator.normal(mean, 1 / math.sqrt(batch), (10, large, WIDTH))
        small, big = np.square(g).sum(2).mean(1), np.square(g.mean(1)).sum(1)
        signals, noises = separate(small, big, batch, batch * large)
        ratios.append((signals.mean(), noises.mean()))
        _, low, high = ratio_interval(noises, signals, 0.95)
        covered += low <= 1 / mean**2 <= high
    signal, noise = np.mean(ratios, axis=0)
    assert (signal, noise) == pytest.approx((WIDTH * mean**2, WIDTH), rel=0.03)
    assert 180 <= covered <= 199


def test_large_batches_are_told() -> None:
    found = torchdoctor.gradient_noise_scale(nn.Linear(WIDTH, 1, bias=False), loader_of(1.0, batch=50), linear_loss)
    assert found.reading == "large" and "well above" in str(found)
    assert "At a batch of 50" in found.plot().layout.title.text


def noise_scale(scale: float, low: float, high: float, batch: int = 50) -> NoiseScale:
    repeats = np.ones(10)
    return NoiseScale(scale, low, high, 0.95, batch, 10 * batch, 1.0, scale, repeats, repeats * scale)


def test_what_a_smaller_batch_costs_and_saves() -> None:
    """At the noise scale a step makes half of the progress there is: steps go with 1 + S / B, samples with B + S."""
    found = str(noise_scale(4.2, 3.0, 6.0))
    assert found.startswith("Gradient noise scale: about 4.2 samples (95% sure: 3 to 6).")
    assert "A batch of 4 would take 1.9 times the steps and 15% of the samples." in found
    assert "A batch of 1 would take 1.1 times the steps" in str(noise_scale(0.1, 0.05, 0.2))
    assert "A batch of" not in str(noise_scale(0.1, 0.05, 0.2, batch=1))


def test_what_cannot_be_told_is_not_called_infinite() -> None:
    nothing = str(noise_scale(math.inf, 0.0, math.inf))
    assert nothing.startswith("Gradient noise scale: it cannot be told from 100 batches of 50;")
    assert str(noise_scale(30.0, 0.0, math.inf)).startswith("Gradient noise scale: it cannot be told")
    least = str(noise_scale(math.inf, 4737.0, math.inf))
    assert least.startswith("Gradient noise scale: 4,737 samples or more (95% sure)")
    assert "about 895 samples (95% sure: 134 or more)." in str(noise_scale(895.0, 134.0, math.inf, batch=5))
    for text in (nothing, least):
        assert "infinitely" not in text and "progress of a step" not in text


def test_pure_noise_has_no_upper_end() -> None:
    found = torchdoctor.gradient_noise_scale(nn.Linear(WIDTH, 1, bias=False), loader_of(0.0), linear_loss)
    assert math.isinf(found.high) and found.reading in ("small", "unclear")
    assert found.to_dict()["high"] is None
    assert "noise" in found.plot().layout.title.text and str(found)


def test_short_loaders_are_divided_and_odd_batches_left_out() -> None:
    found = torchdoctor.gradient_noise_scale(
        nn.Linear(WIDTH, 1, bias=False), loader_of(0.3, count=170, batch=20, shuffle=False), linear_loss
    )
    assert len(found.signals) == 4 and found.large == 40
    assert any("does not shuffle" in note for note in found.notes)


def test_a_stream_without_length_is_divided_as_well() -> None:
    class Stream:
        def __iter__(self):  # type: ignore[no-untyped-def]
            return iter(loader_of(0.3, count=170, batch=20, shuffle=False))

    known, streamed = (
        torchdoctor.gradient_noise_scale(nn.Linear(WIDTH, 1, bias=False), data, linear_loss)
        for data in (loader_of(0.3, count=170, batch=20, shuffle=False), Stream())
    )
    assert streamed.large == known.large and streamed.signals == pytest.approx(known.signals)


def test_nothing_is_left_behind() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2)).eval()
    loader = DataLoader(
        TensorDataset(torch.randn(200, WIDTH), torch.randint(0, 2, (200,))),
        10,
        shuffle=True,
        generator=torch.Generator().manual_seed(1),
    )
    before, drawn, own = (
        {k: v.clone() for k, v in model.state_dict().items()},
        torch.random.get_rng_state(),
        loader.generator.get_state(),
    )
    found = torchdoctor.gradient_noise_scale(model, loader, nn.CrossEntropyLoss(), progress=False)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not model.training and all(p.grad is None for p in model.parameters())
    assert torch.equal(drawn, torch.random.get_rng_state()) and torch.equal(own, loader.generator.get_state())
    assert any("batch norm" in note for note in found.notes)


def test_batches_of_other_kinds() -> None:
    torch.manual_seed(0)
    batches = [{"x": torch.randn(8, 4), "labels": torch.randint(0, 2, (8,))} for _ in range(12)]
    model = nn.Linear(4, 2)
    by_key = torchdoctor.gradient_noise_scale(model, batches, nn.CrossEntropyLoss())
    by_step = torchdoctor.gradient_noise_scale(
        model, batches, step_fn=lambda m, b: nn.functional.cross_entropy(m(b["x"]), b["labels"])
    )
    assert by_key.scale == by_step.scale and by_key.batch == 8


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda m: torchdoctor.gradient_noise_scale(m, [], linear_loss), "gives 0 batches"),
        (lambda m: torchdoctor.gradient_noise_scale(m, loader_of(1, 40), linear_loss), "gives 2 batches"),
        (lambda m: torchdoctor.gradient_noise_scale(m, loader_of(1), lambda o, t: o), "one number"),
        (lambda m: torchdoctor.gradient_noise_scale(m, loader_of(1), linear_loss, repeats=1), "3 repeats"),
        (lambda m: torchdoctor.gradient_noise_scale(m, loader_of(1), linear_loss, confidence=95), "between 0 and 1"),
        (
            lambda m: torchdoctor.gradient_noise_scale(m.requires_grad_(False), loader_of(1), linear_loss),
            "no trainable",
        ),
        (lambda m: torchdoctor.gradient_noise_scale(m, loader_of(math.nan), linear_loss), "NaN or Inf"),
    ],
)
def test_what_cannot_be_is_said(call, said: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=said):
        call(nn.Linear(WIDTH, 1, bias=False))
