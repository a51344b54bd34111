"""The optimizer's own settings (momentum, betas, eps, damping) are outside any range in which it works.

## What it means
Apart from its learning rate an optimizer has settings that say how long it remembers and what it divides by. With a
momentum of 1 it never forgets: every gradient pushes for ever. With Adam's two betas exchanged the direction is
averaged over a thousand steps and the step size over ten. With an eps of 1 the division that makes Adam adaptive is
gone, and so is nearly all of the step. Such a run looks like a wrong learning rate, and no learning rate repairs it.

## Why it happens
- Values in the wrong order: `betas=(0.999, 0.9)`.
- A value meant for another argument: `momentum=1e-4` and `weight_decay=0.9`, eps given where decay was meant.
- A setting copied from another framework or optimizer, where the same name means something else.
- A search over hyperparameters without bounds.

## How it is detected
The groups of every optimizer are read as they are. An error: momentum or beta of 1 or more, damping that leaves nothing
of the gradient, an RMSprop average that never takes anything in, decay that takes the whole weight in one step. A
warning: momentum or beta1 from 0.995 on, beta2 under 0.5 or under beta1 squared (the condition under which Adam is
known to converge), eps of zero, and an eps that outweighs the gradients it is added to (ten times the typical gradient
and more) while the weights hardly move.

## How to fix it
Go back to the defaults of the optimizer and change the learning rate first: SGD momentum 0.9, Adam betas
(0.9, 0.999) and eps 1e-8, RMSprop alpha 0.99.

## Known false alarms
Adam with both betas 0 is descent by sign and is left alone; so are beta1 of 0 or 0.5 (adversarial training), beta2 of
0.9 and more, momentum of 0.99, and a large eps with a rate that makes up for it. Optimizers that are not torch's own
are not judged.

## References
Kingma and Ba, "Adam" (2015). Reddi, Kale and Kumar, "On the Convergence of Adam and Beyond" (2018). Sutskever et al.,
"On the importance of initialization and momentum in deep learning" (2013). Choi et al., "On Empirical Comparisons of
Optimizers for Deep Learning" (2019), on eps. Zhang et al., "Adam Can Converge Without Any Modification On Update
Rules" (2022), on beta2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from torchdoctor.facts import OptimizerFact
from torchdoctor.findings import Evidence, Finding, Fix, Place, Proof, Severity
from torchdoctor.rules import movement
from torchdoctor.rules.curves import figure
from torchdoctor.rules.places import receiver
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import GRADIENT, LEARNING_RATE, MOMENTUM

RULE = Rule(
    code="H010",
    name="optimizer-misconfigured",
    family="hyperparameters",
    needs=(OptimizerFact,),
    explains=(
        "learning-rate-too-high",
        "learning-rate-too-low",
        "learning-rate-oscillation",
        "missing-warmup",
        "weight-norm-growth",
        "abnormal-distribution",
        "exploding-gradients",
        "vanishing-gradients",
        "dead-relu",
        "saturated-activations",
        "nonfinite-parameters",
        "over-regularized",
        "batch-too-small",
        "underfitting",
        "capacity-too-low",
        "overfitting",
        "majority-class-collapse",
        "representation-collapse",
        "plateau-or-saddle",
    ),
)

ADAMS = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "SparseAdam")
LONG_MOMENTUM = 0.995
"""Two hundred steps of memory. Sutskever et al. (2013) went to 0.99 for full effect, with a schedule; 0.999 takes
steps a thousand times the rate."""
SHORT_BETA2 = 0.5
"""An average over two gradients is no estimate of their size. GANs go down to 0.9, small batches need more."""
LARGE_EPS = 1e-3
"""Defaults lie between 1e-10 and 1e-6; up to here reinforcement learning goes."""
OUTWEIGHS = 10.0
"""eps over the typical gradient: less than a tenth of the adaptive step is left."""
HARDLY_MOVES = 3e-4
"""Relative update of the weights; about 0.001 is usual. Above it, the rate makes up for the eps."""
SWAPPED = (0.99, 0.95)
"""beta1 from, beta2 up to: the default (0.9, 0.999) or the (0.9, 0.95) of language models, the wrong way round."""
CONVERGES = 0.95
"""Of beta1 squared, below which Zhang et al. (2022) give no convergence; a little room for settings at the bound."""
USUAL_EPS = 1e-8
"""torch's default for the Adam family."""
FASTEST = 0.9
"""Quantile over the looks of each matrix: one that moves as usual in a tenth of them is not held up by the eps."""
LEAST_STEPS = 10
"""Ten gradients are what the usual beta1 of 0.9 averages over; before that the steps are not typical."""
DEFAULTS = {
    "momentum": "momentum=0.9",
    "betas": "betas=(0.9, 0.999)",
    "eps": "eps=1e-08",
    "dampening": "dampening=0",
    "alpha": "alpha=0.99",
    "weight_decay": "weight_decay=0.01",
}


