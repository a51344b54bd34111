"""Gradients vanish on the way to the early layers.

## What it means
Backpropagation multiplies the gradient by every layer's derivative on its way from the loss to the input. If these
factors are below one, the product shrinks exponentially with depth: the last layers learn, the first ones hardly move
and stay at their random initial values. The model trains as if it were much shallower than it is, or not at all.

## Why it happens
- Activations with small derivatives: a sigmoid's is at most 0.25, a saturated tanh's nearly zero.
- Weights that start too small for their width, in a deep stack without normalisation or skip connections.
- In recurrent networks, long sequences: the same factor is applied at every time step.

## How it is detected
For each model the root mean square of the gradient of every weight matrix is taken over many looks and laid out in
forward order (biases, normalisation, embeddings, frozen and unreached parameters, and the output layer are left out).
The finding needs a fall by a factor of 1000 or more from the late to the early quarter, a clear order by depth, spread
over the layers instead of one cliff, and a training that suffers from it: the early layers' updates are far smaller
than the late ones', or the gradients are below the optimizer's eps, or the loss does not fall. Adaptive optimizers
divide the gradient's size out; where the loss falls under one of them, this is information only.

For a plain RNN, written by hand or not, the time steps are judged as well: the size of its recurrent matrix tells by
which factor the gradient shrinks at each step. If less than a hundred-thousandth of it would reach the start of the
sequence, the weights move as usual, and yet the loss has not fallen at all or not below a constant guess, the early
time steps are out of reach.

## How to fix it
In this order: ReLU-like activations instead of sigmoid and tanh; an initialisation made for them (Kaiming for ReLU,
Xavier for tanh); normalisation layers; skip connections (x + f(x)); for sequences an LSTM or GRU instead of a plain
RNN. An adaptive optimizer hides the problem rather than curing it.

## Known false alarms
Architectures whose early layers are meant to get little gradient through a long path but have another one
(auxiliary heads are seen as such only by their gradients). Layer-wise learning rates do not matter: gradients are
compared, not rates.

## References
Hochreiter, "Untersuchungen zu dynamischen neuronalen Netzen", 1991.
Girko, "Circular law", 1985 (the spectral radius of a random matrix).
Bengio, Simard, Frasconi, "Learning long-term dependencies with gradient descent is difficult", 1994.
Glorot, Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010.
He et al., "Delving deep into rectifiers", 2015; He et al., "Deep residual learning for image recognition", 2016.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from torchdoctor.findings import Evidence, Finding, Fix, Place, RuledOut, Severity
from torchdoctor.rules import baseline, curves, movement
from torchdoctor.rules.architecture.depth import Profile, hidden, profile, stacks
from torchdoctor.rules.architecture.recurrence import Fading, fading
from torchdoctor.rules.loss_curve import STUCK, broken_at, loss_curve
from torchdoctor.rules.rule import Rule
from torchdoctor.run import Run
from torchdoctor.signals import GRADIENT_L2, TINY, UPDATE_RATIO, WEIGHT_L2

RULE = Rule(
    code="A001",
    name="vanishing-gradients",
    family="architecture",
    needs=(GRADIENT_L2,),
    explains=(
        "learning-rate-too-low",
        "plateau-or-saddle",
        "underfitting",
        "capacity-too-low",
        "majority-class-collapse",
    ),
)

FALL = 1e3
"""Glorot and Bengio (2010) see falls by 10 in five-layer nets that still train; healthy nets measured here stay within
30. Three orders of magnitude leave the early layers a thousandth of the step."""
ORDER = 0.8
"""Rank correlation of gradient and depth: at five layers at most one neighbouring pair is swapped."""
MIN_HIDDEN = 4
"""With fewer matrices a fall by 1000 is not a matter of depth."""
MIN_LOOKS = 3
STARVED = 1e-2
"""Relative update of the early layers against the late ones: they would need a hundred times as long."""
FADED = 1e-5
"""Of the gradient at the last time step: next to it, single precision leaves two digits of this."""
MOVING = 1e-4
"""Relative update: a tenth of the usual 1e-3. Below it the learning rate may be what holds the loss."""
MIN_UPDATES = 100
LEARNED = 0.8
"""A loss that lost four fifths of its start is not held back much."""


@dataclass(frozen=True)
class Harm:
    severity: Severity
    confidence: float
    text: str


def detect(run: Run) -> Iterator[Finding | RuledOut]:
    until, trace = broken_at(run), run.matrix(GRADIENT_L2)
    examined: list[Profile] = []
    for layers in stacks(run):
        found = profile(trace, layers, until)
        if (fade := fading(run, layers)) is not None and _is_out_of_reach(run, fade):
            yield _over_time(run, fade)
            continue
        if found is None or len(found) < MIN_HIDDEN + 1 or len(trace) < MIN_LOOKS:
            continue
        inner = hidden(found)
        examined.append(inner)
        if inner.fall >= FALL and inner.order >= ORDER and inner.gradual:
            harm = _harm(run, inner)
            yield _finding(run, inner, harm)
    if examined and all(e.fall < FALL / 10 for e in examined):
        worst = max(examined, key=lambda e: e.fall)
        text = f"the first layers' gradients are {_times(worst.fall)} the last ones'"
        yield RuledOut(RULE.name, text, GRADIENT_L2.name, worst.fall)


def _is_out_of_reach(run: Run, fade: Fading) -> bool:
    loss, moved = loss_curve(run), movement.read(run)
    if fade.left > FADED or loss is None or loss.broke_at is not None or moved is None:
        return False
    guess = baseline.chance(run)
    late = float(loss.curve.values[len(loss.curve) // 2 :].mean()) if len(loss.curve) else 0.0
    if not loss.stuck and not (guess is not None and late >= (1 - STUCK) * guess):
        return False
    middle = moved.middle_S[np.isfinite(moved.middle_S)]
    return len(loss.curve) >= MIN_UPDATES and bool(len(middle)) and float(np.median(middle)) >= MOVING


def _times(fall: float) -> str:
    if fall <= 0:
        return "many times"
    return f"1/{fall:.0f} of" if fall >= 2 else f"{1 / fall:.2g} times"


def _harm(run: Run, inner: Profile) -> Harm:
    loss = loss_curve(run)
    stuck = loss is not None and loss.stuck
    learned = loss is not None and loss.fell >= LEARNED
    starved = _starvation(run, inner)
    adaptive = bool(run.optimizers) and movement.is_scale_free(run)
    below_eps = adaptive and float(np.median(inner.values[: max(1, len(inner) // 4)])) < TINY
    if starved is not None and starved < STARVED and not learned:
        text = f"an update changes the early layers by {starved:.1g} of what it changes the late ones"
        return Harm(Severity.ERROR if stuck else Severity.WARNING, 0.9, text)
    if below_eps and not learned:
        text = f"the early gradients are below the optimizer's eps ({TINY:g}), so even an adaptive step dies out"
        return Harm(Severity.ERROR if stuck else Severity.WARNING, 0.85, text)
    if starved is None and not adaptive and not learned:
        return Harm(
            Severity.ERROR if stuck else Severity.WARNING, 0.8, "plain gradient steps pass the fall on as it is"
        )
    if stuck:
        return Harm(Severity.WARNING, 0.7, "the loss does not fall either")
    return Harm(Severity.INFO, 0.6, "the loss falls all the same" + (", the optimizer makes up for it" * adaptive))


def _starvation(run: Run, inner: Profile) -> float | None:
    """Early over late relative update, where updates were measured."""
    trace = run.matrix(UPDATE_RATIO)
    quarter = max(1, len(inner) // 4)
    ends = ([x.name for x in inner.layers[:quarter]], [x.name for x in inner.layers[-quarter:]])
    medians = []
    for names in ends:
        values = trace.select(names).values if len(trace) else np.zeros(0)
        finite = values[np.isfinite(values)]
        if not len(finite):
            return None
        medians.append(float(np.median(finite)))
    return medians[0] / medians[1] if medians[1] > 0 else None


def activations_on_the_way(run: Run) -> str | None:
    kinds = {f.activation for f in run.modules.values()} & {"sigmoid", "tanh"}
    return " and ".join(sorted(kinds)) if kinds else None


def _finding(run: Run, inner: Profile, harm: Harm) -> Finding:
    first, last = inner.layers[0], inner.layers[-1]
    evidence = [
        Evidence(
            f"gradient of {first.name} (root mean square): {inner.values[0]:.1e}; "
            f"of {last.name}: {inner.values[-1]:.1e}",
            GRADIENT_L2.name,
            inner.fall,
            FALL,
            spark=tuple(float(v) for v in np.log10(np.maximum(inner.values, 1e-45))),
        ),
        Evidence(harm.text, UPDATE_RATIO.name),
    ]
    kinds = activations_on_the_way(run)
    if kinds:
        evidence.append(Evidence(f"activations on the way: {kinds}"))
    loss = loss_curve(run)
    if loss is not None and len(loss.curve):
        text = f"the loss went from {curves.figure(loss.begin)} to {curves.figure(loss.end)}"
        evidence.append(Evidence(text, value=loss.fell, spark=loss.spark))
    fall = f"{inner.fall:.0e}".replace("e+0", "e").replace("e+", "e")
    return RULE.finding(
        severity=harm.severity,
        confidence=harm.confidence,
        title=f"gradients shrink by a factor of {fall} from {last.name} back to {first.name}",
        summary=f"Over {len(inner)} layers the gradient fades to almost nothing before it reaches the first ones, so "
        "they stay close to their random start.",
        where=[Place(module=layer.module, parameter=layer.name) for layer in inner.layers[:2]],
        evidence=evidence,
        fix=remedy(kinds),
        symptoms=("slow-descent", "flat-after-drop", "both-high-and-equal"),
    )


def _over_time(run: Run, fade: Fading) -> Finding:
    loss = loss_curve(run)
    owner = f"model.{fade.layer.module}" if fade.layer.module else "model"
    return RULE.finding(
        severity=Severity.WARNING,
        confidence=0.75,
        title=f"over {fade.steps} time steps the gradient of {fade.layer.module or fade.layer.name} fades to "
        f"{fade.left:.0e} of itself",
        summary="The recurrent weights shrink the gradient at every time step, so what happens at the start of a "
        "sequence cannot be learned from a loss at its end.",
        where=[Place(module=fade.layer.module, parameter=fade.layer.name)],
        evidence=[
            Evidence(
                f"{fade.layer.name} scales the gradient by about {fade.rate:.2f} a step: "
                f"{fade.rate:.2f}^{fade.steps - 1} = {fade.left:.0e}",
                WEIGHT_L2.name,
                fade.left,
                FADED,
            ),
            Evidence(
                f"the weights move as usual, but the loss stays at {curves.figure(loss.end)}" if loss else "",
                spark=loss.spark if loss else (),
            ),
        ],
        fix=Fix(
            "Start the recurrent matrix orthogonal, so that it keeps the scale, or use an LSTM or GRU.",
            f"nn.init.orthogonal_({owner}.{fade.layer.name.rpartition('.')[2]})",
        ),
        symptoms=("flat-from-start", "stuck-at-chance"),
    )


def remedy(kinds: str | None) -> Fix:
    if kinds:
        return Fix(
            f"Use ReLU or GELU instead of {kinds} between the layers, or add normalisation or skip connections.",
            "nn.ReLU()  # and nn.init.kaiming_normal_(layer.weight, nonlinearity='relu')",
        )
    return Fix(
        "Start the weights at the scale their width needs, and add normalisation or skip connections.",
        "nn.init.kaiming_normal_(layer.weight, nonlinearity='relu')",
    )
