"""An activation stands where it harms: on the scores or the output that go into the loss, or a softmax inside.

## What it means
A loss wants numbers that can be anything: cross-entropy raw scores of both signs, squared error whatever the target
can be. An activation right before it cuts that range. With ReLU no score can be negative, and a score that is zero gets
no gradient; with sigmoid or tanh scores differ by at most one or two, so the loss cannot come near zero; a regression
can never reach the targets that lie outside. A softmax between two layers makes its units share one unit of output, so
they all come out close to 1/n and little gets through; over a single unit it is always one.

## Why it happens
The block of layer and activation is repeated once too often, up to and including the last layer; an output activation
is kept when the loss or the scaling of the targets changes; softmax is taken for an ordinary activation.

## How it is detected
By the graph. For cross-entropy (log-softmax) and binary cross-entropy with logits: the operator whose result the loss
takes is ReLU, GELU, SiLU, softplus, ELU, sigmoid or tanh. For squared and absolute errors the same, where the targets
that were seen lie outside the activation's range by a quarter of their spread. Inside: a layer takes a softmax's result
and the softmax takes a layer's, with nothing between, over eight units or more; or a softmax runs over a single unit.

## How to fix it
Return the last layer's output as it is. Where an output must be positive or bounded, scale the targets into the
activation's range. Inside the network use ReLU, GELU or tanh.

## Known false alarms
Softmax before cross-entropy and sigmoid before binary cross-entropy with logits have diagnoses of their own. A scale
after the activation (`30 * tanh(x / 30)`, soft caps), pooling after it (as in SqueezeNet), attention, gates and
mixtures are not reported; nor is a sigmoid or ReLU output whose targets lie in its range. LeakyReLU bounds nothing and
is information only. Topic models that pass their mixture on through a softmax look like a softmax inside.

## References
Goodfellow, Bengio and Courville, "Deep Learning", section 6.2.2, Output units (2016).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torchdoctor.facts import GraphFact, LayersFact, LossCallFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import baseline
from torchdoctor.rules.loss_graph import LossGraph, Operator, forward_name
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    code="A010",
    name="misplaced-activation",
    family="architecture",
    needs=(GraphFact,),
    explains=(
        "dead-relu",
        "saturated-activations",
        "vanishing-gradients",
        "learning-rate-too-low",
        "bad-initialization-scale",
        "unnormalized-inputs",
        "symmetric-initialization",
        "plateau-or-saddle",
        "underfitting",
        "capacity-too-low",
        "majority-class-collapse",
        "representation-collapse",
        "learning-rate-oscillation",
        "wrong-loss-for-task",
        "over-regularized",
        "abnormal-distribution",
    ),
)

INF = math.inf
RANGES = {
    "Relu": ("ReLU", 0.0, INF),
    "ThresholdBackward": ("ReLU", 0.0, INF),
    "Threshold": ("ReLU", 0.0, INF),
    "Gelu": ("GELU", -0.17, INF),
    "Silu": ("SiLU", -0.28, INF),
    "Mish": ("Mish", -0.31, INF),
    "Hardswish": ("Hardswish", -0.38, INF),
    "Softplus": ("softplus", 0.0, INF),
    "Elu": ("ELU", -1.0, INF),
    "Sigmoid": ("sigmoid", 0.0, 1.0),
    "Hardsigmoid": ("hard sigmoid", 0.0, 1.0),
    "Softmax": ("softmax", 0.0, 1.0),
    "Tanh": ("tanh", -1.0, 1.0),
}
LEAKY = ("LeakyRelu",)
SCORES = {"LogSoftmax": "cross_entropy", "BinaryCrossEntropyWithLogits": "binary_cross_entropy_with_logits"}
OWN_RULE = {("LogSoftmax", "Softmax"), ("BinaryCrossEntropyWithLogits", "Sigmoid")}
ERRORS = {"MseLoss": "mse_loss", "L1Loss": "l1_loss", "SmoothL1Loss": "smooth_l1_loss", "HuberLoss": "huber_loss"}
OUTSIDE = 0.25
"""Of the targets' standard deviation: how far targets must lie outside an activation's range."""
LEAST_UNITS = 8
"""A softmax over fewer units may be a mixture that is meant to sum to one."""
WAYS_THROUGH = ("View", "UnsafeView", "Reshape", "ReshapeAlias", "ToCopy", "Clone", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class Misplaced:
    """An activation and what takes its result."""

    activation: str
    low: float
    high: float
    loss: str
    places: tuple[Place, ...]


def detect(run: Run) -> Iterator[Finding]:
    for fact in reversed(run.facts(GraphFact)):
        graph = LossGraph(fact)
        found = _on_scores(graph) or _on_a_constant(graph)
        if found is not None:
            yield found
            return
        outside = _on_targets(run, graph)
        if outside is not None:
            yield outside
            return
    inside = _inside(run)
    if inside is not None:
        yield inside


def _feeding(graph: LossGraph, losses: dict[str, str]) -> Iterator[tuple[Operator, Operator]]:
    for loss in graph.named(*losses):
        for source in graph.sources(loss):
            if (loss.name, source.name) not in OWN_RULE:
                yield loss, source


def _on_scores(graph: LossGraph) -> Finding | None:
    for loss, source in _feeding(graph, SCORES):
        if source.name in LEAKY:
            return _leaky(graph, loss, source)
        if source.name not in RANGES:
            continue
        name, low, high = RANGES[source.name]
        bounded = f"between {low:g} and {high:g}" if high < INF else f"at least {low:g}"
        effect = (
            "No class can be made more than a few times as likely as another, so the loss stays far from zero."
            if high < INF
            else "No score can be pushed down, and a score that is at the bottom gets no gradient."
        )
        return RULE.finding(
            severity=Severity.ERROR if high < INF else Severity.WARNING,
            confidence=0.95,
            proof=Proof.STRUCTURE,
            title=f"{name} is applied to the scores that go into {SCORES[loss.name]}",
            summary=f"The loss wants raw scores of both signs; after {name} they are {bounded}. {effect}",
            where=known(source.place, graph.place),
            evidence=[
                Evidence(f"in the graph {SCORES[loss.name]} takes the result of {name}{_at(source.place)}", "graph"),
                Evidence(f"scores are {bounded}", value=low if high == INF else high),
            ],
            fix=Fix(
                f"Remove the {name} after the last layer and give its raw output to the loss.",
                f"return self.out(x)  # the last layer as it is, without {name}",
            ),
            symptoms=("stuck-at-chance", "slow-descent"),
        )
    return None


def _leaky(graph: LossGraph, loss: Operator, source: Operator) -> Finding:
    return RULE.finding(
        severity=Severity.INFO,
        confidence=0.9,
        proof=Proof.STRUCTURE,
        title=f"LeakyReLU is applied to the scores that go into {SCORES[loss.name]}",
        summary="It bounds nothing, but makes scores below zero hard to move; the last layer's raw output would do.",
        where=known(source.place, graph.place),
        evidence=[Evidence(f"in the graph {SCORES[loss.name]} takes the result of LeakyReLU{_at(source.place)}")],
        fix=Fix("Remove it after the last layer.", "return self.out(x)"),
    )


def _on_a_constant(graph: LossGraph) -> Finding | None:
    """A softmax over a single unit gives one, whatever it is given."""
    for operator in graph.named("Softmax", "LogSoftmax"):
        shape = operator.shape
        if not shape or len(shape) < 2 or shape[-1] != 1 or (len(shape) > 2 and max(shape[1:]) > 1):
            continue
        value = "one" if operator.name == "Softmax" else "zero"
        return RULE.finding(
            severity=Severity.ERROR,
            confidence=0.9,
            proof=Proof.STRUCTURE,
            title=f"{'softmax' if value == 'one' else 'log-softmax'} over a single output is always {value}",
            summary="The model has one output, and a softmax over one number does not depend on it: no gradient comes "
            "back.",
            where=known(operator.place, graph.place),
            evidence=[Evidence(f"the softmax before the loss has shape {list(shape)}{_at(operator.place)}", "graph")],
            fix=Fix(
                "For two classes use one output with a sigmoid's loss, or two outputs with cross_entropy.",
                "loss = F.binary_cross_entropy_with_logits(logits.squeeze(1), target.float())",
            ),
            symptoms=("flat-from-start", "stuck-at-chance"),
        )
    return None


def _on_targets(run: Run, graph: LossGraph) -> Finding | None:
    spread = baseline.targets(run)
    if spread is None or spread.std <= 0:
        return None
    for loss, source in _feeding(graph, ERRORS):
        calls = [c for c in baseline.loss_calls(run) if c.function == ERRORS[loss.name]]
        if source.name not in RANGES or not calls:
            continue
        name, low, high = RANGES[source.name]
        below, above = _outside(calls, low, high, OUTSIDE * spread.std)
        if below is None and above is None:
            continue
        far = below if below is not None else above
        bounded = f"between {low:g} and {high:g}" if high < INF else f"at least {low:g}"
        return RULE.finding(
            severity=Severity.ERROR,
            confidence=0.95,
            proof=Proof.STRUCTURE,
            title=f"{name} on the output, but targets reach {far:.3g}",
            summary=f"The model's output goes through {name} and is {bounded}; the targets go beyond that, so a part "
            "of them can never be predicted.",
            where=known(source.place, graph.place, Place(file=calls[-1].file, line=calls[-1].line)),
            evidence=[
                Evidence(f"in the graph {calls[-1].function} takes the result of {name}{_at(source.place)}", "graph"),
                Evidence(
                    f"targets lie between {calls[-1].target_low:.3g} and {calls[-1].target_high:.3g}, around "
                    f"{spread.mean:.3g} with a standard deviation of {spread.std:.3g}",
                    "loss_call",
                    far,
                    low if below is not None else high,
                ),
            ],
            fix=Fix(
                f"Remove the {name} after the last layer, or scale the targets into its range.",
                f"return self.out(x)  # the last layer as it is, without {name}",
            ),
            symptoms=("both-high-and-equal", "slow-descent"),
        )
    return None


def _outside(calls: list[LossCallFact], low: float, high: float, margin: float) -> tuple[float | None, float | None]:
    """The lowest and the highest target, each where it lies outside by more than the margin."""
    lows = [c.target_low for c in calls if c.target_low is not None]
    highs = [c.target_high for c in calls if c.target_high is not None]
    least, most = min(lows, default=low), max(highs, default=high if high < INF else 0.0)
    return (least if least < low - margin else None), (most if most > high + margin else None)


def _inside(run: Run) -> Finding | None:
    """A softmax alone between two layers that nothing else takes part in."""
    fact = run.last_fact(LayersFact)
    if fact is None:
        return None
    layers = {layer["name"]: layer for layer in fact.layers}
    for link in fact.links:
        ops = [o for o in map(forward_name, link["ops"]) if o not in WAYS_THROUGH]
        above, below = layers.get(link["above"]), layers.get(link["below"])
        if ops != ["Softmax"] or above is None or below is None or above["plain_matrix"]:
            continue
        if below["fan_out"] < LEAST_UNITS:
            continue
        module = link["below"].rpartition(".")[0]
        return RULE.finding(
            severity=Severity.WARNING,
            confidence=0.85,
            proof=Proof.STRUCTURE,
            title=f"softmax is used as the activation after {module}",
            summary=f"The {below['fan_out']} units of {module} share one unit of output among them, about "
            f"{1 / below['fan_out']:.2g} each, before {link['above'].rpartition('.')[0]} takes them: differences "
            "between samples and gradients shrink with the number of units.",
            where=[Place(module=module, parameter=link["below"])],
            evidence=[
                Evidence(
                    f"in the graph {link['above']} takes the softmax of {link['below']}'s output, with nothing between",
                    "layers",
                    float(below["fan_out"]),
                    float(LEAST_UNITS),
                )
            ],
            fix=Fix("Use an ordinary activation between layers.", "nn.ReLU()  # instead of nn.Softmax(dim=-1)"),
            symptoms=("slow-descent", "stuck-at-chance"),
        )
    return None


def _at(place: Place) -> str:
    return f" (line {place.line})" if place.line else ""
