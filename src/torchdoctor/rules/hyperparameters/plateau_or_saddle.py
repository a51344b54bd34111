"""Gradients nearly vanish though the loss is far from its floor: the model stands on a plateau or a saddle.

## What it means
The loss has stopped falling, and not because there is nothing left to learn. Around these weights there is hardly any
slope to follow. On a plateau the loss is level in nearly every direction; on a saddle it curves down in some direction,
but the gradient does not point there. Both look like convergence on a loss curve, and longer training does not help.

## Why it happens
- Units are dead or saturated, or gradients vanish on their way through the depth: the weights hardly matter any more.
- All weights of a layer started alike (zeros, one constant): a symmetric start is a saddle.
- A schedule or a small rate that leaves no noise to be carried off a saddle by.
- A task whose first step is hard to find by slope, such as parity or long memory.

## How it is detected
By `torchdoctor.sharpness` (or `torchdoctor sharpness train.py --checkpoint FILE`), which measures the gradient, the
largest and smallest eigenvalue of the Hessian by Lanczos and what noise in the weights does to the loss. The place has
to be flat or a saddle, and the loss has to be at least half as far above its floor as one answer for all samples is.
Where floor or guess are not known, it is an info. A run alone does not hold the curvature, so this is never examined
there.

## How to fix it
Look for the cause above it first: `torchdoctor check` names dead units, vanishing gradients and symmetric starts. From
a saddle momentum, a larger rate or a smaller batch lead away. From a plateau only another start does: another
initialisation, normalisation or residual connections, a curriculum of easier samples.

## Known false alarms
A loss whose floor is above the one assumed, as that of labels that are partly noise. Weights that are held small by
regularisation make every place look flat. A model that is too small for its task, at the best it can do: that is a
minimum whose bowl is shallow beside the loss. `torchdoctor.overfit_batch` tells these: on a plateau a few samples
cannot be memorised either, or only from another start.

## References
Dauphin et al., "Identifying and attacking the saddle point problem", 2014. Ghorbani et al., "An Investigation into
Neural Net Optimization via Hessian Eigenvalue Density", 2019. Shalev-Shwartz et al., "Failures of Gradient-Based Deep
Learning", 2017.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdoctor.facts import LandscapeFact
from torchdoctor.facts.places import FLAT, SADDLE
from torchdoctor.findings import Evidence, Finding, Fix, RuledOut, Severity
from torchdoctor.rules.curves import figure
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run

RULE = Rule(code="H011", name="plateau-or-saddle", family="hyperparameters", needs=(LandscapeFact,))

FAR = 0.5
"""Share of the way from the floor up to one answer for all samples, above which a model has learned little."""
KNOWN, ASSUMED = 0.9, 0.6


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    fact = run.last_fact(LandscapeFact)
    if fact is None or not fact.place:
        return
    learned = _left(fact)
    if fact.place not in (FLAT, SADDLE):
        yield RuledOut(RULE.name, f"the model stands on a {fact.place}, not on a plateau or a saddle")
    elif learned is not None and learned < FAR:
        yield RuledOut(RULE.name, f"the loss {figure(fact.loss)} is near its floor {figure(fact.floor or 0.0)}")
    elif fact.place == SADDLE or learned is not None:
        yield _finding(fact, learned)


def _left(fact: LandscapeFact) -> float | None:
    """What is left to learn, over all there is."""
    if fact.floor is None or fact.guess is None or fact.guess <= fact.floor:
        return None
    return (fact.loss - fact.floor) / (fact.guess - fact.floor)


def _finding(fact: LandscapeFact, left: float | None) -> Finding:
    saddle = fact.place == SADDLE
    evidence = [
        Evidence(
            f"the best single step along the gradient (norm {figure(fact.gradient_norm)}) would lower the loss "
            f"{figure(fact.loss)} by {figure(fact.gain)}",
            "gain",
            fact.gain,
        ),
        Evidence(
            f"curvature from {figure(fact.smallest)} to {figure(fact.largest)}",
            "smallest eigenvalue",
            fact.smallest,
            0.0,
        ),
    ]
    if left is not None:
        evidence.append(
            Evidence(
                f"{left:.0%} is left of the way from one answer for all samples ({figure(fact.guess or 0.0)}) down to "
                f"the floor ({figure(fact.floor or 0.0)})",
                "left to learn",
                left,
                FAR,
            )
        )
    return RULE.finding(
        severity=Severity.WARNING if left is not None else Severity.INFO,
        confidence=KNOWN if left is not None else ASSUMED,
        title=f"the model stands on a {'saddle' if saddle else 'plateau'}",
        summary=fact.text,
        evidence=evidence,
        fix=Fix(
            "Leave it by noise: add momentum, raise the rate or take smaller batches; a symmetric start needs random "
            "weights."
            if saddle
            else "Look for dead units and vanishing gradients (torchdoctor check train.py), and start from other "
            "weights: waiting does not help.",
            "optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9)" if saddle else None,
        ),
        symptoms=("flat-after-drop",),
    )
