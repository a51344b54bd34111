"""Most units of a ReLU layer give zero for every sample, and cannot come back.

## What it means
A ReLU whose input is negative for every sample outputs zero and passes no gradient. Such a unit is dead: nothing that
reaches it can change the weights that keep it negative. If most of a layer is dead, the layers before it are cut off
from the loss, and the model's output hardly depends on its input.

## Why it happens
- One or a few steps that were too large pushed the biases far below zero (a too high learning rate, a spike).
- Biases or weights were initialised negative, or the inputs are large and of one sign.
- A long stack without normalisation, whose activations drift.

## How it is detected
For every ReLU-like activation the share of units that were zero for every sample of every batch in the recent window is
recorded. By chance alone about half of a deep layer's units may be off for all samples of a fresh network, so the bar
is half plus three standard deviations of that chance, and at least 60 %. It has to be passed in the last half of the
looks; unless the whole layer is silent, looks count only from 64 samples on, since a living unit that fires for one
sample in twenty is silent in fewer by chance. It counts as a fault where the units were dead before the loss had
fallen, or where the loss goes nowhere; units that fall silent in a model that learns well are information only: sparse
codes look like that, and so does a model that has memorised its samples. A loss that is down to a tenth of where it
began and of what a constant guess scores is never held against dead units.

## How to fix it
Lower the learning rate or warm it up; start biases at zero and weights by Kaiming; normalise inputs; use LeakyReLU or
GELU, which let some gradient through. Dead units do not recover by training on.

## Known false alarms
Units that react to rare inputs look dead if the window of batches is small. A layer that is meant to be sparse is
reported as information at most, as long as the loss falls.

## References
Maas, Hannun, Ng, "Rectifier nonlinearities improve neural network acoustic models", 2013.
Lu et al., "Dying ReLU and initialization: theory and numerical examples", 2019.
He et al., "Delving deep into rectifiers", 2015.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.distributions.gaps import nanmax, nanmedian
from torchdoctor.facts import TRAIN
from torchdoctor.findings import Evidence, Finding, Fix, Place, RuledOut, Severity
from torchdoctor.rules import baseline, curves
from torchdoctor.rules.architecture.depth import reference
from torchdoctor.rules.loss_curve import STUCK, LossCurve, broken_at, loss_curve
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run, Trace
from torchdoctor.signals import ACTIVATION, BATCH_SIZE, WEIGHT

DEAD = ACTIVATION["dead"]

RULE = Rule(
    code="A003",
    name="dead-relu",
    family="architecture",
    needs=(DEAD,),
    explains=(
        "vanishing-gradients",
        "learning-rate-too-low",
        "plateau-or-saddle",
        "underfitting",
        "capacity-too-low",
        "majority-class-collapse",
        "representation-collapse",
    ),
)

LEAST = 0.6
CHANCE = 0.5
"""In a deep fresh net samples become alike, and the sign of a unit's input is one coin for all of them."""
SIGMAS = 3.0
CUT = 0.98
"""Hardly a unit is left: the layer passes next to nothing."""
MIN_LOOKS = 3
LOW_BIAS = -0.5
"""Mean of a bias at the first look. Usual initialisations are symmetric around zero and within 0.5."""
LEARNED = 0.3
"""A loss that lost a third of its start belongs to a model that learns with the units it has left."""
SOLVED = 0.1
"""Of the first loss, and of a constant guess's: with less than a tenth left, nobody misses the dead units."""
WINDOW = 8
"""Looks over which the probe counts a unit as silent."""
MIN_SAMPLES = 64
"""A unit that fires for one sample in twenty is silent in 64 of them with a chance of 4 %, in 16 with one of 44 %."""


