"""Sigmoid or tanh units sit at the ends of their range, where they pass no gradient.

## What it means
Far from zero a sigmoid or tanh is flat: its output hardly changes with its input, so hardly any gradient passes. If
most units of a hidden layer are there from the start, the layers below learn next to nothing, and the layer acts like a
fixed set of switches.

## Why it happens
- Weights that start too large, so that the sums fed to the activation are far from zero.
- Inputs that are not normalised, such as pixels from 0 to 255.
- Steps that are too large and drive the weights out.

## How it is detected
For every sigmoid or tanh the share of outputs within 1 % of its range from a limit is recorded. The output activation
of each model, and softmax, are left out: these are meant to end near their limits when the model is right. Functions on
matrices that no module owns count where the graph has them between two matrices, and so does a sigmoid written by hand
as 1 / (1 + exp(-x)). The finding needs half of a hidden layer's outputs saturated in the last half of the looks, and
either that they were so from the first looks on, before anything was learned, or that the loss goes nowhere.

The gates inside an LSTM or GRU are not seen one by one. Their sums are worked out from the size of its weights, its
inputs and its own output at the first look: if they spread so far that half of the gates are within 1 % of a limit,
and the loss has lost less than a fifth of its start, this is reported as well.

## How to fix it
Start the weights by Xavier (`nn.init.xavier_uniform_`, gain 5/3 for tanh), normalise the inputs, put a normalisation
layer before the activation, or use ReLU or GELU in hidden layers.

## Known false alarms
Gates that learn to be open or shut saturate in the course of a training that works, and are not reported. Networks that
are meant to be binary would be.

## References
LeCun, Bottou, Orr, Müller, "Efficient BackProp", 1998.
Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.distributions.gaps import nanmax
from torchdoctor.facts import GraphFact, LayersFact, ModelFact, ModuleFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, RuledOut, Severity
from torchdoctor.rules import curves
from torchdoctor.rules.architecture import gates
from torchdoctor.rules.loss_curve import broken_at, loss_curve
from torchdoctor.rules.loss_graph import LossGraph, forward_name
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ACTIVATION, WEIGHT_L2

SATURATED = ACTIVATION["saturated"]

RULE = Rule(
    code="A004",
    name="saturated-activations",
    family="architecture",
    needs=(SATURATED,),
    explains=(
        "vanishing-gradients",
        "learning-rate-too-low",
        "plateau-or-saddle",
        "underfitting",
        "capacity-too-low",
        "majority-class-collapse",
        "bad-initialization-scale",
        "inputs-and-labels-unrelated",
        "overfitting",
    ),
)

KINDS = ("sigmoid", "tanh")
OPERATORS = {"sigmoid": ("Sigmoid",), "tanh": ("Tanh",)}
"""As the graph has them; a sigmoid written by hand ends in a reciprocal."""
SHARE = 0.5
"""At a sane start the sums have a spread of about one, and 2 % of a tanh's outputs are this close to a limit; half of
them need a spread of 3.5."""
MIN_LOOKS = 3
FIRST_LOOKS = 3


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str
    share: float
    first: float
    onset: int
    trace: Trace


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    held = gates.hold_back(run)
    if held is not None:
        yield _of_gates(run, *held)
        return
    until, trace = broken_at(run), run.matrix(SATURATED)
    if until is not None:
        trace = trace.between(0, until - 1)
    hidden = [m for m in hidden_modules(run) if m.name in trace.columns]
    if len(trace) < MIN_LOOKS or not hidden:
        return
    layers = [layer for m in hidden if (layer := saturated_layer(m, trace.column(m.name)))]
    loss = loss_curve(run)
    stuck = loss is not None and loss.stuck
    standing = [layer for layer in layers if layer.first >= SHARE or stuck]
    if standing:
        yield _finding(run, standing, stuck)
    elif not layers:
        late = trace.select([m.name for m in hidden]).values[len(trace) // 2 :]
        if np.isfinite(late).any():
            most = float(nanmax(late))
            if most < SHARE / 2:
                yield RuledOut(RULE.name, f"at most {most:.0%} of a hidden layer is saturated", SATURATED.name, most)


def _of_gates(run: Run, name: str, spread: float) -> Finding:
    loss = loss_curve(run)
    text = f"the loss went from {curves.figure(loss.begin)} to {curves.figure(loss.end)}" if loss else ""
    return RULE.finding(
        severity=Severity.ERROR if loss is not None and loss.stuck else Severity.WARNING,
        confidence=0.8,
        title=f"the gates of {name} are saturated from the start",
        summary="The sums that go into the gates are so large that most gates sit at the flat ends of their range: "
        "they are open or shut whatever comes in, and hardly any gradient passes through them.",
        where=[Place(module=name)],
        first_step=0,
        evidence=[
            Evidence(
                f"by the size of its weights and inputs the sums of {name} spread by {curves.figure(spread)}; a "
                "sigmoid is flat beyond 4.6",
                WEIGHT_L2.name,
                spread,
                gates.PINNED,
            ),
            Evidence(text, value=loss.fell if loss else None, spark=loss.spark if loss else ()),
        ],
        fix=Fix(
            "Leave PyTorch's default initialisation of the recurrent layer, and normalise what goes into it.",
            f"model.{name}.reset_parameters()",
        ),
        symptoms=("slow-descent",),
    )


def hidden_modules(run: Run) -> list[ModuleFact]:
    """Sigmoids and tanhs with a weight layer of the same model behind them."""
    with_weights = {p.module for p in run.parameters.values() if len(p.shape) >= 2}
    near_loss = {o.name for f in run.facts(GraphFact) for o in LossGraph(f).operators}
    found = _between_layers(run)
    for module in run.modules.values():
        if module.activation not in KINDS or module in found:
            continue
        stands = _stands_at(run, module)
        if stands is None or stands.order is None:
            if near_loss and not near_loss.intersection(OPERATORS[module.activation]):
                found.append(module)
            continue
        behind = (m for m in run.modules.values() if m.order is not None and m.order > stands.order)
        if any(m.name in with_weights and _model(run, m.name) == _model(run, stands.name) for m in behind):
            found.append(module)
    return found


def _between_layers(run: Run) -> list[ModuleFact]:
    """Functions that the graph shows between two layers: of those after one owner, all but the nearest to the loss."""
    known = run.last_fact(LayersFact)
    if known is None:
        return []
    after: dict[tuple[str, str], list[ModuleFact]] = {}
    for module in run.modules.values():
        _, _, layer = module.name.partition(" after ")
        if layer and module.activation in KINDS:
            after.setdefault((layer.partition(" #")[0], module.activation or ""), []).append(module)
    found: list[ModuleFact] = []
    for (owner, kind), functions in after.items():
        below = [link for link in known.links if owner in (link["below"], str(link["below"]).rpartition(".")[0])]
        links = sum(any(forward_name(op) in OPERATORS[kind] for op in link["ops"]) for link in below)
        functions.sort(key=lambda m: int(m.name.partition(" #")[2] or 1))
        found += functions[max(0, len(functions) - links) :]
    return found


def _stands_at(run: Run, module: ModuleFact) -> ModuleFact | None:
    """A function found in the graph is named "tanh after LAYER" and stands where that layer does."""
    _, after, layer = module.name.partition(" after ")
    return run.modules.get(layer.partition(" #")[0]) if after else module


def _model(run: Run, name: str) -> str:
    models = [f.name for f in run.facts(ModelFact)]
    return next((m for m in models if len(models) > 1 and (name == m or name.startswith(f"{m}."))), "")


def saturated_layer(module: ModuleFact, trace: Trace) -> Layer | None:
    finite = np.isfinite(trace.values)
    steps, values = trace.steps[finite], trace.values[finite]
    if len(values) < MIN_LOOKS:
        return None
    late = values[len(values) // 2 :]
    if float(np.median(late)) < SHARE:
        return None
    below = np.flatnonzero(values < SHARE)
    onset = int(steps[min(below[-1] + 1, len(steps) - 1)]) if len(below) else int(steps[0])
    first = float(np.median(values[:FIRST_LOOKS]))
    return Layer(module.name, module.activation or "", float(np.median(late)), first, onset, trace)


def _finding(run: Run, layers: list[Layer], stuck: bool) -> Finding:
    worst = max(layers, key=lambda layer: layer.share)
    from_start = worst.first >= SHARE
    evidence = [
        Evidence(
            f"{layer.name}: {layer.share:.0%} of its outputs are at a limit of the {layer.kind} "
            f"({layer.first:.0%} on the first looks)",
            SATURATED.name,
            layer.share,
            SHARE,
            spark=curves.spark(layer.trace.values),
        )
        for layer in sorted(layers, key=lambda layer: -layer.share)[:3]
    ]
    loss = loss_curve(run)
    if loss is not None and len(loss.curve):
        text = f"the loss went from {curves.figure(loss.begin)} to {curves.figure(loss.end)}"
        evidence.append(Evidence(text, value=loss.fell, spark=loss.spark))
    return RULE.finding(
        severity=Severity.ERROR if stuck and from_start else Severity.WARNING,
        confidence=0.85 if from_start else 0.7,
        title=f"{worst.share:.0%} of {worst.name} ({worst.kind}) is saturated "
        + ("from the start" if from_start else f"since step {worst.onset}"),
        summary="The units sit at the flat ends of their range, so hardly any gradient passes through them and the "
        "layers before them learn next to nothing.",
        where=[Place(module=layer.name) for layer in layers[:3]],
        first_step=worst.onset,
        evidence=evidence,
        fix=remedy(worst.kind, from_start),
        symptoms=("slow-descent",),
    )


def remedy(kind: str, from_start: bool) -> Fix:
    return Fix(
        "Start the weights before these units smaller (Xavier), and normalise what goes into them."
        if from_start
        else "Lower the learning rate, or put a normalisation layer before these units.",
        f"nn.init.xavier_uniform_(layer.weight, gain=nn.init.calculate_gain('{kind}'))",
    )
