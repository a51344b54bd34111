"""All units of a layer start equal, and stay equal.

## What it means
Units with the same weights compute the same output, get the same gradient and make the same step: they remain copies of
each other for ever. A layer of 256 such units is a layer of one. With all weights at zero it is worse: nothing but the
last bias ever changes.

## Why it happens
Weights were initialised with a constant (zeros, ones, 0.01) by hand, in a custom module (`torch.zeros(...)` as a
parameter), or by an init function that was meant for biases and was applied to everything.

## How it is detected
For every weight matrix of more than one unit the largest difference between its units is measured on the first steps,
in the weight and in its gradient. The finding needs both to be nothing at all: the weights are equal at the first look,
and after several updates they still are, with gradients that are equal for all units or exactly zero. That is proof:
what only starts equal (a zero-initialised last layer, the second factor of a LoRA adapter, the last layer of a residual
branch) gets different gradients and comes apart with the first update.

## How to fix it
Start weights at random: leave PyTorch's default, or use `nn.init.kaiming_normal_` or `nn.init.xavier_uniform_`.
Only biases may start at zero.

## Known false alarms
None known: a layer whose units stay equal has no use for more than one of them. Frozen layers and layers the loss does
not reach are left out.

## References
Goodfellow, Bengio, Courville, "Deep Learning", 2016, section 8.4 (breaking symmetry between units).
Rumelhart, Hinton, Williams, "Learning internal representations by error propagation", 1986.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchdoctor.distributions.gaps import nanmin
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, RuledOut, Severity
from torchdoctor.rules.architecture.depth import Layer, initializer, stacks
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Ints, Run
from torchdoctor.signals import GRADIENT_L2, GRADIENT_UNIT_SPREAD, WEIGHT_L2, WEIGHT_UNIT_SPREAD, Signal

RULE = Rule(
    of_code=True,
    code="A005",
    name="symmetric-initialization",
    family="architecture",
    needs=(WEIGHT_UNIT_SPREAD, GRADIENT_UNIT_SPREAD),
    explains=(
        "dead-relu",
        "vanishing-gradients",
        "bad-initialization-scale",
        "no-parameter-update",
        "learning-rate-too-low",
        "plateau-or-saddle",
        "underfitting",
        "capacity-too-low",
        "representation-collapse",
        "majority-class-collapse",
        "saturated-activations",
    ),
)

EQUAL = 1e-6
"""Of the largest weight: single precision keeps seven digits."""
STILL_EQUAL = 1e-3
"""After updates: equal sums added in another order differ in the last digits, and that grows a little by training."""
MIN_UPDATES = 3


@dataclass(frozen=True)
class Symmetric:
    layer: Layer
    zero: bool
    """its weights are all zero"""
    steps: int
    """updates over which it stayed so"""


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    found = [s for layers in stacks(run) for layer in layers if (s := symmetric_layer(run, layer))]
    if found:
        yield _finding(run, found)
    elif len(spread := run.matrix(WEIGHT_UNIT_SPREAD).first(1).values) and np.isfinite(spread).any():
        least = float(nanmin(spread))
        if least > EQUAL:
            text = f"units start different in all {int(np.isfinite(spread).sum())} weight matrices that were compared"
            yield RuledOut(RULE.name, text, WEIGHT_UNIT_SPREAD.name, least)


def symmetric_layer(run: Run, layer: Layer) -> Symmetric | None:
    weight, gradient = run.matrix(WEIGHT_UNIT_SPREAD), run.matrix(GRADIENT_UNIT_SPREAD)
    if layer.units < 2 or layer.name not in weight.columns:
        return None
    spread = weight.column(layer.name)
    zero_S = _zeros(run, WEIGHT_L2, layer.name, spread.steps)
    values = np.where(zero_S, 0.0, spread.values)
    known = np.isfinite(values)
    steps, values = spread.steps[known], values[known]
    if len(values) < 2 or steps[-1] - steps[0] < MIN_UPDATES:
        return None
    if values[0] > EQUAL or values.max() > STILL_EQUAL:
        return None
    if layer.name not in gradient.columns:
        return None
    seen = gradient.column(layer.name)
    differs = seen.values[np.isfinite(seen.values)]
    stands_still = _zeros(run, GRADIENT_L2, layer.name, run.matrix(GRADIENT_L2).steps)
    equal_gradients = len(differs) >= 2 and float(np.max(differs)) <= STILL_EQUAL
    no_gradients = not len(differs) and len(stands_still) >= 2 and bool(stands_still.all())
    if not equal_gradients and not no_gradients:
        return None
    return Symmetric(layer, bool(zero_S[known].all()), int(steps[-1] - steps[0]))


def _zeros(run: Run, signal: Signal, name: str, steps: Ints) -> NDArray[np.bool_]:
    """At which of the steps the norm of that tensor was exactly zero."""
    trace = run.matrix(signal)
    if name not in trace.columns:
        return np.zeros(len(steps), bool)
    column = trace.column(name)
    zero_at = set(column.steps[column.values == 0].tolist())
    return np.array([int(s) in zero_at for s in steps], bool)


def _finding(run: Run, found: list[Symmetric]) -> Finding:
    first = found[0]
    kind = "zero" if first.zero else "equal"
    names = ", ".join(s.layer.name for s in found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
    evidence = [
        Evidence(
            f"{s.layer.name}: its {s.layer.units} units "
            + ("are all zero" if s.zero else "have the same weights")
            + f" at the start and still after {s.steps} updates",
            WEIGHT_UNIT_SPREAD.name,
            0.0,
            STILL_EQUAL,
        )
        for s in found[:3]
    ]
    evidence.append(
        Evidence("their gradients are the same for every unit, or zero, so training cannot tell them apart")
    )
    return RULE.finding(
        severity=Severity.ERROR,
        confidence=0.98,
        proof=Proof.STRUCTURE,
        title=f"all units of {names} start {kind} and stay so",
        summary=f"Every unit of {'this layer' if len(found) == 1 else 'these layers'} computes the same thing and gets "
        "the same gradient, so the layer is worth a single unit however wide it is.",
        where=[Place(module=s.layer.module, parameter=s.layer.name) for s in found[:4]],
        first_step=0,
        evidence=evidence,
        fix=Fix(
            "Start the weights at random; only biases may start at a constant.",
            initializer(run, [s.layer for s in found]),
        ),
        symptoms=("flat-from-start", "stuck-at-chance"),
    )