@dataclass(frozen=True)
class Fault:
    """One setting that cannot work."""

    setting: str
    value: float
    limit: float
    severity: Severity
    words: str
    proof: Proof = Proof.STRUCTURE


def detect(run: Run) -> Iterator[Finding]:
    for key, optimizer in run.optimizers.items():
        if optimizer.type not in movement.OF_TORCH:
            continue
        faults = [
            fault
            for number, group in enumerate(optimizer.groups)
            for fault in (*settings(optimizer.type, group), *_eps(run, optimizer.type, group, f"{key}.{number}"))
        ]
        if faults and _was_used(run, key):
            yield _finding(run, optimizer, sorted(faults, key=lambda f: f.severity.rank))
            return


def _was_used(run: Run, key: str) -> bool:
    return any(k.partition(".")[0] == key for k in run.keys(LEARNING_RATE))


def settings(kind: str, group: dict[str, Any]) -> Iterator[Fault]:
    """Settings that are wrong whatever the run does."""
    momentum = _number(group.get("momentum"))
    if momentum is not None and momentum >= 1:
        yield Fault("momentum", momentum, 1.0, Severity.ERROR, "no gradient is ever forgotten, so the steps only grow")
    elif momentum is not None and momentum >= LONG_MOMENTUM:
        words = f"each step is the sum of about {1 / (1 - momentum):,.0f} gradients, most of them long out of date"
        yield Fault("momentum", momentum, LONG_MOMENTUM, Severity.WARNING, words)
    dampening = _number(group.get("dampening"))
    if dampening is not None and dampening >= 1 and momentum:
        words = "after the first step no gradient enters the momentum any more"
        yield Fault("dampening", dampening, 1.0, Severity.ERROR, words)
    if kind in ADAMS:
        yield from _betas(group.get("betas"))
    alpha = _number(group.get("alpha"))
    if kind == "RMSprop" and alpha is not None and alpha >= 1:
        yield Fault("alpha", alpha, 1.0, Severity.ERROR, "the average of squares never takes a gradient in")
    decay, rate = _number(group.get("weight_decay")), _number(group.get("lr"))
    if decay and rate and kind in ("SGD", "AdamW") and decay * rate >= 1:
        words = f"rate times decay is {figure(decay * rate)}: one step takes away the whole weight"
        yield Fault("weight_decay", decay, 1 / rate, Severity.ERROR, words)


def _betas(betas: Any) -> Iterator[Fault]:
    if not isinstance(betas, (list, tuple)) or len(betas) != 2:
        return
    first, second = (_number(b) for b in betas)
    if first is None or second is None or first == second == 0:
        return
    if first >= SWAPPED[0] and second <= SWAPPED[1]:
        words = f"betas=({first:g}, {second:g}) are in the wrong order: the direction is averaged over "
        words += f"{1 / max(1 - first, 1e-9):,.0f} steps, the step size over {1 / (1 - second):,.0f}"
        yield Fault("betas", first, second, Severity.WARNING, words)
    elif first >= LONG_MOMENTUM:
        words = f"the direction of each step is an average over {1 / max(1 - first, 1e-9):,.0f} gradients"
        yield Fault("betas", first, LONG_MOMENTUM, Severity.WARNING, words)
    elif second < SHORT_BETA2:
        words = f"the step size rests on the last {1 / (1 - second):.1f} gradients, so it is mostly chance"
        yield Fault("betas", second, SHORT_BETA2, Severity.WARNING, words)
    elif second < CONVERGES * first**2:
        words = f"beta2 {second:g} is below beta1 squared ({first**2:.2g}), where Adam is not known to converge"
        yield Fault("betas", second, first**2, Severity.WARNING, words)


