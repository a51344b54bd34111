"""The weights of a small network at looks during its training: their spread, as torchdoctor measures and names it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from torchdoctor.instruments.one_look.histograms import KINDS
from torchdoctor.instruments.one_look.weights import LayerWeights, weight_distribution
from torchdoctor.lab.computing.networks import initialise, make_data
from torchdoctor.lab.computing.optimizers import make_optimizer
from torchdoctor.lab.computing.record import Record
from torchdoctor.stats import histograms

SAMPLES, BATCH, INPUTS, CLASSES = 512, 64, 32, 8
LOOKS = 30
LIMIT, HEAPS = 0.05, 0.1
"""Where weights are clamped, and where those of two heaps are pulled: inside and outside of their usual size."""
PULL = 0.1
"""Of the way to its heap that a weight goes at each step."""
SWELL = 0.02
"""By which a decay of the wrong sign lengthens the weights at each step."""
ODD_AT, ODD = 1 / 3, 1e5
"""When, as a share of the steps, one value of one sample is broken, and what stands there then."""
NAMES = ("first", "second", "head")


def compute(
    init: str, optimizer: str, rate: float, decay: str, l1: str, hold: str, odd: bool, width: int, steps: int, seed: int
) -> dict[str, Any]:
    """`rate` is a power of ten; `decay` and `l1` are numbers in words, as zero is among them."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = build(init, width)
    inputs, goals = make_data(SAMPLES, INPUTS, CLASSES, generator)
    chosen = make_optimizer(optimizer, model.parameters(), 10**rate, float(decay))
    record = Record(model, chosen)
    looks = {round(i * steps / min(LOOKS, steps)) for i in range(min(LOOKS, steps) + 1)} if steps else {0}
    seen: list[list[dict[str, Any]]] = []
    counts: list[list[list[int]]] = []
    for step in range(steps + 1):
        if step in looks:
            seen.append([describe(layer, w) for layer, w in zip(shapes_of(model), record.weights, strict=True)])
            counts.append(histograms(record.weights).int().tolist())
        x, y = inputs, goals
        if step < steps:
            at = torch.randint(SAMPLES, (BATCH,), generator=generator)
            x, y = inputs[at], goals[at]
        if odd and step == int(ODD_AT * steps):
            x = x.clone()
            x[0, 0] = ODD
        chosen.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if step in looks:
            record.begin(step)
        if step < steps:
            record.losses.append(loss.item())
            chosen.step()
            constrain(record.weights, hold, float(l1) * 10**rate)
        if step in looks:
            record.end()
    if not steps:
        record.losses.append(loss.item())
    texts = {name: kind.text for name, kind in KINDS.items()}
    abnormal = [name for name, kind in KINDS.items() if kind.abnormal]
    told = {"record": record.to_json(), "layers": list(NAMES), "looks": sorted(looks), "seen": seen, "counts": counts}
    return told | {"texts": texts, "abnormal": abnormal}


def build(init: str, width: int) -> nn.Sequential:
    layers = [nn.Linear(INPUTS, width), nn.Linear(width, width), nn.Linear(width, CLASSES)]
    for layer in layers:
        if init == "heavy":
            nn.init.zeros_(layer.bias)
            with torch.no_grad():
                layer.weight.copy_(torch.empty_like(layer.weight).cauchy_(sigma=0.3 / math.sqrt(layer.in_features)))
        else:
            initialise(layer, init, "relu")
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])


@torch.no_grad()
def constrain(weights: list[Tensor], hold: str, threshold: float) -> None:
    """What is done to the weights after a step: soft thresholding is the exact step for a penalty on magnitudes."""
    for w in weights:
        if threshold > 0:
            w.copy_(w.sign() * (w.abs() - threshold).clamp_min(0))
        if hold == "clamp":
            w.clamp_(-LIMIT, LIMIT)
        elif hold == "heaps":
            w.add_(PULL * (HEAPS * w.sign() - w))
        elif hold == "swell":
            w.mul_(1 + SWELL)


def shapes_of(model: nn.Module) -> tuple[LayerWeights, ...]:
    return weight_distribution(model).layers


def describe(layer: LayerWeights, weight: Tensor) -> dict[str, Any]:
    spread = layer.spread
    kurtosis, bimodality = moments(weight)
    return {
        "kind": layer.kind,
        "why": spread.why,
        "rms": spread.size,
        "gain": spread.gain,
        "peaked": spread.peaked,
        "giant": spread.giant,
        "zeros": spread.zeros,
        "norm": weight.norm().item(),
        "kurtosis": kurtosis,
        "bimodality": bimodality,
        "counts": layer.counts.tolist(),
        "range": [float(layer.edges[0]), float(layer.edges[-1])],
    }


def moments(weight: Tensor) -> tuple[float, float]:
    """Excess kurtosis, 0 for a bell; and Sarle's coefficient, above 5/9 where two heaps are likely (or a long tail)."""
    values = weight.double().flatten()
    centred = values - values.mean()
    deviation = centred.square().mean().sqrt()
    if not (deviation.isfinite() and deviation > 1e-12 * values.abs().max()):
        return math.nan, math.nan
    z = centred / deviation
    skew, kurtosis = z.pow(3).mean().item(), z.pow(4).mean().item()
    return kurtosis - 3, (skew**2 + 1) / kurtosis