@dataclass(frozen=True)
class Layer:
    name: str
    share: float
    """dead at the end (median over the last half of the looks)"""
    onset: int
    """first step from which on it stayed above the bar"""
    bar: float
    trace: Trace


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    until, trace = broken_at(run), run.matrix(DEAD)
    if until is not None:
        trace = trace.between(0, until - 1)
    if len(trace) < MIN_LOOKS:
        return
    layers = [layer for name in trace.columns if (layer := dead_layer(run, name, trace.column(name)))]
    if layers:
        yield _finding(run, layers)
        return
    last = trace.values[len(trace) // 2 :]
    if np.isfinite(last).any():
        most = float(nanmax(nanmedian(last[:, np.isfinite(last).any(axis=0)], axis=0)))
        if most >= CHANCE:
            return
        yield RuledOut(RULE.name, f"at most {most:.0%} of a layer's units are dead", DEAD.name, most)


def dead_layer(run: Run, name: str, trace: Trace) -> Layer | None:
    finite = np.isfinite(trace.values)
    steps, values = trace.steps[finite], trace.values[finite]
    enough = (_samples(run, len(values)) >= MIN_SAMPLES) | (values >= CUT)
    steps, values = steps[enough], values[enough]
    if len(values) < MIN_LOOKS:
        return None
    module = run.modules.get(name)
    units = module.units if module and module.units else 0
    bar = max(LEAST, CHANCE + SIGMAS * math.sqrt(CHANCE * (1 - CHANCE) / units)) if units else 0.9
    bar = min(bar, 1.0)  # of few units all have to be silent: then the layer passes nothing, which is no chance
    late = values[len(values) // 2 :]
    if not np.all(late >= bar):
        return None
    below = np.flatnonzero(values < bar)
    onset = int(steps[below[-1] + 1]) if len(below) else int(steps[0])
    return Layer(name, float(np.median(late)), onset, bar, trace)


def _samples(run: Run, looks: int) -> curves.Floats:
    """Samples behind each look's share: those of the looks in the probe's window. Enough where the size is unknown, and
    where the window is full: smaller batches have none with more."""
    sizes = run.scalar(BATCH_SIZE, TRAIN).values
    sizes = sizes[np.isfinite(sizes)]
    batch = max(float(np.median(sizes)) if len(sizes) else float(MIN_SAMPLES), MIN_SAMPLES / WINDOW)
    return batch * np.minimum(np.arange(1, looks + 1), WINDOW)


def _solved(run: Run, loss: LossCurve) -> bool:
    guess = baseline.chance(run)
    return loss.end >= 0 and loss.end <= SOLVED * min(loss.begin, loss.begin if guess is None else guess)


def _judge(run: Run, layers: list[Layer]) -> tuple[Severity, float]:
    loss = loss_curve(run)
    if loss is None:
        return Severity.INFO, 0.5
    worst = max(layer.share for layer in layers)
    early = min(layer.onset for layer in layers)
    if loss.stuck:
        return Severity.ERROR if worst >= CUT else Severity.WARNING, 0.9
    if _solved(run, loss):
        return Severity.INFO, 0.6
    if loss.fell >= LEARNED and loss.fell_until(early) >= STUCK:
        return Severity.INFO, 0.6
    return (Severity.WARNING, 0.8) if early <= _begin(run) or loss.fell < LEARNED else (Severity.INFO, 0.6)


def _begin(run: Run) -> int:
    """The first tenth of the run: what is dead by then did not come from learning."""
    return max(10, run.steps // 10)


def low_bias(run: Run, name: str) -> tuple[str, float] | None:
    """The bias of the layer before this activation and its mean at the first look, where that is far below zero."""
    _, after, owner = name.partition(" after ")
    if not after:
        biased = {p.module for p in run.parameters.values() if p.name.endswith("bias")}
        before = (
            [n for n in list(run.modules)[: list(run.modules).index(name)] if n in biased]
            if name in run.modules
            else []
        )
        owner = before[-1] if before else ""
    means = run.matrix(WEIGHT["mean"]).first(1)
    bias = f"{owner.partition(' #')[0]}.bias"
    if not len(means) or bias not in means.columns:
        return None
    mean = float(means.column(bias).values[0])
    return (bias, mean) if mean <= LOW_BIAS else None


def remedy(name: str, from_start: bool, bias: str | None) -> Fix:
    if bias:
        return Fix("Start the biases at zero.", f"nn.init.zeros_({reference(bias)})")
    leaking = "x = F.leaky_relu(x, 0.01)  # instead of F.relu(x)"
    return Fix(
        "Start biases at zero and weights by Kaiming, check the inputs' scale, or use an activation that leaks."
        if from_start
        else "Lower the learning rate or warm it up, or use an activation that leaks.",
        leaking if " after " in name else "nn.LeakyReLU(0.01)  # instead of nn.ReLU()",
    )


def _finding(run: Run, layers: list[Layer]) -> Finding:
    worst = max(layers, key=lambda layer: layer.share)
    severity, confidence = _judge(run, layers)
    onset = min(layer.onset for layer in layers)
    evidence = [
        Evidence(
            f"{layer.name}: {layer.share:.0%} of its units gave zero for every sample in the recent batches",
            DEAD.name,
            layer.share,
            layer.bar,
            spark=curves.spark(layer.trace.values),
        )
        for layer in sorted(layers, key=lambda layer: -layer.share)[:3]
    ]
    loss = loss_curve(run)
    if loss is not None and len(loss.curve):
        text = f"the loss went from {curves.figure(loss.begin)} to {curves.figure(loss.end)}"
        evidence.append(Evidence(text, value=loss.fell, spark=loss.spark))
    from_start = onset <= _begin(run)
    bias = low_bias(run, worst.name) if from_start else None
    if bias is not None:
        text = f"{bias[0]} starts at {bias[1]:.2g} on average, so the units begin far below zero"
        evidence.insert(1, Evidence(text, WEIGHT["mean"].name, bias[1], LOW_BIAS))
    cause = "from the first steps on" if from_start else f"since step {onset}"
    return RULE.finding(
        severity=severity,
        confidence=confidence,
        title=f"{worst.share:.0%} of the units in {worst.name} are dead {cause}",
        summary=f"{len(layers)} ReLU layer{'s give' if len(layers) != 1 else ' gives'} zero for every input in most "
        "units, and what is zero passes no gradient, so these units cannot recover.",
        where=[Place(module=layer.name) for layer in layers[:3]],
        first_step=onset,
        evidence=evidence,
        fix=remedy(worst.name, from_start, bias[0] if bias else None),
        symptoms=("stuck-at-chance", "flat-from-start") if loss is not None and loss.stuck else (),
    )
