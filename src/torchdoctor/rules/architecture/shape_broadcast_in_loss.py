"""Prediction and target have different shapes and broadcast against each other in the loss.

## What it means
A prediction of shape (N, 1) against a target of shape (N) broadcasts to (N, N): every prediction is compared with every
target, and the mean runs over all pairs. The best the model can do is to predict the targets' mean for everything. The
loss is finite and falls a little, so nothing looks broken; torch only prints a warning, and only for its own loss
functions.

## Why it happens
A `Linear(..., 1)` gives (N, 1), a column of a table or a list of numbers gives (N). One `squeeze` or `unsqueeze` is
missing. In hand-written losses, `(pred - target) ** 2` does the same without any warning.

## How it is detected
By shapes: the two shapes at the loss call broadcast to more elements than either has. For losses written by hand, by
the graph: between the loss and the last layer only element-wise operations lie, and a difference or product has (N, N)
elements where the layer gives (N, 1) and the targets come as (N). A scalar or a row that is expanded to the
prediction's own shape is not reported.

## How to fix it
Give both the same shape: `pred.squeeze(1)` or `target.unsqueeze(1)`. An `assert pred.shape == target.shape` before the
loss keeps it repaired.

## Known false alarms
Losses over all pairs (contrastive, ranking) expand on purpose; they do so with unsqueeze, transpose or expand on the
prediction, which shows in the graph, and are not reported.

## References
PyTorch documentation, "Broadcasting semantics" and torch.nn.functional.mse_loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torchdoctor.facts import TRAIN, GraphFact, InputsFact, LossCallFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.loss_graph import LossGraph, Operator
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    code="A011",
    name="shape-broadcast-in-loss",
    family="architecture",
    needs=(GraphFact,),
    explains=(
        "learning-rate-too-low",
        "underfitting",
        "capacity-too-low",
        "plateau-or-saddle",
        "representation-collapse",
        "vanishing-gradients",
        "overfitting",
    ),
)

ELEMENTWISE_LOSSES = (
    "mse_loss",
    "l1_loss",
    "smooth_l1_loss",
    "huber_loss",
    "poisson_nll_loss",
    "gaussian_nll_loss",
    "soft_margin_loss",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "kl_div",
)
LOSS_OPERATORS = ("MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "SoftMarginLoss", "KlDiv")
COMBINING = ("Sub", "Rsub", "Mul", "Div", "Add", "Maximum", "Minimum", "MseLoss", "SmoothL1Loss", "HuberLoss")
PLAIN = {"Mean", "Sum", "Pow", "Abs", "Sqrt", "Neg", "Log", "Exp", "Square", "LogCosh", "Log1P", *COMBINING}
"""What a hand-written regression loss is made of. Anything that moves axes may expand on purpose."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    calls = [f for f in run.facts(LossCallFact) if f.function in ELEMENTWISE_LOSSES and f.target_shape is not None]
    for call in calls:
        if _grows(call.input_shape, call.target_shape or []):
            yield _finding(run, call.input_shape, call.target_shape or [], Place(file=call.file, line=call.line), call)
            return
    for fact in run.facts(GraphFact):
        graph = LossGraph(fact)
        pair = _expanded(graph) or _by_hand(run, graph)
        if pair:
            shape, target, place = pair
            yield _finding(run, shape, target, place if place != Place() else graph.place, None)
            return
    if calls and all(c.input_shape == c.target_shape for c in calls):
        shape = "x".join(map(str, calls[-1].input_shape))
        yield RuledOut(RULE.name, f"prediction and target have the same shape at the loss ({shape})")


def _broadcast(a: Sequence[int], b: Sequence[int]) -> list[int] | None:
    """The common shape, or None if there is none."""
    length = max(len(a), len(b))
    padded = [[1] * (length - len(s)) + list(s) for s in (a, b)]
    if any(x != y and 1 not in (x, y) for x, y in zip(*padded, strict=True)):
        return None
    return [max(x, y) for x, y in zip(*padded, strict=True)]


def _grows(a: Sequence[int], b: Sequence[int]) -> bool:
    """Together they have more elements than either: both are expanded."""
    shape = _broadcast(a, b)
    return shape is not None and math.prod(shape) > max(math.prod(a), math.prod(b))


def _expanded(graph: LossGraph) -> tuple[list[int], list[int], Place] | None:
    """torch's own loss took the output of an expand that it made itself."""
    for loss in graph.named(*LOSS_OPERATORS):
        for expand in graph.inputs(loss):
            below = graph.inputs(expand)
            if expand.name != "Expand" or expand.shape is None or not below or below[0].shape is None:
                continue
            if _is_outer(below[0].shape, expand.shape):
                return list(below[0].shape), [expand.shape[-1]], loss.place
    return None


def _by_hand(run: Run, graph: LossGraph) -> tuple[list[int], list[int], Place] | None:
    layer = [o for o in graph.operators if o.parameters]
    between = [o for o in graph.operators if not o.parameters]
    if len(layer) != 1 or layer[0].shape is None or not all(o.name in PLAIN for o in between):
        return None
    grown = next((o for o in between if o.name in COMBINING and _is_outer_of(layer[0], o)), None)
    if grown is None or grown.shape is None or not _targets_are_flat(run, grown.shape[-1]):
        return None
    return list(layer[0].shape), [grown.shape[-1]], grown.place


def _is_outer_of(layer: Operator, combined: Operator) -> bool:
    return layer.shape is not None and combined.shape is not None and _is_outer(layer.shape, combined.shape)


def _is_outer(small: Sequence[int], large: Sequence[int]) -> bool:
    """(N, 1) that became (N, N), or (N) that did: the batch against itself."""
    if len(large) != 2 or large[0] != large[1] or large[0] < 2:
        return False
    return list(small) in ([large[0], 1], [large[0]])


def _targets_are_flat(run: Run, batch: int) -> bool:
    """Targets were seen with one axis only (or none was seen at all)."""
    shapes = [f.shape for f in run.facts(InputsFact) if f.role == "target" and f.phase == TRAIN]
    return not shapes or any(len(s) == 1 for s in shapes) or [batch, 1] not in shapes


def _finding(run: Run, shape: Sequence[int], target: Sequence[int], place: Place, call: LossCallFact | None) -> Finding:
    common = _broadcast(shape, target) or [*shape]
    said = [f"({', '.join(map(str, s))}{',' * (len(s) == 1)})" for s in (shape, target, common)]
    function = call.function if call else "the loss"
    pairs = math.prod(common)
    longer = len(shape) > len(target)
    name = f"F.{call.function}" if call else "loss_fn"
    code = f"loss = {name}(pred.squeeze(-1), target)" if longer else f"loss = {name}(pred, target.squeeze(-1))"
    return RULE.finding(
        severity=Severity.ERROR if call is None or call.phase == TRAIN else Severity.WARNING,
        confidence=0.98 if call else 0.9,
        proof=Proof.STRUCTURE,
        title=f"prediction {said[0]} against target {said[1]}: {function} compares all {pairs} pairs",
        summary=f"The shapes differ and broadcast to {said[2]}, so every prediction is compared with every target. The "
        "best the model can then do is to predict the mean for everything.",
        where=known(place),
        evidence=[
            Evidence(
                f"{math.prod(shape)} predictions and {math.prod(target)} targets make {pairs} differences",
                "loss_call" if call else "graph",
                float(pairs),
                float(max(math.prod(shape), math.prod(target))),
            )
        ],
        fix=Fix("Give prediction and target the same shape.", code),
        symptoms=("flat-from-start", "both-high-and-equal", "slow-descent"),
    )
