"""The optimizer climbs: the loss has the wrong sign, or the step goes the wrong way.

## What it means
Every update makes the criterion worse on purpose. The printed loss may even look good: a negated loss falls and falls
below zero while the predictions become as wrong as they can be. A classifier ends below chance, and the weights grow
until something overflows, because a loss has a floor but no ceiling.

## Why it happens
A minus sign from a formula that is maximised (`loss = -criterion(...)`), a log-likelihood that was not negated, a loss
turned into a reward, `maximize=True`, a learning rate below zero (a schedule that runs past its end, or a sign typed
into a group), a gradient that is negated on the way.

## How it is detected
The sign with which the training goes down is worked out: the loss as torch's function gave it against the loss that
backward began from, the operators between them (a negation), the optimizer's `maximize`, the sign of the rate. A loss
written by hand counts where the graph shows a squared or absolute difference, or a log-softmax, under the wrong sign.
Two flips cancel each other. The finding stands where an odd number of them remains and the criterion did not improve.
Without any such sign it is a warning where a known loss rises without a break from the first step on, with updates of
ordinary size (the first, and most while it is a number) and gradients that do not oppose each other, until the
predictions are far worse than a constant guess, and the optimizer's momentum and betas are sane (a memory that is too
long climbs just so).

## How to fix it
Give the criterion to backward as it is; remove `maximize=True`; keep the rate above zero.

## Known false alarms
Trainings with several optimizers, or several losses under different signs (adversarial networks, domain confusion,
unlearning with a term to keep the rest), are not reported; nor are rewards and policy gradients, which are not
criteria of torch, attacks that change an input instead of the model, and gradient reversal inside a model. A
training that means to forget by pure ascent is reported.

## References
PyTorch documentation, torch.optim.SGD (`maximize`). Goodfellow et al., "Generative Adversarial Nets", 2014, for ascent
that is meant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.facts import GraphFact, OptimizerFact, WiringFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import baseline, curves, movement
from torchdoctor.rules.curves import figure
from torchdoctor.rules.hyperparameters import optimizer_misconfigured
from torchdoctor.rules.loss_curve import LossCurve, loss_curve
from torchdoctor.rules.loss_graph import LossGraph, Operator
from torchdoctor.rules.movement import Movement
from torchdoctor.rules.places import call_places, call_site, known
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import ACCURACY_TRAIN, GRADIENT_COSINE, LEARNING_RATE, LOSS_CALLED, LOSS_TRAIN

RULE = Rule(
    code="T020",
    name="loss-sign-flipped",
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
        "weight-norm-growth",
        "majority-class-collapse",
        "clipping-too-tight",
        "overfitting",
        "underfitting",
        "exp-overflow",
        "abnormal-distribution",
        "metric-disagrees-with-loss",
        "inputs-and-labels-unrelated",
        "optimizer-misconfigured",
    ),
)

LEAST_STEPS = 5
IMPROVED = 0.97
"""A criterion below this share of its start has improved, so the updates cannot climb."""
SURE = 2.0
"""Standard errors by which the trend must point down; batches scatter."""
STEADY = 0.01
RISEN = 2.0
"""End over start of a loss that climbs without any sign of why."""
BLOCKS = 12
RISING_BLOCKS = 10
"""Of the 11 steps between the stretches' medians: all but one go up."""
BELOW_CHANCE = 0.5
"""Share of chance accuracy below which a classifier is wrong on purpose."""
SMALL_UPDATE = 0.02
"""Updates above this can throw the loss up by themselves (see learning-rate-too-high)."""
CRITERIA = frozenset(
    [
        *("MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "NllLoss", "NllLoss2D", "KlDiv"),
        *("BinaryCrossEntropy", "BinaryCrossEntropyWithLogits", "SoftMarginLoss", "MultiMarginLoss"),
    ]
)
ERRORS = frozenset(["Pow", "Abs", "Square", "LinalgVectorNorm", "Norm"])
CARRYING = frozenset(["Mean", "Sum", "Div", "Mul", "Add", "Sub", "Neg", "Sqrt", "Clone", "Rsub"])
PICKING = frozenset(["Gather", "Index", "Select", "Squeeze", "Unsqueeze", "View", "Diagonal", "TakeAlongDim"])


@dataclass(frozen=True)
class Flip:
    """One reason why the update goes up."""

    text: str
    fix: Fix
    where: tuple[Place, ...] = ()


def detect(run: Run) -> Iterator[Finding]:
    loss = loss_curve(run)
    if loss is None or len(loss.curve) < LEAST_STEPS or len(run.optimizers) != 1 or _trains_no_model(run):
        return
    optimizer = next(iter(run.optimizers.values()))
    negated = _negated(run, loss, optimizer)
    if negated is None:
        return
    flips = [*([negated] if isinstance(negated, Flip) else []), *_flips_of_step(run, optimizer)]
    if len(flips) % 2 and not _improved(run, loss):
        yield _finding(run, loss, flips)
    elif (
        not flips
        and baseline.never_negative(run)
        and not _overshoots(optimizer)
        and (worse := _climbs(run, loss)) is not None
    ):
        yield _unexplained(run, loss, worse)


def _overshoots(optimizer: OptimizerFact) -> bool:
    """Its settings alone carry the weights on long after the gradient has turned."""
    return any(True for group in optimizer.groups for _ in optimizer_misconfigured.settings(optimizer.type, group))


def _trains_no_model(run: Run) -> bool:
    """The optimizer holds none of the model's parameters: it changes an input (an attack, a picture)."""
    wiring = run.last_fact(WiringFact)
    if run.parameters and all(re.match(r"optimizer\d+\.group", name) for name in run.parameters):
        return True
    return wiring is not None and wiring.total > 0 and len({*wiring.unheld, *wiring.frozen}) >= wiring.total


def _negated(run: Run, loss: LossCurve, optimizer: OptimizerFact) -> Flip | bool | None:
    """The flip between criterion and backward; False where there is none; None where the sign is not known."""
    signs = [s for fact in run.facts(GraphFact) for s in signs_below(LossGraph(fact))]
    if +1 in signs and -1 in signs:
        return None
    factor = _factor(run)
    if factor is not None:
        if factor > 0 or +1 in signs:
            return False
        turned = -1 in signs or _is_steady(run)
        return _flip_of(run, "backward begins from the criterion with its sign turned") if turned else None
    if not signs or run.has(LOSS_CALLED):
        return None
    if +1 in signs or loss.curve.values.min() > 0:
        return False
    if -1 not in signs or loss.curve.values.max() >= 0:
        return None
    return _flip_of(run, "in the graph the error (or the log-likelihood) stands under the wrong sign")


def _factor(run: Run) -> float | None:
    """Sign of backward's loss over that of torch's criterion, where it is the same at every look."""
    called, trained = baseline.called_and_trained(run)
    if not baseline.never_negative(run):
        return None
    calls = baseline.loss_calls(run)
    if any(c.reduction == "none" for c in calls):
        return None  # each sample's loss may be weighed by a reward of either sign
    if any(c.function == "nll_loss" and (c.input_high or 0) > 0 for c in calls):
        return None
    if any(c.target_low is not None and c.function in baseline.BINARY and c.target_low < 0 for c in calls):
        return None
    ratios = np.sign(trained[(called > 0) & (trained != 0)])
    return float(ratios[0]) if len(ratios) and (ratios == ratios[0]).all() else None


def _is_steady(run: Run) -> bool:
    """Backward's loss is the criterion times one number: nothing else is in it."""
    called, trained = baseline.called_and_trained(run)
    ratios = trained[called > 0] / called[called > 0]
    return len(ratios) >= 2 and bool(np.ptp(ratios) < STEADY * abs(float(np.median(ratios))))


def _only_key(run: Run) -> str:
    keys = run.keys(LOSS_TRAIN)
    return next((k for k in keys if k), keys[0] if keys else "")


def signs_below(graph: LossGraph) -> list[int]:
    """The sign under which each criterion stands in the loss: 1, -1, or 0 where a factor on the way may turn it."""
    if not graph.operators:
        return []
    found: list[int] = []
    waiting: list[tuple[Operator, int]] = [(graph.operators[0], 1)]
    seen: set[tuple[int, int]] = set()
    while waiting:
        operator, sign = waiting.pop()
        if (operator.position, sign) in seen:
            continue
        seen.add((operator.position, sign))
        below = graph.inputs(operator)
        if operator.name in CRITERIA:
            found.extend([sign] if operator.shape in (None, ()) else [])
        elif operator.name in ERRORS:
            found.extend([sign] if any(s.name == "Sub" for s in graph.sources(operator)) else [])
        elif operator.name == "LogSoftmax":
            found.append(-sign)
        elif operator.name == "Neg":
            waiting.extend((o, -sign) for o in below)
        elif operator.name == "Sub" and len(below) == 2:
            waiting.extend([(below[0], sign), (below[1], -sign)])
        elif operator.name in ("Sub", "Rsub") or (operator.name == "Mul" and operator.shape not in (None, ())):
            continue
        elif operator.name in ("Mul", "Div"):
            waiting.extend((o, 0) for o in below)
        elif operator.name in CARRYING or operator.name in PICKING:
            waiting.extend((o, sign) for o in below)
    return found


def _flip_of(run: Run, text: str) -> Flip:
    graph = run.last_fact(GraphFact)
    negation = next((o for o in LossGraph(graph).named("Neg") if o.place.line), None) if graph else None
    call = next(iter(baseline.loss_calls(run)), None)
    places = known(*([negation.place] if negation else []), *([Place(file=call.file, line=call.line)] if call else []))
    site = call_site(run, "backward")
    return Flip(
        text,
        Fix(
            "Give backward the criterion itself: remove the minus sign (or negate a log-likelihood).",
            f"loss = -loss\n{site.code}" if site and site.code else "loss = -loss\nloss.backward()",
        ),
        places,
    )


def _flips_of_step(run: Run, optimizer: OptimizerFact) -> Iterator[Flip]:
    place = (Place(file=optimizer.file, line=optimizer.line),) if optimizer.file else ()
    rates = [run.scalar(LEARNING_RATE, key) for key in run.keys(LEARNING_RATE)]
    lowest = min((float(t.values.min()) for t in rates if len(t)), default=0.0)
    typical = [float(np.median(t.values)) for t in rates if len(t)]
    usual = abs(typical[0]) if typical and typical[0] else 1e-3
    if optimizer.groups and all(g.get("maximize") for g in optimizer.groups):
        yield Flip(
            f"{optimizer.type} was built with maximize=True",
            Fix("Build the optimizer without maximize=True.", movement.written(optimizer, usual)),
            place,
        )
    if typical and all(rate < 0 for rate in typical):
        yield Flip(
            f"the learning rate is negative, down to {figure(lowest)}",
            Fix("Keep the rate above zero.", f"for group in optimizer.param_groups: group['lr'] = {usual:.1g}"),
            place,
        )


def _criterion(run: Run, loss: LossCurve) -> tuple[float, float]:
    """The criterion's level at the start and the end, whatever its sign in backward."""
    called = curves.read(run.scalar(LOSS_CALLED))
    if len(called) >= 3:
        return float(np.median(called.values[:2])), float(np.median(called.values[-2:]))
    return abs(float(loss.curve.values[0])), abs(loss.end)


def _improved(run: Run, loss: LossCurve) -> bool:
    begin, end = _criterion(run, loss)
    if loss.broke_at is not None or not math.isfinite(end) or end >= IMPROVED * begin:
        return False
    return curves.trend(np.abs(loss.curve.values)).sigmas < -SURE or len(loss.curve) < BLOCKS


def _climbs(run: Run, loss: LossCurve) -> str | None:
    """How much worse than a constant guess a loss has become that rises from the first step to the last."""
    values = loss.curve.values
    heights = curves.blocks(values, BLOCKS)
    if len(heights) < BLOCKS or int((np.diff(heights) > 0).sum()) < RISING_BLOCKS or heights[-1] < RISEN * heights[0]:
        return None
    moved, chance = movement.read(run), baseline.chance(run)
    if moved is None or chance is None or not _are_small(moved.until(int(loss.curve.steps[-1]))):
        return None
    cosines = run.scalar(GRADIENT_COSINE).values
    if curves.median(cosines) < 0:  # it jumps from wall to wall: a rate too high climbs so
        return None
    accuracy, call = run.scalar(ACCURACY_TRAIN), baseline.only_call(run)
    if call is not None and call.classes and len(accuracy) >= 3:
        reached = float(np.median(accuracy.last(3).values))
        guessed = 1.0 / call.classes
        return f"{reached:.1%} right, chance is {guessed:.1%}" if reached < BELOW_CHANCE * guessed else None
    far = figure(heights[-1] / chance)
    return f"{far} times the loss of a constant guess" if heights[-1] > RISEN * chance else None


def _are_small(moved: Movement) -> bool:
    """At the start, and mostly: of what was updated while the loss was a number."""
    middle_S = moved.middle_S[np.isfinite(moved.middle_S)]
    return bool(len(middle_S)) and max(float(middle_S[0]), float(np.median(middle_S))) < SMALL_UPDATE


def _finding(run: Run, loss: LossCurve, flips: list[Flip]) -> Finding:
    begin, end = _criterion(run, loss)
    reasons = ", and ".join(f.text for f in flips)
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.96,
        proof=Proof.STRUCTURE,
        title=f"the optimizer climbs: {flips[0].text}",
        summary=f"Every update makes the criterion worse ({reasons}): it went from {figure(begin)} to {figure(end)}.",
        where=known(*(p for f in flips for p in f.where), *call_places(run, "backward")),
        first_step=0,
        evidence=[
            *(Evidence(f.text) for f in flips),
            Evidence(
                f"the criterion went from {figure(begin)} to {figure(end)}",
                LOSS_CALLED.name if run.has(LOSS_CALLED) else LOSS_TRAIN.name,
                end,
                begin,
                loss.spark,
            ),
            *_accuracy(run),
        ],
        fix=flips[0].fix,
        symptoms=("diverging",),
    )


