"""Gradients are many times larger than those of the mean loss, and the rate does not know it.

## What it means
Plain gradient descent moves by rate times gradient. A loss that is summed over the batch instead of averaged, several
backwards whose gradients are added without dividing, or a loss multiplied by a constant make the gradient, and so
every step, that many times longer. A rate that is usual for a mean then throws the weights off; and with a sum the
right rate changes whenever the batch does.

## Why it happens
`reduction="sum"` or `.sum()` from a formula; gradient accumulation without `loss / k`; a loss multiplied by the batch
size for a running total and then given to backward; a weight for one term that was meant for another scale.

## How it is detected
The loss that backward begins from is divided by the mean that torch's loss function gave (or the graph's last operator
is a sum over so many elements), and multiplied by the number of backwards in an update. The finding stands where this
is several times one, the optimizer is one whose steps grow with the gradient, the loss went wrong as it does when
steps are too long, and the updates divided by the factor would have been ordinary. Where backwards are added without
dividing and the loss has stopped at a level that steps of this length explain and divided ones do not, it is a
warning.

## How to fix it
`reduction="mean"`, `.mean()`, `(loss / accumulate).backward()`. If a sum is meant, divide the rate by the number of
samples.

## Known false alarms
Adam and its kin divide the gradient's size out, so nothing is reported for them. A sum with a rate to match trains well
and is not reported; accumulation without division that trains well is a remark. Two losses with a backward each
are not accumulation.

## References
Goyal et al., "Accurate, Large Minibatch SGD", 2017 (the rate belongs to the mean over the batch). PyTorch
documentation, "Automatic Mixed Precision examples", gradient accumulation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import GraphFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import baseline, curves, movement, settling
from torchdoctor.rules.curves import figure
from torchdoctor.rules.hyperparameters import learning_rate_too_high as divergence
from torchdoctor.rules.loss_graph import LossGraph
from torchdoctor.rules.places import call_places, call_site, known
from torchdoctor.rules.rule import Rule
from torchdoctor.rules.settling import Settling
from torchdoctor.run import Run
from torchdoctor.signals import LOSS_CALLED, LOSS_EVENTS, LOSS_TRAIN, UPDATE_RATIO

RULE = Rule(
    code="T010",
    name="unintended-gradient-scale",
    family="procedure",
    needs=(LOSS_TRAIN,),
    explains=(
        "learning-rate-too-high",
        "learning-rate-oscillation",
        "exploding-gradients",
        "vanishing-gradients",
        "nonfinite-parameters",
        "dead-relu",
        "saturated-activations",
        "clipping-too-tight",
        "weight-norm-growth",
        "majority-class-collapse",
        "overfitting",
        "underfitting",
        "plateau-or-saddle",
        "abnormal-distribution",
        "exp-overflow",
    ),
)

LARGE = 4.0
"""Times the mean loss's gradient. Below it the usual margin of a rate (a factor of two to three) may cover it."""
ORDINARY = 0.3
"""Relative change of the weights in the first update, divided by the factor, that training would have survived: runs
that learn reach 0.6 in their first step (see learning-rate-too-high)."""
STEADY = 0.1
"""Relative scatter of the factor over the looks; a weight that changes with the batch is no constant."""


@dataclass(frozen=True)
class Factor:
    """How much larger the gradient of an update is than that of the mean loss, and why."""

    loss: float
    """of each backward's loss over the mean"""
    backwards: float
    summed: bool
    measured: bool
    """by the values; False where the graph alone tells"""

    @property
    def total(self) -> float:
        return self.loss * self.backwards


def detect(run: Run) -> Iterator[Finding]:
    if len(run.optimizers) != 1 or next(iter(run.optimizers.values())).type not in movement.PLAIN[:2]:
        return
    keys = run.keys(LOSS_TRAIN)
    if not keys:
        return
    key = next((k for k in keys if k), keys[0])
    factor = _factor(run)
    if factor is None or factor.total < LARGE:
        return
    curve = curves.read(run.scalar(LOSS_TRAIN, key))
    first = _first_update(run)
    if len(curve) and _went_wrong(run, curve, factor) and (first is None or first / factor.total < ORDINARY):
        yield _finding(run, curve, factor, first)
    elif factor.backwards >= LARGE and abs(factor.loss - 1) < STEADY and _one_backward_site(run):
        yield _remark(run, factor, _bounce(run, factor))


def _bounce(run: Run, factor: Factor) -> Settling | None:
    """The end of a run that steps of this length keep up, and steps divided as they should be would not: what they hold
    the loss up by goes with the square of the gradient."""
    state = settling.read(run)
    if state is None or not state.flat or state.excess < settling.MOST_OF_LOSS:
        return None
    return state if state.excess / factor.total**2 < settling.MOST_OF_LOSS else None