def _eps(run: Run, kind: str, group: dict[str, Any], key: str) -> Iterator[Fault]:
    """An eps of zero, or one beside which the gradients vanish and the steps with them."""
    eps = _number(group.get("eps"))
    if eps is None or kind not in (*ADAMS, "RMSprop", "Adagrad", "Adadelta"):
        return
    if eps == 0:
        words = "a parameter that got no gradient yet is divided by zero"
        yield Fault("eps", eps, USUAL_EPS, Severity.WARNING, words)
    if eps < LARGE_EPS or kind == "Adadelta":
        return
    gradients, moved = run.matrix(GRADIENT["absmean"]), movement.read(run)
    sizes = gradients.values[np.isfinite(gradients.values) & (gradients.values > 0)]
    if not len(sizes) or moved is None or not moved.measured or run.steps < LEAST_STEPS:
        return
    moves = moved.typical(FASTEST)
    moves = moves[np.isfinite(moves)]
    if not len(moves):
        return
    typical, ratio = float(np.median(sizes)), float(np.median(moves))
    if eps >= OUTWEIGHS * typical and ratio < HARDLY_MOVES:
        words = (
            f"the typical gradient is {figure(typical)}, so dividing by it plus eps takes {eps / typical:,.0f} times "
        )
        words += f"off the step; a step changes the weights by {figure(ratio)} of their size"
        yield Fault("eps", eps, typical * OUTWEIGHS, Severity.WARNING, words)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None


def _finding(run: Run, optimizer: OptimizerFact, faults: list[Fault]) -> Finding:
    worst = faults[0]
    shown = f"{worst.setting}={worst.value:g}"
    if worst.setting == "betas":
        first, second = next(g["betas"] for g in optimizer.groups if worst.value in g.get("betas", ()))
        shown = f"betas=({first:g}, {second:g})"
    settings = list(dict.fromkeys(f.setting for f in faults))
    return RULE.finding(
        severity=worst.severity,
        confidence=0.97 if worst.severity is Severity.ERROR else 0.9,
        proof=Proof.STRUCTURE,
        title=f"{optimizer.type} is set up with {shown}, which cannot work well",
        summary=f"With {shown} {worst.words}. No learning rate makes up for this.",
        fix=Fix(
            f"Go back to {', '.join(DEFAULTS[s] for s in settings)} and tune the learning rate instead.",
            _code(run, optimizer, settings),
        ),
        evidence=[
            Evidence(f"{f.setting}: {f.words}", MOMENTUM.name if f.setting == "momentum" else None, f.value, f.limit)
            for f in {f.setting: f for f in reversed(faults)}.values()
        ],
        where=[Place(file=optimizer.file, line=optimizer.line)] if optimizer.file else [],
        first_step=0,
        symptoms=("slow-descent",) if settings == ["eps"] else ("oscillating",),
    )


def _code(run: Run, optimizer: OptimizerFact, settings: list[str]) -> str:
    if len(optimizer.groups) > 1:
        changes = "; ".join(f"group['{s}'] = {DEFAULTS[s].partition('=')[2]}" for s in settings)
        return f"for group in {receiver(run, 'step', 'optimizer')}.param_groups: {changes}"
    rate = _number(optimizer.groups[0].get("lr")) or 1e-3
    return (
        f"{receiver(run, 'step', 'optimizer')} = torch.optim.{optimizer.type}(model.parameters(), lr={rate:g}, "
        f"{', '.join(DEFAULTS[s] for s in settings)})"
    )
