"""Linear layers follow one another with nothing between them.

## What it means
Two linear layers (or convolutions) without an activation between them compute what a single one could: the second
adds parameters, cost and a harder optimisation, but nothing that the model can express. A network without any
activation is linear regression, however deep it looks.

## Why it happens
Activations are created in `__init__` and not called in `forward`; a block is written without one; `F.relu` was removed
or commented out; its result is not assigned (`F.relu(x)` on a line of its own).

## How it is detected
In the graph. A layer takes another layer's output, nobody else takes it, and what lies between only moves, pads,
averages, scales, shifts or drops values (batch normalisation counts as scaling). It counts if the inner width is at
least the smaller of both outer ones, so that the two are no factorisation of low rank. It is a warning if the network
has no activation at all, if two such places are found, or if the layers make up a quarter of the weights and the
second is not the output layer; else it is information.

## How to fix it
Put an activation between the layers: `x = F.relu(self.fc1(x))`. If the second layer is not needed, drop it.

## Known false alarms
Bottlenecks (autoencoders' codes, LoRA, factorised embeddings, MobileNet's linear ones), depthwise or factorised
convolutions, attention projections, gates, residual sums and layer normalisation make no such place. Networks that are
linear to be studied, and an embedding layer right before a classifier with fewer classes (information only), do.

## References
Goodfellow, Bengio and Courville, "Deep Learning", section 6.3 (2016). Saxe, McClelland and Ganguli, "Exact solutions to
the nonlinear dynamics of learning in deep linear neural networks" (2014).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torchdoctor.facts import LayersFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.architecture.depth import reference
from torchdoctor.rules.loss_graph import forward_name
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    of_code=True,
    code="A009",
    name="missing-nonlinearity",
    family="architecture",
    needs=(LayersFact,),
    explains=(
        "capacity-too-low",
        "underfitting",
        "plateau-or-saddle",
        "learning-rate-too-low",
        "learning-rate-decayed-too-early",
        "vanishing-gradients",
        "exploding-gradients",
        "bad-initialization-scale",
        "majority-class-collapse",
        "representation-collapse",
        "weak-slice",
        "learning-rate-oscillation",
    ),
)

LINEAR = frozenset(
    [
        *("View", "UnsafeView", "Reshape", "ReshapeAlias", "Flatten", "Unflatten", "Squeeze", "Unsqueeze", "Expand"),
        *("Permute", "Transpose", "T", "Movedim", "Alias", "AsStrided", "Clone", "Contiguous", "ToCopy", "Slice"),
        *("Select", "Narrow", "Cat", "Stack", "Add", "Sub", "Mul", "Div", "Neg", "NativeDropout", "FeatureDropout"),
        *("Mean", "Sum", "AvgPool2D", "AvgPool3D", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D", "ConstantPadNd"),
        *("UpsampleNearest2D", "UpsampleNearest1D", "UpsampleBilinear2D", "PixelShuffle"),
        *("NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm"),
    ]
)
"""Operators under which a weighted sum stays one, as long as only one path comes in."""
LAYERS = ("Linear", "LazyLinear", "Conv1d", "Conv2d", "Conv3d")
SHARE = 0.25
"""Of the weights of all layers: a forgotten activation in a large model's small corner harms little."""


@dataclass(frozen=True)
class Pair:
    """Two layers of which the second takes the first's output as it is."""

    below: dict[str, Any]
    above: dict[str, Any]
    ops: tuple[str, ...]

    @property
    def names(self) -> str:
        return f"{_module(self.below['name'])} and {_module(self.above['name'])}"


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    pairs: dict[tuple[str, str], Pair] = {}
    layers: dict[str, dict[str, Any]] = {}
    others, last, linear = 0, set(), 0
    for fact in run.facts(LayersFact):
        layers.update({layer["name"]: layer for layer in fact.layers})
        last.update(layer["name"] for layer in fact.layers[:1])
        for link in fact.links:
            ops = tuple(map(forward_name, link["ops"]))
            if not set(ops) <= LINEAR:
                others += 1
            elif _counts(run, layers[link["above"]], layers[link["below"]]):
                pair = Pair(layers[link["below"]], layers[link["above"]], ops)
                pairs[link["below"], link["above"]] = pair
            else:
                linear += 1
    if pairs:
        yield _finding(run, list(pairs.values()), layers, last, _is_linear(run, layers, others, pairs))
    elif others and not linear:
        text = f"something nonlinear stands between the layers of all {others} pairs that follow one another"
        yield RuledOut(RULE.name, text, "layers", 0.0)


def _counts(run: Run, above: dict[str, Any], below: dict[str, Any]) -> bool:
    """Neither a bottleneck nor one half of a factorised convolution, and both plain layers."""
    types = [run.parameters[n].module_type for n in (above["name"], below["name"]) if n in run.parameters]
    if any(t not in LAYERS for t in types) or above["name"] == below["name"]:
        return False
    if max(above["groups"], below["groups"]) > 1 or any(len(set(layer["kernel"])) > 1 for layer in (above, below)):
        return False
    return bool(below["fan_out"] >= min(below["fan_in"], above["fan_out"]))


def _is_linear(run: Run, layers: dict[str, Any], others: int, pairs: dict[tuple[str, str], Pair]) -> bool:
    """The whole network is one linear function: every layer is in a chain, and nothing else was found on the way."""
    chained = {name for pair in pairs for name in pair}
    return others == 0 and chained == set(layers) and not any(m.activation for m in run.modules.values())


def _finding(run: Run, pairs: list[Pair], layers: dict[str, Any], last: set[str], is_linear: bool) -> Finding:
    involved = {layer["name"] for pair in pairs for layer in (pair.below, pair.above)}
    share = _size(run, involved) / max(1, _size(run, layers))
    inner = [p for p in pairs if p.above["name"] not in last]
    is_grave = is_linear or len(pairs) >= 2 or (share >= SHARE and bool(inner))
    first = pairs[-1]
    title = (
        f"the network is linear: no activation between its {len(layers)} layers"
        if is_linear
        else f"no activation between {first.names}" + (f" and {len(pairs) - 1} other pairs" if len(pairs) > 1 else "")
    )
    below = _module(first.below["name"])
    return RULE.finding(
        severity=Severity.WARNING if is_grave else Severity.INFO,
        confidence=0.93 if is_linear else 0.85,
        proof=Proof.STRUCTURE,
        title=title,
        summary="What these layers compute together, a single layer could compute: the others add parameters but "
        "nothing that the model can express.",
        where=[Place(module=_module(p.below["name"]), parameter=p.below["name"]) for p in pairs[:4]],
        evidence=[
            *(
                Evidence(
                    f"{_module(p.above['name'])} takes the output of {_module(p.below['name'])} "
                    f"({p.below['fan_in']} to {p.below['fan_out']} to {p.above['fan_out']})"
                    + (f" through {', '.join(dict.fromkeys(p.ops))} only" if p.ops else " as it is"),
                    "layers",
                )
                for p in pairs[:3]
            ),
            Evidence(f"these layers hold {share:.0%} of the weights", "layers", share, SHARE),
        ],
        fix=Fix("Put an activation between them.", f"x = F.relu({reference(below)}(x))"),
        symptoms=("both-high-and-equal", "flat-after-drop") if is_linear else (),
    )


def _module(name: str) -> str:
    return name.rpartition(".")[0] or name


def _size(run: Run, names: Sequence[str] | set[str] | dict[str, Any]) -> int:
    return sum(math.prod(run.parameters[n].shape) for n in names if n in run.parameters)