def _factor(run: Run) -> Factor | None:
    events = run.scalar(LOSS_EVENTS)
    backwards = float(np.median(events.values)) if len(events) * events.merged >= 2 else 1.0
    if backwards > 1 and not _one_backward_site(run):
        return None
    calls = baseline.loss_calls(run)
    bottom, top = baseline.called_and_trained(run)
    if calls and len({(c.function, c.line) for c in calls}) == 1 and len(bottom):
        ratio = top[bottom > 0] / bottom[bottom > 0]
        if not len(ratio):
            return None
        middle = float(np.median(ratio))
        full = ratio[: max(1, len(ratio) // 2)]
        if middle <= 0 or float(np.median(np.abs(full - middle))) > STEADY * middle:
            return None
        middle /= baseline.division(run)  # recorded losses are undivided, gradients are not
        return Factor(middle, backwards, calls[-1].reduction == "sum", True)
    if not calls and (summed := _summed_elements(run)) is not None:
        return Factor(float(summed), backwards, True, False)
    return None


def _summed_elements(run: Run) -> int | None:
    """Elements that the loss adds up, where the graph ends in a plain sum."""
    fact = run.last_fact(GraphFact)
    if fact is None or not fact.nodes:
        return None
    graph = LossGraph(fact)
    root = graph.operators[0]
    while root.name == "Neg" and len(graph.inputs(root)) == 1:
        root = graph.inputs(root)[0]
    if root.name != "Sum" or root.shape not in (None, ()):
        return None
    below = graph.inputs(root)
    return math.prod(below[0].shape) if len(below) == 1 and below[0].shape else None


def _one_backward_site(run: Run) -> bool:
    return run.phase is None or len(run.phase.loss_sites) <= 1


def _first_update(run: Run) -> float | None:
    moved = movement.read(run)
    if moved is None or not len(moved):
        return None
    first = float(moved.middle_S[0])
    return first if math.isfinite(first) else None


def _went_wrong(run: Run, curve: curves.Curve, factor: Factor) -> bool:
    """The loss went the way of steps that are too long, judged by the level of a constant guess where it is known."""
    moved = movement.read(run)
    mean = _chance(run)
    guess = mean * factor.loss if mean is not None else None
    start = divergence.start_of(curve, guess, moved)
    idle = min(start, guess) if guess is not None else start
    course = divergence.course_of(curve, start, idle, adversarial=False)
    if course is None:
        return False
    updates = divergence.updates_before(moved, int(curve.steps[-1]) if course.how == "stuck" else course.onset)
    return divergence.is_proved(course, updates, known_start=guess is not None)


def _chance(run: Run) -> float | None:
    """The mean loss of a constant guess, whatever the reduction."""
    calls = baseline.loss_calls(run)
    if not calls:
        return None
    call = calls[-1]
    if call.function in baseline.CLASSIFICATION:
        return math.log(call.classes) if call.classes and call.classes > 1 else None
    if call.function in baseline.BINARY:
        return math.log(2)
    spread = baseline.targets(run)
    return spread.std**2 if spread is not None and spread.std and call.function in baseline.SQUARED else None


def _reason(factor: Factor, function: str) -> tuple[str, Fix]:
    if factor.summed and factor.loss >= LARGE:
        return (
            f"the loss is a sum over {factor.loss:.0f} elements",
            Fix("Average the loss over the batch.", f'loss = F.{function}(output, target, reduction="mean")')
            if factor.measured
            else Fix("Average the loss over the batch.", f"loss = loss / {factor.loss:.0f}  # or .mean() for .sum()"),
        )
    if factor.backwards >= LARGE / 2 and factor.loss < LARGE:
        return (
            f"the gradients of {factor.backwards:.0f} backwards are added without dividing",
            Fix(
                "Divide the loss by the number of backwards in an update.",
                f"(loss / {factor.backwards:.0f}).backward()",
            ),
        )
    return (
        f"the loss is {factor.loss:.3g} times what the loss function gives",
        Fix("Give backward the loss as it is.", f"(loss / {factor.loss:.3g}).backward()"),
    )


def _finding(run: Run, curve: curves.Curve, factor: Factor, first: float | None) -> Finding:
    calls = baseline.loss_calls(run)
    reason, fix = _reason(factor, calls[-1].function if calls else "")
    end = "NaN" if curve.broke_at is not None else figure(curves.level(curve.values))
    went = f"the loss went from {figure(float(curve.values[0]))} to {end}"
    evidence = [
        Evidence(
            f"an update's gradient is {factor.total:.0f} times that of the mean loss: {reason}",
            LOSS_CALLED.name if factor.measured else GraphFact.kind,
            factor.total,
            LARGE,
        ),
        Evidence(went, LOSS_TRAIN.name, float(curve.values.max()), None, curves.spark(curve.values)),
    ]
    if first is not None:
        mean = figure(first / factor.total)
        text = f"the first update changed the weights by {figure(first)}; by the mean it would be {mean}"
        evidence.append(Evidence(text, UPDATE_RATIO.name, first, ORDINARY))
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.9,
        proof=Proof.STRUCTURE,
        title=f"gradients are {factor.total:.0f} times too large for this rate: {reason}",
        summary=f"With this optimizer a step is as long as the gradient is large, and {went}.",
        where=known(*(Place(file=c.file, line=c.line) for c in calls[-1:]), *call_places(run, "backward")),
        first_step=int(curve.steps[0]),
        evidence=evidence,
        fix=fix,
        symptoms=("diverging",),
    )


def _remark(run: Run, factor: Factor, bounce: Settling | None) -> Finding:
    reason, fix = _reason(factor, "")
    site = call_site(run, "backward")
    evidence = [
        Evidence(
            f"{factor.backwards:.0f} backwards an update, each with the full loss",
            LOSS_EVENTS.name,
            factor.backwards,
            1.0,
        )
    ]
    if bounce is not None:
        text = f"steps of this length alone hold the loss up at {figure(bounce.level)}, where it has stopped falling"
        evidence.append(Evidence(text, LOSS_TRAIN.name, bounce.excess, settling.MOST_OF_LOSS))
    return RULE.finding(
        severity=Severity.INFO if bounce is None else Severity.WARNING,
        confidence=0.6 if bounce is None else 0.85,
        proof=Proof.STRUCTURE,
        title=f"{reason}: the rate acts {factor.total:.0f} times as strong",
        summary="Training copes with it here; a change of the number of backwards would need another rate."
        if bounce is None
        else "The steps are too long for the loss to settle; divided by the number of backwards they are not.",
        where=known(Place(file=site.file, line=site.line)) if site else (),
        evidence=evidence,
        fix=fix,
    )
