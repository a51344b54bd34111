"""Probabilities go into a binary loss that applies the sigmoid itself.

## What it means
`BCEWithLogitsLoss` takes raw scores of any size and applies the sigmoid on its own. If the model already ends in a
sigmoid, the loss sees only scores between 0 and 1, so the probability it works with stays between 0.5 and 0.73: a
negative example can never cost less than ln 2 = 0.693, a positive one never less than 0.313, and the gradient fades
as the model gets surer of itself.

## Why it happens
`BCELoss` (which wants probabilities) was exchanged for the numerically better `BCEWithLogitsLoss` and the sigmoid
stayed in the model; or the model returns probabilities for convenience.

## How it is detected
By the graph: the binary cross-entropy with logits (or a log-sigmoid) takes the output of a sigmoid or softmax, with
nothing but reshaping, indexing, casts or clamping between. Where the graph cannot be seen, by the values: on every
look the loss's input stayed inside 0..1 although it is free to take any value, and it does so to the end of training.

## How to fix it
Remove the sigmoid from the model's output and keep `BCEWithLogitsLoss`; apply `torch.sigmoid` where probabilities
are needed. Thresholds on the raw score are at 0, not at 0.5.

## Known false alarms
None known where the graph is seen. Gates (sigmoid times features) and squeeze-and-excitation blocks have layers
between themselves and the loss and are not reported.

## References
PyTorch documentation, torch.nn.BCEWithLogitsLoss ("combines a Sigmoid layer and the BCELoss in one single class").
Goodfellow, Bengio, Courville, "Deep Learning", 2016, section 6.2.2.2 (sigmoid output units).
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import TRAIN, GraphFact, LossCallFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.loss_graph import LossGraph, Operator
from torchdoctor.rules.places import known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(
    code="T002",
    name="sigmoid-before-bce-with-logits",
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
    ),
)

LOSS = "binary_cross_entropy_with_logits"
MIN_LOOKS = 3
"""Looks at the values that must agree where the graph is hidden: raw scores cross zero as soon as training begins."""
WIDE = 0.5
"""Scores that span half of 0..1 and never leave it are squashed, not just small."""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    calls = [f for f in run.facts(LossCallFact) if f.function == LOSS and f.phase == TRAIN]
    pair = _feeding(run)
    if pair is not None:
        yield _finding(run, calls, pair)
    elif _hidden_graph(run) and _stays_inside(calls):
        yield _finding(run, calls, None)
    elif calls and calls[-1].input_low is not None and calls[-1].input_low < 0:
        yield RuledOut(RULE.name, f"the loss gets raw scores, down to {calls[-1].input_low:.3g}")


def _feeding(run: Run) -> tuple[Operator, Operator] | None:
    for fact in reversed(run.facts(GraphFact)):
        graph = LossGraph(fact)
        for outer in graph.named("BinaryCrossEntropyWithLogits", "LogSigmoid"):
            for source in graph.sources(outer):
                if source.name in ("Sigmoid", "Softmax"):
                    return outer, source
    return None


def _hidden_graph(run: Run) -> bool:
    graphs = run.facts(GraphFact)
    return not graphs or all(g.opaque for g in graphs)


def _stays_inside(calls: list[LossCallFact]) -> bool:
    ranges = [(c.input_low, c.input_high) for c in calls if c.input_low is not None and c.input_high is not None]
    if len(ranges) < MIN_LOOKS or any(low < 0 or high > 1 for low, high in ranges):
        return False
    return max(high for _, high in ranges) - min(low for low, _ in ranges) >= WIDE


def _is_in_model(run: Run, squash: str) -> bool:
    """The last module that was called is the squashing one; a function may stand anywhere."""
    ordered = [m for m in run.modules.values() if m.order is not None]
    last = max(ordered, key=lambda m: m.order or 0, default=None)
    return last is not None and last.type == squash.capitalize()


def _finding(run: Run, calls: list[LossCallFact], pair: tuple[Operator, Operator] | None) -> Finding:
    evidence, places = [], [Place(file=c.file, line=c.line) for c in calls[-1:]]
    squash = "softmax" if pair and pair[1].name == "Softmax" else "sigmoid"
    if pair:
        outer, inner = pair
        places = [inner.place, *places, outer.place]
        where = f" (line {inner.place.line})" if inner.place.line else ""
        evidence.append(Evidence(f"in the graph the loss takes a {squash}'s output{where}"))
    ranges = [(c.input_low, c.input_high) for c in calls if c.input_low is not None and c.input_high is not None]
    if ranges:
        low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
        text = f"the scores given to the loss lie between {low:.3g} and {high:.3g} on every look"
        evidence.append(Evidence(text, signal="loss_call", value=high, threshold=1.0))
    evidence.append(Evidence("a negative example cannot cost less than 0.693 this way, a positive one 0.313"))
    place = "at the end of the model" if _is_in_model(run, squash) else "before the loss"
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.99 if pair else 0.8,
        proof=Proof.STRUCTURE if pair else Proof.STATISTICS,
        title=f"{squash} before {LOSS}: the sigmoid is applied twice",
        summary=f"The model's output has been through a {squash} before it reaches a loss that applies the sigmoid "
        "itself. Every probability is squeezed into 0.5 to 0.73, so the loss cannot come near zero.",
        where=known(*places),
        evidence=evidence,
        fix=Fix(
            f"Remove the {squash} {place} and give the raw scores to the loss.",
            f"loss = F.{LOSS}(logits, target)  # logits: the last layer's output, without {squash}",
        ),
        symptoms=("slow-descent", "stuck-at-chance"),
    )
