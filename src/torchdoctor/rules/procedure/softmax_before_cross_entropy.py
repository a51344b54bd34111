"""Probabilities go into a loss that applies softmax itself.

## What it means
`CrossEntropyLoss` takes raw scores (logits) and turns them into log-probabilities on its own. If the model already
ends in a softmax, the normalisation happens twice: the loss sees numbers between 0 and 1 as if they were scores.
Even a perfect prediction (1 for the right class, 0 for the others) then costs ln(1 + (C - 1)/e), which is 1.46 for
ten classes, and the gradient shrinks to nearly nothing long before that floor. The model learns, slowly and badly,
and its accuracy may look acceptable, which is why this fault lives long.

## Why it happens
The model was written to return probabilities because that is what one wants when using it, or the code was ported
from Keras, where the loss takes probabilities by default. `CrossEntropyLoss` does not complain: probabilities
are valid scores.

## How it is detected
By the graph, not by guessing from values: between the loss and the last layer, a log-softmax takes the output of a
softmax, with nothing but reshaping, indexing, casts or clamping between. Where the graph cannot be seen (compiled
regions), by the values at the loss call: every row of its input lies in 0..1 and sums to one. A log-softmax that
takes the output of another log-softmax changes nothing, and is only worth a remark.

## How to fix it
Return the raw scores from the model and give them to `CrossEntropyLoss`; apply `softmax` only where probabilities
are shown or thresholded. If the model must return log-probabilities, use `log_softmax` with `NLLLoss`.

## Known false alarms
None known for the finding itself. Softmax inside attention, in a distillation term or in an entropy bonus is not
reported: those do not feed a log-softmax directly. A double log-softmax is reported as information only.

## References
PyTorch documentation, torch.nn.CrossEntropyLoss ("input is expected to contain the unnormalized logits").
Bridle, "Probabilistic interpretation of feedforward classification network outputs", 1990.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from torchdoctor.facts import TRAIN, GraphFact, LossCallFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.loss_graph import LossGraph, Operator
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    code="T001",
    name="softmax-before-cross-entropy",
    family="procedure",
    needs=(GraphFact,),
    explains=(
        "learning-rate-too-low",
        "vanishing-gradients",
        "saturated-activations",
        "underfitting",
        "capacity-too-low",
        "plateau-or-saddle",
        "majority-class-collapse",
        "miscalibrated",
    ),
)

MIN_ROWS = 2
"""One row could sum to one by accident."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    calls = [f for f in run.facts(LossCallFact) if f.function == "cross_entropy" and f.phase == TRAIN]
    call = next((c for c in calls if _holds_probabilities(c)), None)
    softmax = _feeding(run, "Softmax")
    if call is not None or softmax is not None:
        yield _finding(call or next(iter(calls), None), softmax)
    elif (again := _feeding(run, "LogSoftmax")) is not None:
        yield _remark(again)
    elif any(c.rows_sum_to_one is False for c in calls):
        yield RuledOut(
            RULE.name,
            f"the loss gets raw scores, between {calls[-1].input_low:.3g} and {calls[-1].input_high:.3g}"
            if calls[-1].input_low is not None and calls[-1].input_high is not None
            else "the loss gets raw scores: their rows do not sum to one",
        )


def _holds_probabilities(call: LossCallFact) -> bool:
    rows = math.prod(call.input_shape) / max(call.classes or 1, 1)
    return bool(call.rows_sum_to_one) and (call.classes or 0) >= 2 and rows >= MIN_ROWS


def _feeding(run: Run, name: str) -> tuple[Operator, Operator] | None:
    """A log-softmax near the loss and the operator of that name whose output it takes."""
    for fact in reversed(run.facts(GraphFact)):
        graph = LossGraph(fact)
        for outer in graph.named("LogSoftmax"):
            for source in graph.sources(outer):
                if source.name == name:
                    return outer, source
    return None


def _finding(call: LossCallFact | None, pair: tuple[Operator, Operator] | None) -> Finding:
    evidence = []
    places = [Place(file=call.file, line=call.line)] if call else []
    if pair:
        outer, softmax = pair
        places = [softmax.place, *places, outer.place]
        evidence.append(Evidence(f"in the graph the loss's log-softmax takes a softmax's output{_at(softmax.place)}"))
    if call and _holds_probabilities(call):
        low, high = call.input_low or 0.0, call.input_high or 1.0
        evidence.append(
            Evidence(
                f"every row that goes into cross_entropy sums to one and lies in {low:.3g} to {high:.3g}",
                signal="loss_call",
                value=high,
                threshold=1.0,
            )
        )
    classes = call.classes if call else None
    if classes and classes >= 2:
        floor = math.log(1 + (classes - 1) / math.e)
        text = f"with {classes} classes even a perfect prediction costs {floor:.2f} this way, instead of 0"
        evidence.append(Evidence(text, value=floor))
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.99 if pair else 0.95,
        proof=Proof.STRUCTURE,
        title="softmax is applied twice: the model returns probabilities, cross_entropy wants raw scores",
        summary="The model's output has been through a softmax before it reaches the loss, and the loss applies "
        "log-softmax again. The gradient is squashed and the loss cannot come near zero.",
        where=known(*places),
        evidence=evidence,
        fix=Fix(
            "Remove the softmax at the end of the model and give the raw scores to the loss; apply it only where "
            "probabilities are needed.",
            "loss = F.cross_entropy(logits, target)  # logits: the last layer's output, without softmax",
        ),
        symptoms=("slow-descent", "stuck-at-chance", "flat-from-start"),
    )


def _remark(pair: tuple[Operator, Operator]) -> Finding:
    outer, inner = pair
    return RULE.finding(
        severity=Severity.INFO,
        confidence=0.95,
        proof=Proof.STRUCTURE,
        title="log_softmax is applied twice before the loss (harmless, but not meant)",
        summary="The model returns log-probabilities and cross_entropy applies log-softmax again. The second one "
        "changes nothing, so training is right; nll_loss would say what is meant.",
        where=known(inner.place, outer.place),
        evidence=[Evidence(f"in the graph a log-softmax takes another log-softmax's output{_at(inner.place)}")],
        fix=Fix("Use nll_loss for log-probabilities.", "loss = F.nll_loss(log_probabilities, target)"),
    )


def _at(place: Place) -> str:
    return f" (line {place.line})" if place.line else ""