def _unexplained(run: Run, loss: LossCurve, worse: str) -> Finding:
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.75,
        title="the loss rises steadily from the first step: the updates go the wrong way",
        summary=f"The loss climbs without a break and with updates of ordinary size, to {worse}. A rate that is too "
        "high would throw it about; this is a gradient followed upwards.",
        where=call_places(run, "backward", "step"),
        first_step=int(loss.curve.steps[0]),
        evidence=[
            Evidence(
                f"the loss went from {figure(loss.begin)} to {figure(loss.end)}, {worse}",
                LOSS_TRAIN.name,
                loss.end,
                loss.begin,
                loss.spark,
            ),
        ],
        fix=Fix(
            "Look for a sign between the loss and the update: a negated gradient, an optimizer that adds its step.",
            "before = loss.item()  # the same batch once more after optimizer.step() must give less",
        ),
        symptoms=("diverging",),
    )


def _accuracy(run: Run) -> Iterator[Evidence]:
    accuracy, call = run.scalar(ACCURACY_TRAIN), baseline.only_call(run)
    if len(accuracy) >= 3 and call is not None and call.classes:
        reached = float(np.median(accuracy.last(3).values))
        text = f"{reached:.1%} of the batch is classified right at the end; chance is {1 / call.classes:.1%}"
        yield Evidence(text, ACCURACY_TRAIN.name, reached, 1 / call.classes)
