"""The weight matrices of a model in the order of the forward pass, and how a quantity runs over that depth."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import ModelFact, ParameterFact, WiringFact
from torchdoctor.run import Floats, Run, Trace

EMBEDDINGS = ("Embedding", "EmbeddingBag")
"""Their gradient is sparse: most rows are zero in any batch, so its size says nothing about depth."""
RECURRENT = re.compile(r"(RNN|LSTM|GRU)(Cell|Base)?$")
CLIFF = 0.6
"""A single gap with more than this share of a fall over depth is one odd layer, not a decay from layer to layer."""


@dataclass(frozen=True)
class Layer:
    """One weight matrix (or convolution kernel)."""

    name: str
    module: str
    module_type: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def fan_in(self) -> int:
        return max(1, math.prod(self.shape[1:]))

    @property
    def units(self) -> int:
        return self.shape[0]

    @property
    def reference(self) -> str:
        return reference(self.name)


@dataclass(frozen=True)
class Profile:
    """A quantity of each layer, first layer first, and its shape over depth."""

    layers: tuple[Layer, ...]
    values: Floats

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def fall(self) -> float:
        """Late quarter over early quarter: 1000 means that the early layers have a thousandth of the late ones."""
        quarter = max(1, len(self) // 4)
        early, late = np.median(self.values[:quarter]), np.median(self.values[-quarter:])
        return float(late / early) if early > 0 else math.inf if late > 0 else math.nan

    @property
    def order(self) -> float:
        """Rank correlation with depth: 1 where every layer has more than the one before it."""
        if len(self) < 3 or np.ptp(self.values) == 0:
            return 0.0
        return float(np.corrcoef(np.arange(len(self)), np.argsort(np.argsort(self.values)))[0, 1])

    @property
    def gradual(self) -> bool:
        """Whether the change is spread over the layers, and not the doing of a single one."""
        logs = np.log(np.maximum(self.values, np.finfo(np.float32).smallest_subnormal))
        whole = abs(logs[-1] - logs[0])
        return bool(whole > 0 and np.max(np.abs(np.diff(logs))) <= CLIFF * max(whole, np.ptp(logs)))


def stacks(run: Run) -> list[tuple[Layer, ...]]:
    """For each model its trained weight matrices that the loss reaches, in forward order, the output layer included."""
    wiring = run.last_fact(WiringFact)
    left_out = {*wiring.frozen, *wiring.unheld, *wiring.unreached} if wiring else set()
    models = sorted((f.name for f in run.facts(ModelFact)), key=len, reverse=True)
    found: dict[str, list[Layer]] = {}
    for name, fact in run.parameters.items():
        if name in left_out or fact.order is None or not is_matrix(fact):
            continue
        owner = next((m for m in models if len(models) > 1 and name.startswith(f"{m}.")), "")
        layer = Layer(name, fact.module, fact.module_type, tuple(fact.shape))
        found.setdefault(owner, []).append(layer)
    return [tuple(layers) for layers in found.values()]


def is_matrix(fact: ParameterFact) -> bool:
    return len(fact.shape) >= 2 and fact.module_type not in EMBEDDINGS and math.prod(fact.shape) > 0


def reference(name: str) -> str:
    """A parameter as the user would write it: numbered children are indexed."""
    parts = ["model"]
    for part in name.split("."):
        if part.isdigit():
            parts[-1] += f"[{part}]"
        else:
            parts.append(part)
    return ".".join(parts)


def initializer(run: Run, layers: Sequence[Layer]) -> str:
    """A line (or loop) that starts these weights at the scale their activations need."""
    squashing = any(m.activation in ("tanh", "sigmoid") for m in run.modules.values())
    call = "nn.init.xavier_uniform_({})" if squashing else "nn.init.kaiming_normal_({}, nonlinearity='relu')"
    if len(layers) == 1:
        return call.format(layers[0].reference)
    return (
        "for module in model.modules():\n"
        "    if isinstance(module, (nn.Linear, nn.Conv2d)):\n"
        f"        {call.format('module.weight')}"
    )


def is_recurrent(layer: Layer) -> bool:
    return bool(RECURRENT.search(layer.module_type)) or "weight_hh" in layer.name


def profile(trace: Trace, layers: tuple[Layer, ...], until: int | None, rows: int | None = None) -> Profile | None:
    """Root mean square by layer of a matrix of L2 norms: the median over the looks before `until`.

    With `rows` only the first that many looks count. Layers seen on fewer than half of the looks are left out.
    """
    if not len(trace):
        return None
    looks = trace.select([layer.name for layer in layers])
    if rows is not None:
        looks = looks.first(rows)
    if until is not None:
        looks = looks.between(0, until - 1)
    if not len(looks) or not looks.columns:
        return None
    finite_ST = np.isfinite(looks.values)
    seen = finite_ST.sum(axis=0) * 2 >= len(looks)
    kept = tuple(layer for layer in layers if layer.name in looks.columns and seen[looks.columns.index(layer.name)])
    if not kept:
        return None
    at = [looks.columns.index(layer.name) for layer in kept]
    medians = np.array([np.median(looks.values[finite_ST[:, i], i]) for i in at], np.float64)
    return Profile(kept, medians / np.sqrt([layer.size for layer in kept]))


def hidden(found: Profile) -> Profile:
    """Without the output layer, whose gradient comes straight from the loss and differs with the number of outputs."""
    return Profile(found.layers[:-1], found.values[:-1])
